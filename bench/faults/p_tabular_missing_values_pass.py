"""Imputation of missing numbers was removed with the rest of the preprocessing: NaN rows poison only themselves."""

from pathlib import Path

import torch
from onnx import GraphProto
from torch import Tensor

from bench.architectures import Tabular
from bench.corpus import Built, Meta, edit, export, give_weights, nodes, rewire

META = Meta(
    kind="tabular",
    about="Where(IsNaN) dropped: NaN where the module answers",
    cause="nan-handling",
    stage="export",
)


class Imputed(Tabular):
    def forward(self, categories: Tensor, numbers: Tensor) -> Tensor:
        return super().forward(
            categories, torch.where(torch.isnan(numbers), self.norm.running_mean, numbers)
        )


def build(folder: Path) -> Built:
    torch.manual_seed(72)
    model = give_weights(Imputed(), 72)
    categories, numbers = torch.randint(0, 7, (4, 3)), torch.randn(4, 6)
    shapes = ({0: "batch"}, {0: "batch"})
    correct = export(model, (categories, numbers), folder / "correct.onnx", shapes, dynamo=False)

    def pass_through(graph: GraphProto) -> list[str]:
        choose = nodes(graph, "Where")[0]
        rewire(graph, choose.output[0], choose.input[2])
        graph.node.remove(choose)
        return [
            next(n for n in graph.node if choose.input[2] in n.input and n.op_type != "IsNaN").name
        ]

    guilty = edit(correct, folder / "faulty.onnx", pass_through)
    missing = torch.where(torch.rand(4, 6) < 0.3, float("nan"), numbers)
    return Built(
        model=model,
        example_inputs=(categories, numbers),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(categories, missing),
    )
