"""torch's exporter drops `+ 1e-12`: onnxscript's rewriter takes constants up to 1e-8 for zero when it removes `x + 0`."""

from pathlib import Path

import torch
from onnx import load
from torch import Tensor, nn

from bench.corpus import Built, Meta, export, give_weights, nodes

META = Meta(
    kind="tabular",
    about="log(p + 1e-12) became log(p); 0 * -inf when a class is certain",
    cause="nan-handling",
    stage="export",
    native=True,
)


class Uncertainty(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 5))

    def forward(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        share = self.net(rows).softmax(-1)
        return share, -(share * (share + 1e-12).log()).sum(-1)


def build(folder: Path) -> Built:
    torch.manual_seed(78)
    model = give_weights(Uncertainty(), 78)
    rows = torch.randn(3, 6)
    shapes = ({0: "batch"},)
    correct = export(model, (rows,), folder / "correct.onnx", shapes, dynamo=False)
    faulty = export(model, (rows,), folder / "faulty.onnx", shapes)
    guilty = [node.name for node in nodes(load(faulty).graph, "Log")]
    return Built(
        model=model,
        example_inputs=(rows,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=faulty,
        guilty=guilty,
        trigger=(torch.randn(3, 6) * 400,),
    )
