"""A low-rank correction is added with factors by `addmm`; a Gemm rewrite kept the matrices and lost beta."""

from pathlib import Path

import torch
from onnx import GraphProto
from torch import Tensor, nn

from bench.corpus import Built, Meta, edit, export, give_weights, nodes, set_attributes

META = Meta(kind="tabular", about="Gemm beta 0.25 became 1", cause="attribute", stage="export")


class LowRank(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(10, 16)
        self.bias, self.outer = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(16, 3))

    def forward(self, rows: Tensor) -> Tensor:
        return torch.addmm(
            self.bias, torch.tanh(self.inner(rows)), self.outer, beta=0.25, alpha=2.0
        )


def build(folder: Path) -> Built:
    torch.manual_seed(74)
    model = give_weights(LowRank(), 74)
    rows = torch.randn(3, 10)
    shapes = ({0: "batch"},)
    correct = export(model, (rows,), folder / "correct.onnx", shapes)

    def forget(graph: GraphProto) -> list[str]:
        gemm = nodes(graph, "Gemm")[-1]
        set_attributes(gemm, beta=None)
        return [gemm.name]

    guilty = edit(correct, folder / "faulty.onnx", forget)
    return Built(
        model=model,
        example_inputs=(rows,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.randn(5, 10),),
    )
