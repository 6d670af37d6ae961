"""int8 of small ResNets trained on scikit-learn's digits, ours beside ONNX Runtime's quantizer with a scale for each channel: `python -m bench.quantize_resnet`.

Six trainings: short, long, at a high rate, without BatchNorm, on pixels from 0 to 16, on images enlarged to 28x28. SQNR is that of the outputs on test images that neither saw; CPU seconds are those of this process.
"""

import argparse
import logging
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

import onnxproof
from bench import quantize_others
from bench.quantize import outputs
from bench.quantize_models import Data, train
from onnxproof.exporter import export
from onnxproof.reference import subject
from onnxproof.verification.quantized import decibels

_CALIBRATED_ON = 256


class Residual(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, wide: int, out: int, stride: int, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(wide, out, 3, stride, 1, bias=False),
            norm(out),
            nn.ReLU(),
            nn.Conv2d(out, out, 3, 1, 1, bias=False),
            norm(out),
        )
        self.short: nn.Module = nn.Identity()
        if wide != out or stride > 1:
            self.short = nn.Sequential(nn.Conv2d(wide, out, 1, stride, bias=False), norm(out))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.inner(x) + self.short(x))


class ResNet(nn.Module):
    """Four such blocks."""

    def __init__(self, norm: Callable[[int], nn.Module] = nn.BatchNorm2d) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 16, 3, 1, 1, bias=False), norm(16), nn.ReLU())
        widths = ((16, 16, 1), (16, 32, 2), (32, 32, 1), (32, 64, 2))
        self.blocks = nn.Sequential(*(Residual(*width, norm) for width in widths))
        self.head = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """One of the six."""

    epochs: int = 6
    rate: float = 4e-3
    normed: bool = True
    pixels: float = 1.0
    enlarged: bool = False


TRAININGS = {
    "short": Training(epochs=2),
    "long": Training(epochs=40),
    "high rate": Training(rate=3e-2),
    "no BatchNorm": Training(normed=False),
    "pixels to 16": Training(pixels=16.0),
    "28x28": Training(enlarged=True),
}


def _data(training: Training) -> Data:
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = (training.pixels * digits.images / 16).astype(np.float32)[:, None]
    if training.enlarged:
        images = np.kron(images, np.ones((1, 1, 3, 3), np.float32))
        images = np.pad(images, ((0, 0), (0, 0), (2, 2), (2, 2)))
    order = np.random.default_rng(0).permutation(len(images))
    images, labels = images[order], digits.target[order].astype(np.int64)
    return Data(
        name="digits",
        train=images[:1300],
        train_labels=labels[:1300],
        test=images[1300:],
        test_labels=labels[1300:],
    )


def compare(name: str, folder: Path) -> str:
    """A row of the table."""
    training = TRAININGS[name]
    data = _data(training)
    norm: Callable[[int], nn.Module] = nn.BatchNorm2d
    if not training.normed:
        norm = nn.Identity
    module = train(ResNet(norm), data, epochs=training.epochs, rate=training.rate)
    source, calibration = folder / "float.onnx", folder / "calibration.npz"
    example = (torch.from_numpy(data.train[:2]),)
    export.write(subject.load(module, example, dynamic_shapes=({0: "batch"},)), source)
    np.savez(calibration, x=data.train[:_CALIBRATED_ON])
    wanted = outputs(source, data.test)

    def made(quantize: Callable[[], object], path: Path) -> tuple[float, float]:
        start = time.process_time()
        quantize()
        seconds = time.process_time() - start
        error = outputs(path, data.test) - wanted
        return decibels(float((wanted**2).sum()), float((error**2).sum())), seconds

    theirs, ours = folder / "ort.onnx", folder / "onnxproof.onnx"
    words = [str(path) for path in (source, calibration, theirs)]
    other_db, other_s = made(lambda: quantize_others.ort_u8s8(*words), theirs)
    own_db, own_s = made(
        lambda: onnxproof.quantize(source, ours, calibration=str(calibration)), ours
    )
    right = float((wanted.argmax(1) == data.test_labels).mean())
    return f"| {name} | {right:.3f} | {other_db:.1f} | {own_db:.1f} | {own_db - other_db:+.1f} | {other_s:.1f} | {own_s:.1f} |"


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="trainings whose name holds this")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    print(
        "| training | top-1 | ort per channel, dB | onnxproof, dB | more | ort CPU s | ours CPU s |"
    )
    print("| --- | --: | --: | --: | --: | --: | --: |")
    for name in TRAININGS:
        if options.only in name:
            with tempfile.TemporaryDirectory() as folder:
                print(compare(name, Path(folder)), flush=True)


if __name__ == "__main__":
    main()
