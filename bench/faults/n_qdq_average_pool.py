"""ONNX Runtime fuses DQ, AveragePool, Q into an integer kernel that rounds other values up than the standard does."""

from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from bench.corpus import Built, Meta, export, nodes

META = Meta(
    kind="conv",
    about="average pooling between two fake quantizations of one scale; the fused kernel is a step off at exact halves",
    cause="optimizer",
    stage="optimizer",
    native=True,
)


SCALE = 0.0625


class QuantizedPool(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x = torch.fake_quantize_per_tensor_affine(x, SCALE, 3, -128, 127)
        return torch.fake_quantize_per_tensor_affine(
            nn.functional.avg_pool2d(x, 2), SCALE, 3, -128, 127
        )


class QuantizedMean(nn.Module):
    """The same windows as a plain mean, which the optimizer does not recognise."""

    def forward(self, x: Tensor) -> Tensor:
        x = torch.fake_quantize_per_tensor_affine(x, SCALE, 3, -128, 127)
        windows = x.reshape(x.shape[0], 2, 4, 2, 4, 2)
        return torch.fake_quantize_per_tensor_affine(windows.mean((3, 5)), SCALE, 3, -128, 127)


def build(folder: Path) -> Built:
    model = QuantizedPool().eval()
    example = (torch.full((1, 2, 8, 8), 0.5),)
    shapes = ({0: "batch"},)
    faulty = export(model, example, folder / "faulty.onnx", shapes, dynamo=False)
    correct = export(QuantizedMean().eval(), example, folder / "correct.onnx", shapes, dynamo=False)
    guilty = [node.name for node in nodes(onnx.load(faulty).graph, "AveragePool")]
    trigger = (torch.randn(1, 2, 8, 8, generator=torch.Generator().manual_seed(2)),)
    return Built(
        model=model,
        example_inputs=example,
        dynamic_shapes=shapes,
        faulty=faulty,
        correct=correct,
        guilty=guilty,
        trigger=trigger,
    )
