"""The models that every runtime must serve, or refuse: a conv net, a transformer, an LSTM, a UNet, and a quantized conv net."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from onnxproof.exporter.export import write
from onnxproof.reference.subject import load


class ConvNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 16, 3, groups=2, padding=1),
            nn.BatchNorm2d(16),
            nn.Hardswish(),
            nn.MaxPool2d(2),
        )
        self.head = nn.Linear(16 * 4 * 4, 10)

    def forward(self, image: Tensor) -> Tensor:
        return self.head(self.body(image).flatten(1))


class Transformer(nn.Module):
    """Batch and sequence may vary; attention, LayerNorm and GELU written out as models do."""

    def __init__(self, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.embed, self.heads = nn.Embedding(40, width), heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        batch, length, width = x.shape
        q, k, v = (
            self.qkv(self.first(x))
            .reshape(batch, length, 3, self.heads, width // self.heads)
            .permute(2, 0, 3, 1, 4)
        )
        attended = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(nn.functional.gelu(self.up(self.second(x))))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.head = nn.LSTM(6, 12, batch_first=True), nn.Linear(12, 4)

    def forward(self, steps: Tensor) -> Tensor:
        return self.head(self.rnn(steps)[0][:, -1])


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.middle = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.up, self.last = nn.Conv2d(24, 8, 3, padding=1), nn.Conv2d(8, 2, 1)

    def forward(self, image: Tensor) -> Tensor:
        high = torch.relu(self.down(image))
        low = torch.relu(self.middle(nn.functional.max_pool2d(high, 2)))
        wide = nn.functional.interpolate(
            low, scale_factor=2.0, mode="bilinear", align_corners=False
        )
        return self.last(torch.relu(self.up(torch.cat([high, wide], 1))))


@dataclass(frozen=True)
class Served:
    """A reference (a module, or the file itself for what has no module) and the file."""

    reference: Any
    path: Path
    example: tuple[Tensor, ...] | None


def export(folder: Path) -> dict[str, Served]:
    """Write all five."""
    torch.manual_seed(0)
    batch = {0: "batch"}
    made = {
        "conv": (ConvNet(), (torch.randn(2, 3, 16, 16),), ({0: "batch"},)),
        "transformer": (
            Transformer(),
            (torch.randint(0, 40, (2, 5)),),
            ({0: "batch", 1: "length"},),
        ),
        "lstm": (Recurrent(), (torch.randn(2, 5, 6),), (batch,)),
        "unet": (UNet(), (torch.randn(2, 1, 8, 8),), (batch,)),
    }
    found: dict[str, Served] = {}
    for name, (module, example, shapes) in made.items():
        path = folder / f"{name}.onnx"
        write(load(module.eval(), example, dynamic_shapes=shapes), path)
        found[name] = Served(module, path, example)
    found["qdq"] = Served(str(quantized(folder / "qdq.onnx")), folder / "qdq.onnx", None)
    return found


def quantized(path: Path) -> Path:
    """A conv net in int8, with QuantizeLinear and DequantizeLinear around each step as quantizers write them."""
    rng = np.random.default_rng(3)
    tensors = {
        "xs": np.float32(0.02),
        "xz": np.int8(3),
        "ws": np.float32(0.01),
        "wz": np.int8(0),
        "ys": np.float32(0.05),
        "yz": np.int8(-5),
        "w": rng.integers(-100, 100, (4, 3, 3, 3)).astype(np.int8),
        "b": rng.standard_normal(4).astype(np.float32),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["xq"], name="quantize_x"),
        helper.make_node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"], name="dequantize_x"),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], name="dequantize_w"),
        helper.make_node("Conv", ["xd", "wd", "b"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("QuantizeLinear", ["r", "ys", "yz"], ["rq"], name="quantize_y"),
        helper.make_node("DequantizeLinear", ["rq", "ys", "yz"], ["y"], name="dequantize_y"),
    ]
    graph = helper.make_graph(
        nodes,
        "qdq",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, 6, 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4, 6, 6])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in tensors.items()],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9), path
    )
    return path
