"""Twelve half-precision graphs that a CPU answers rightly and a half device does not; and the same with the sensitive nodes in float32."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[Any, Any]
_RNG = np.random.default_rng(11)
HALF, SINGLE = TensorProto.FLOAT16, TensorProto.FLOAT


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfModel:
    """A graph of x, written as (operator, inputs, output); the last output is the answer."""

    x: Array
    nodes: tuple[tuple[str, str, str], ...]
    weights: dict[str, Array]
    guilty: str
    """The output of the node that loses the answer."""
    sensitive: tuple[str, ...]
    """The outputs of the nodes that are kept in float32 in the healthy twin."""

    def build(self, *, twin: bool = False) -> onnx.ModelProto:
        """The file."""
        nodes: list[onnx.NodeProto] = []
        for op_type, inputs, output in self.nodes:
            names = inputs.split()
            attributes = _ATTRIBUTES.get(op_type, {})
            if not twin or output not in self.sensitive:
                nodes.append(helper.make_node(op_type, names, [output], output, **attributes))
                continue
            wide = [self._widened(name, output, nodes) for name in names]
            nodes.append(
                helper.make_node(op_type, wide, [f"{output}_single"], output, **attributes)
            )
            nodes.append(helper.make_node("Cast", [f"{output}_single"], [output], to=HALF))
        graph = helper.make_graph(
            nodes,
            "half",
            [helper.make_tensor_value_info("x", HALF, self.x.shape)],
            [helper.make_tensor_value_info(self.nodes[-1][2], HALF, None)],
            [numpy_helper.from_array(value, name) for name, value in self.weights.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    def _widened(self, name: str, output: str, nodes: list[onnx.NodeProto]) -> str:
        """The input of a sensitive node in float32: that of another sensitive node as it is, anything else cast."""
        if name in self.sensitive:
            return f"{name}_single"
        if name in self.weights and self.weights[name].dtype.kind != "f":
            return name
        wide = f"{name}_{output}_wide"
        nodes.append(helper.make_node("Cast", [name], [wide], to=SINGLE))
        return wide


_ATTRIBUTES: dict[str, dict[str, Any]] = {
    "ReduceMean": {"axes": [-1], "keepdims": 1},
    "ReduceL1": {"axes": [-1], "keepdims": 1},
    "Softmax": {"axis": -1},
}


def _half(*shape: int, size: float = 1.0, middle: float = 0.0) -> Array:
    return (_RNG.standard_normal(shape) * size + middle).astype(np.float16)


def _number(value: float) -> Array:
    return np.array(value, np.float16)


LAST = np.array([-1])
PLANTED: dict[str, HalfModel] = {
    "attention scores": HalfModel(
        x=_half(4, 64, size=60),
        nodes=(
            ("Transpose", "x", "t"),
            ("MatMul", "x t", "scores"),
            ("Mul", "scores c", "scaled"),
            ("Softmax", "scaled", "weights"),
            ("MatMul", "weights x", "y"),
        ),
        weights={"c": _number(1e-5)},
        guilty="scores",
        sensitive=("scores", "scaled"),
    ),
    "norm of large vectors": HalfModel(
        x=_half(4, 32, size=400),
        nodes=(
            ("Mul", "x x", "squares"),
            ("ReduceMean", "squares", "mean"),
            ("Sqrt", "mean", "rms"),
            ("Div", "x rms", "y"),
        ),
        weights={},
        guilty="squares",
        sensitive=("squares", "mean", "rms"),
    ),
    "long sum": HalfModel(
        x=_half(2, 4096, size=5, middle=30),
        nodes=(("ReduceSum", "x axes", "sum"), ("Mul", "sum c", "y")),
        weights={"axes": LAST, "c": _number(1e-3)},
        guilty="sum",
        sensitive=("sum", "y"),
    ),
    "exponentials": HalfModel(
        x=_half(3, 8, middle=12.5),
        nodes=(
            ("Exp", "x", "powers"),
            ("ReduceL1", "powers", "total"),
            ("Div", "powers total", "y"),
        ),
        weights={},
        guilty="powers",
        sensitive=("powers", "total", "y"),
    ),
    "mask doubled": HalfModel(
        x=_half(3, 8),
        nodes=(
            ("Add", "x mask", "hidden"),
            ("Add", "hidden mask", "twice"),
            ("Softmax", "twice", "y"),
        ),
        weights={"mask": np.full((3, 8), -65504.0, np.float16)},
        guilty="twice",
        sensitive=("hidden", "twice", "y"),
    ),
    "squares vanish": HalfModel(
        x=_half(4, 32, size=1e-4),
        nodes=(
            ("Mul", "x x", "squares"),
            ("ReduceMean", "squares", "mean"),
            ("Sqrt", "mean", "rms"),
            ("Div", "x rms", "y"),
        ),
        weights={},
        guilty="squares",
        sensitive=("squares", "mean", "rms"),
    ),
    "logarithm of a sum": HalfModel(
        x=_half(3, 32, size=0.1, middle=9),
        nodes=(
            ("Exp", "x", "powers"),
            ("ReduceSum", "powers axes", "total"),
            ("Log", "total", "y"),
        ),
        weights={"axes": LAST},
        guilty="total",
        sensitive=("powers", "total", "y"),
    ),
    "product of probabilities": HalfModel(
        x=_half(3, 8, size=0.5, middle=-11),
        nodes=(("Sigmoid", "x", "p"), ("Mul", "p p", "both"), ("Log", "both", "y")),
        weights={},
        guilty="both",
        sensitive=("p", "both", "y"),
    ),
    "third power": HalfModel(
        x=_half(3, 8, size=20, middle=60),
        nodes=(("Pow", "x c", "cube"), ("Mul", "cube s", "y")),
        weights={"c": _number(3), "s": _number(1e-4)},
        guilty="cube",
        sensitive=("cube", "y"),
    ),
    "variance of large values": HalfModel(
        x=_half(4, 64, size=2, middle=100),
        nodes=(
            ("Mul", "x x", "squares"),
            ("ReduceMean", "squares", "mean_square"),
            ("ReduceMean", "x", "mean"),
            ("Mul", "mean mean", "square_mean"),
            ("Sub", "mean_square square_mean", "variance"),
            ("Sqrt", "variance", "y"),
        ),
        weights={},
        guilty="variance",
        sensitive=("squares", "mean_square", "mean", "square_mean", "variance"),
    ),
    "wide layer": HalfModel(
        x=_half(4, 64, size=50),
        nodes=(("MatMul", "x w", "hidden"), ("Mul", "hidden c", "small"), ("Tanh", "small", "y")),
        weights={"w": _half(64, 16, size=200), "c": _number(1e-5)},
        guilty="hidden",
        sensitive=("hidden", "small"),
    ),
    "distance of coordinates": HalfModel(
        x=_half(5, 2, size=600),
        nodes=(
            ("Sub", "x c", "apart"),
            ("Mul", "apart apart", "squares"),
            ("ReduceSum", "squares axes", "total"),
            ("Sqrt", "total", "y"),
        ),
        weights={"c": _number(-50), "axes": LAST},
        guilty="squares",
        sensitive=("squares", "total", "y"),
    ),
}
