"""What the pages about exporting and quantizing take as given: the reader's own model and data, as small as they can be."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

SIZES = '''
import torch
from torch import nn


class Net(nn.Module):
    """Asks for its batch and for its length, and was left in training mode."""

    def __init__(self):
        super().__init__()
        self.lin, self.drop, self.y = nn.Linear(8, 8), nn.Dropout(0.5), nn.Parameter(torch.ones(8))

    def forward(self, x):
        y = self.y
        if x.shape[0] > 3:
            y = -y
        a = self.lin(x) + y
        if x.shape[1] == 6:
            a = torch.relu(a)
        return self.drop(a)


def build():
    torch.manual_seed(0)
    return Net(), (torch.randn(3, 6, 8),)
'''
IMAGES = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(1, 6, 3, padding=1), nn.Linear(6 * 8 * 8, 4)

    def forward(self, x):
        return self.head(torch.relu(self.conv(x)).flatten(1))


def build():
    torch.manual_seed(0)
    return Net().eval(), (torch.rand(4, 1, 8, 8),)
"""
ACCURACY = """
import numpy as np


def accuracy(predict):
    test = np.load("labelled.npz")
    return predict({"x": test["x"]})[0].argmax(1) == test["labels"]
"""


def exporting(folder: Path) -> dict[str, Any]:
    """A module that asks for its sizes; and one whose images are prepared before it sees them."""
    import torch

    import onnxproof

    (folder / "model.py").write_text(SIZES)
    return {
        "onnxproof": onnxproof,
        "net": torch.nn.Conv2d(3, 4, 3),
        "image": torch.rand(1, 3, 8, 8),
        "preprocess": lambda image: (image - 0.5) / 0.25,
    }


def quantizing(folder: Path) -> dict[str, Any]:
    """A conv net as a factory and as a file with its weights beside it, images, calibration and test data, a metric, and a file that was calibrated on another scale."""
    import numpy as np
    from PIL import Image

    (folder / "model.py").write_text(IMAGES)
    names: dict[str, Any] = {}
    exec(IMAGES, names)
    (folder / "images").mkdir()
    for place, pixels in enumerate(
        np.random.default_rng(1).integers(0, 256, (24, 8, 8), dtype=np.uint8)
    ):
        Image.fromarray(pixels).save(folder / "images" / f"{place}.png")
    return served(folder, *names["build"]())


def served(folder: Path, module: Any, example: tuple[Any, ...]) -> dict[str, Any]:
    """The data of a module with one input `x`, and what was made of it."""
    import numpy as np
    import torch

    import onnxproof

    (folder / "eval.py").write_text(ACCURACY)
    random, shape = np.random.default_rng(0), (96, *example[0].shape[1:])
    x = (random.random(shape) if example[0].min() >= 0 else random.standard_normal(shape)).astype(
        np.float32
    )
    labels = module(torch.from_numpy(x[64:])).argmax(1).numpy()
    (folder / "calib").mkdir()
    for place in range(4):
        np.savez(folder / "calib" / f"{place}.npz", x=x[place * 16 : place * 16 + 16])
    np.savez(folder / "calib.npz", x=x[:64])
    np.savez(folder / "test.npz", x=x[64:])
    np.savez(folder / "labelled.npz", x=x[64:], labels=labels)
    torch.onnx.export(
        module,
        example,
        folder / "model.onnx",
        dynamo=True,
        dynamic_shapes=({0: "batch"},),
        external_data=True,
        verbose=False,
    )
    onnxproof.quantize(
        folder / "model.onnx",
        folder / "tanked.int8.onnx",
        calibration={"x": x[:64] * 0.02},
        recipes=(),
    )
    return {
        "onnxproof": onnxproof,
        "module": module,
        "x": example[0],
        "loader": [torch.from_numpy(x[:64])],
        "images": x[64:],
        "labels": labels,
    }


PREPARED: dict[str, Callable[[Path], dict[str, Any]]] = {
    "docs/export.md": exporting,
    "docs/quantize.md": quantizing,
}
