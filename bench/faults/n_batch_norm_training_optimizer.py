"""BatchNormalization(training_mode=1) is right in ONNX Runtime until its optimizer has been over the graph."""

from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from bench.corpus import Built, Meta, export, nodes

META = Meta(
    kind="conv",
    about="normalisation by batch statistics, exported by the legacy exporter; level 1 optimisation changes the result",
    cause="optimizer",
    stage="optimizer",
    native=True,
)


class BatchStatistics(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("variance", torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.batch_norm(x, self.mean.clone(), self.variance.clone(), training=True)


class BatchStatisticsByHand(BatchStatistics):
    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean((0, 2), keepdim=True)
        variance = ((x - mean) ** 2).mean((0, 2), keepdim=True)
        return (x - mean) / torch.sqrt(variance + 1e-5)


def build(folder: Path) -> Built:
    generator = torch.Generator().manual_seed(1)
    model = BatchStatistics().eval()
    example = (torch.randn(3, 4, 10, generator=generator),)
    shapes = None
    faulty = export(model, example, folder / "faulty.onnx", shapes, dynamo=False)
    correct = export(BatchStatisticsByHand().eval(), example, folder / "correct.onnx", shapes)
    guilty = [node.name for node in nodes(onnx.load(faulty).graph, "BatchNormalization")]
    trigger = (torch.randn(3, 4, 10, generator=generator) * 3 + 2,)
    return Built(
        model=model,
        example_inputs=example,
        dynamic_shapes=shapes,
        faulty=faulty,
        correct=correct,
        guilty=guilty,
        trigger=trigger,
    )
