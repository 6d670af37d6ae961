"""A fine-tuning script left one BatchNorm in train mode, so it normalises by the batch: a row's answer depends on its company."""

from pathlib import Path

import torch
from onnx import load
from torch import Tensor, nn

from bench.architectures import Tabular
from bench.corpus import Built, Meta, export, give_weights, nodes

META = Meta(
    kind="tabular",
    about="BatchNorm1d uses the batch's own mean and variance",
    cause="train-mode",
    stage="export",
)


class OfTheBatch(nn.BatchNorm1d):
    """What train mode computes, spelled out as an exporter decomposes it."""

    def forward(self, rows: Tensor) -> Tensor:
        mean, variance = rows.mean(0), rows.var(0, unbiased=False)
        return (rows - mean) * torch.rsqrt(variance + self.eps) * self.weight + self.bias


def build(folder: Path) -> Built:
    torch.manual_seed(71)
    model, unfrozen = give_weights(Tabular(), 71), Tabular()
    unfrozen.mlp[2] = OfTheBatch(48)
    unfrozen.load_state_dict(model.state_dict())
    categories, numbers = torch.randint(0, 7, (8, 3)), torch.randn(8, 6)
    shapes = ({0: "batch"}, {0: "batch"})
    correct = export(model, (categories, numbers), folder / "correct.onnx", shapes)
    faulty = export(unfrozen.eval(), (categories, numbers), folder / "faulty.onnx", shapes)
    guilty = [node.name for node in nodes(load(faulty).graph, "Sub", "ReduceMean", "Add", "Mul")]
    return Built(
        model=model,
        example_inputs=(categories, numbers),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=faulty,
        guilty=guilty,
        trigger=(torch.randint(0, 7, (5, 3)), torch.randn(5, 6) * 2),
    )
