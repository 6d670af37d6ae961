"""A linear layer as the factory of a module and as ONNX files: right, a little off, and wrong."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

RNG = np.random.default_rng(0)
WEIGHT, BIAS = (
    RNG.standard_normal((4, 8)).astype(np.float32),
    RNG.standard_normal(4).astype(np.float32),
)

FACTORIES = """
import numpy as np
import torch
from torch import nn

WEIGHT, BIAS = np.load(__file__.replace("model.py", "weight.npy")), np.load(__file__.replace("model.py", "bias.npy"))


def build():
    print("a factory may print")
    module = nn.Linear(8, 4)
    module.load_state_dict({"weight": torch.from_numpy(WEIGHT), "bias": torch.from_numpy(BIAS)})
    return module, (torch.randn(3, 8, generator=torch.Generator().manual_seed(0)),)


def wrong_rank():
    return build()[0], (torch.randn(8),)


def wrong_size():
    return nn.Linear(6, 4), (torch.randn(3, 6),)


def refused():
    return build()[0], (torch.randn(3, 5),)


def no_example():
    return build()[0]


def raises():
    raise FileNotFoundError("weights.pt")


def number():
    return 7


class Branch(nn.Module):
    def forward(self, x):
        while x.norm() > 1:
            x = x / 2
        return x


def branch():
    return Branch(), (torch.randn(3, 8),)
"""


def linear(
    path: Path,
    *,
    weight: np.ndarray = WEIGHT,
    bias: np.ndarray = BIAS,
    opset: int = 18,
    op: str = "Gemm",
    domain: str = "",
) -> Path:
    """`x @ weight.T + bias` as an ONNX file."""
    attributes = {"transB": 1} if op == "Gemm" else {}
    node = helper.make_node(op, ["input", "w", "b"], ["y"], domain=domain, **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])],
        [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(bias, "b")],
    )
    imports = [helper.make_opsetid("", opset)] + (
        [helper.make_opsetid(domain, 1)] if domain else []
    )
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=10), path)
    return path


def reference(folder: Path) -> None:
    """Write `model.py`, with its factories, and the weights that it reads."""
    np.save(folder / "weight.npy", WEIGHT)
    np.save(folder / "bias.npy", BIAS)
    (folder / "model.py").write_text(FACTORIES)


def candidates(folder: Path) -> None:
    """Write `good.onnx`, `drift.onnx` and `bad.onnx`."""
    linear(folder / "good.onnx")
    linear(folder / "drift.onnx", bias=BIAS * np.float32(1 + 1e-4))
    linear(folder / "bad.onnx", bias=BIAS + np.float32(0.5))
