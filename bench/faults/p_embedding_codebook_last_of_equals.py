"""A vector quantiser takes the last of equally near codes instead of the first: saturated inputs lie between codes."""

from pathlib import Path

import torch
from onnx import GraphProto
from torch import Tensor, nn

from bench.corpus import Built, Meta, edit, export, nodes, set_attributes

META = Meta(
    kind="embedding",
    about="ArgMin select_last_index=1; differs at exact ties",
    cause="tie-order",
    stage="export",
    domain="ties",
)


class Quantiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer(
            "codes", torch.tensor([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0], [2.0, 2.0], [-1.0, 1.0]])
        )

    def forward(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        distance = (vectors[:, None] - self.codes).square().sum(-1)
        code = distance.argmin(-1)
        return code, self.codes[code]


def build(folder: Path) -> Built:
    torch.manual_seed(103)
    model = Quantiser().eval()
    vectors = torch.randn(4, 2)
    shapes = ({0: "batch"},)
    correct = export(model, (vectors,), folder / "correct.onnx", shapes)

    def last(graph: GraphProto) -> list[str]:
        nearest = nodes(graph, "ArgMin")[0]
        set_attributes(nearest, select_last_index=1)
        return [nearest.name]

    guilty = edit(correct, folder / "faulty.onnx", last)
    return Built(
        model=model,
        example_inputs=(vectors,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.tensor([[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]]),),
    )
