"""Quantized files for `bench/quantized_faults.py`: four small nets trained on scikit-learn's digits, by ONNX Runtime's quantizer and by ours."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_static,
)
from torch import nn

import onnxproof
from onnxproof.exporter import export
from onnxproof.quantization.float_graph import prepare
from onnxproof.reference import subject

Array = np.ndarray[Any, Any]
_CALIBRATED = 128
_JUDGED = 64
_STEPS = 250
"""Of training: every net then names at least nine of ten digits that it was not trained on."""


class Mlp(nn.Module):
    """Three linear layers, the middle one square."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(64, 32)
        self.middle = nn.Linear(32, 32)
        self.last = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.middle(torch.relu(self.first(x.flatten(1)))))
        return self.last(hidden)


class ConvNet(nn.Module):
    """Three convolutions, one of them with as many channels in as out."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 12, 3, padding=1)
        self.middle = nn.Conv2d(12, 12, 3, padding=1)
        self.last = nn.Conv2d(12, 16, 3, padding=1, stride=2)
        self.head = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.middle(torch.relu(self.first(x))))
        return self.head(torch.relu(self.last(hidden)).mean((2, 3)))


class Attention(nn.Module):
    """A transformer block over the rows of the image."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.embed = nn.Linear(8, width)
        self.norm = nn.LayerNorm(width)
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)
        self.wide = nn.Linear(width, 2 * width)
        self.narrow = nn.Linear(2 * width, width)
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = self.embed(x.squeeze(1))
        normed = self.norm(rows)
        scores = self.query(normed) @ self.key(normed).transpose(-2, -1) * 32**-0.5
        rows = rows + self.out(scores.softmax(-1) @ self.value(normed))
        rows = rows + self.narrow(torch.relu(self.wide(rows)))
        return self.head(rows.mean(1))


class Depthwise(nn.Module):
    """Depthwise and pointwise convolutions with BatchNorm, which is folded before quantization."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.depth = nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.point = nn.Sequential(nn.Conv2d(16, 16, 1), nn.BatchNorm2d(16), nn.ReLU())
        self.head = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.point(torch.relu(self.depth(self.stem(x)))).mean((2, 3)))


NETS = {"mlp": Mlp, "conv": ConvNet, "attention": Attention, "depthwise": Depthwise}


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantized:
    """A float module, a healthy quantized file of it, and data as it is served."""

    net: str
    how: str
    module: nn.Module
    path: Path
    served: Array


def digits() -> tuple[Array, Array]:
    """Images between 0 and 1, normalised, with their labels, in an order that a seed gives."""
    from sklearn.datasets import load_digits

    loaded = load_digits()
    order = np.random.default_rng(0).permutation(len(loaded.images))
    images = (loaded.images[order, None] / 16 - 0.3) / 0.38
    return images.astype(np.float32), loaded.target[order].astype(np.int64)


def trained(name: str, images: Array, labels: Array) -> nn.Module:
    """A net after a few hundred steps of Adam."""
    torch.manual_seed(0)
    module = NETS[name]()
    optimizer = torch.optim.Adam(module.parameters(), 5e-3)
    x, y = torch.from_numpy(images), torch.from_numpy(labels)
    for _ in range(_STEPS):
        chosen = torch.randint(0, len(x), (64,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(x[chosen]), y[chosen]).backward()
        optimizer.step()
    return module.eval()


class _Reader(CalibrationDataReader):
    """Calibration data in batches of 32."""

    def __init__(self, name: str, images: Array) -> None:
        self._batches = iter(
            {name: images[start : start + 32]} for start in range(0, len(images), 32)
        )

    def get_next(self) -> Any:
        return next(self._batches, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to quantize with ONNX Runtime's quantizer."""

    activations: QuantType
    weights: QuantType
    per_channel: bool
    form: QuantFormat = QuantFormat.QDQ
    calibrated_on: float = 1.0
    """What the calibration data is multiplied by."""


WAYS = {
    "ort u8s8 tensor": Way(
        activations=QuantType.QUInt8, weights=QuantType.QInt8, per_channel=False
    ),
    "ort u8u8 tensor": Way(
        activations=QuantType.QUInt8, weights=QuantType.QUInt8, per_channel=False
    ),
    "ort u8s8 channel": Way(
        activations=QuantType.QUInt8, weights=QuantType.QInt8, per_channel=True
    ),
    "ort s8s8 channel": Way(activations=QuantType.QInt8, weights=QuantType.QInt8, per_channel=True),
    "ort a16w8 channel": Way(
        activations=QuantType.QUInt16, weights=QuantType.QInt8, per_channel=True
    ),
    "ort qoperator": Way(
        activations=QuantType.QUInt8,
        weights=QuantType.QInt8,
        per_channel=False,
        form=QuantFormat.QOperator,
    ),
}
OURS = {"ours u8s8": "u8s8", "ours a16w8": "a16w8"}


def float_file(module: nn.Module, images: Array, folder: Path) -> Path:
    """The module exported with a free batch, its BatchNorms folded."""
    path = folder / "float.onnx"
    example = (torch.from_numpy(images[:2]),)
    found = subject.load(module, example, dynamic_shapes=({0: "batch"},))
    export.write(found, path)
    onnx.save(prepare(path), path)
    return path


def by_runtime(source: Path, images: Array, way: Way, target: Path) -> Path:
    """A file by ONNX Runtime's quantizer."""
    name = onnx.load(source).graph.input[0].name
    logging.disable(logging.WARNING)
    try:
        quantize_static(
            source,
            target,
            _Reader(name, images[:_CALIBRATED] * np.float32(way.calibrated_on)),
            quant_format=way.form,
            activation_type=way.activations,
            weight_type=way.weights,
            per_channel=way.per_channel,
        )
    finally:
        logging.disable(logging.NOTSET)
    return target


def by_us(module: nn.Module, images: Array, scheme: str, target: Path) -> Path:
    """A file by `onnxproof.quantize`, without the search for recipes."""
    onnxproof.quantize(
        module,
        target,
        example_inputs=(torch.from_numpy(images[:2]),),
        dynamic_shapes=({0: "batch"},),
        calibration={"x": images[:_CALIBRATED]},
        scheme=scheme,
        recipes=("equalize", "correct-bias"),
        proof_s=3,
    )
    return target


def quantized_files(folder: Path, nets: list[str], ways: list[str]) -> Iterator[Quantized]:
    """Every net by every way."""
    images, labels = digits()
    for net in nets:
        module = trained(net, images[:1300], labels[:1300])
        home = folder / net
        home.mkdir(parents=True, exist_ok=True)
        source = float_file(module, images, home)
        for how in ways:
            target = home / f"{how.replace(' ', '-')}.onnx"
            if how in OURS:
                by_us(module, images, OURS[how], target)
            else:
                by_runtime(source, images, WAYS[how], target)
            served = images[1300 : 1300 + _JUDGED]
            yield Quantized(net=net, how=how, module=module, path=target, served=served)
