"""Modules quantized as PyTorch's documents show it (`torch.ao.quantization`, eager), and their files."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.ao import quantization

Array = np.ndarray[Any, Any]


class Net(nn.Module):
    """A convolution with norm and activation, and a linear layer, between the stubs."""

    def __init__(self) -> None:
        super().__init__()
        self.quant = quantization.QuantStub()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.relu = nn.ReLU()
        self.head = nn.Linear(8 * 64, 10)
        self.dequant = quantization.DeQuantStub()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = self.relu(self.norm(self.conv(self.quant(x))))
        return self.dequant(self.head(torch.flatten(inner, 1)))


def build() -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    return Net().eval(), torch.randn(4, 3, 8, 8)


def convert(
    module: nn.Module, calibrate: Callable[[nn.Module], Any], *, config: Any = None
) -> nn.Module:
    """Fuse, prepare, calibrate, convert."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = quantization.fuse_modules(module, [["conv", "norm", "relu"]])
        module.qconfig = config or quantization.get_default_qconfig("x86")
        prepared = quantization.prepare(module)
        calibrate(prepared)
        return quantization.convert(prepared)


def write(module: nn.Module, example: torch.Tensor, path: Path) -> Path:
    """What `torch.onnx.export` makes of it; only its older way takes integers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            (example,),
            str(path),
            dynamo=False,
            opset_version=17,
            input_names=["x"],
            output_names=["scores"],
            dynamic_axes={"x": {0: "batch"}, "scores": {0: "batch"}},
        )
    return path


def ordinary(seed: int, factor: float = 1.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(64, 3, 8, 8, generator=generator) * factor
