"""One node of a right file changed: it is named first, and the cause is proven, also where something beside it makes that hard."""

import copy
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper
from torch import Tensor, nn

import onnxproof


class NearTies(nn.Module):
    """A choice that rounding decides, beside the scores it is made from."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Linear(24, 40, bias=False)
        with torch.no_grad():
            self.words.weight[1::2] = self.words.weight[0::2] + 3e-8 * torch.randn(20, 24)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        scores = self.words(x.tanh())
        return scores.argmax(-1), scores


class Squeezed(nn.Module):
    """A product with a bias, and nothing but a squeeze before the next operation."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(12, 1)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.leaky_relu(self.score(x).squeeze(1)).softmax(0)


class Pooled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features, self.head = nn.Conv2d(3, 6, 3), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.features(x)).mean((2, 3)))


class Half(nn.Module):
    """A network in half precision: its file holds folded weights, rounded to half once more."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 4, 3),
        )
        for norm in (m for m in self.body if isinstance(m, nn.BatchNorm2d)):
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)


class Power(nn.Module):
    """An exponent that is no longer whole gives NaN for whatever is negative: any hypothesis that gives NaN would explain that."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.log((x.tanh() ** 2.0).sum(1) + 0.1)


class Tiny(nn.Module):
    """Answers that are hardly more than zero: a module that says nothing but zeros is no explanation of them."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(6, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x).sigmoid() * 1e-20 * 1e-19


def _weights(
    node: onnx.NodeProto, graph: onnx.GraphProto, place: int, change: Callable[[Any], Any]
) -> None:
    (tensor,) = [t for t in graph.initializer if t.name == node.input[place]]
    tensor.CopyFrom(
        numpy_helper.from_array(
            np.ascontiguousarray(change(numpy_helper.to_array(tensor).copy())), tensor.name
        )
    )


def _a_row_off(values: Any) -> Any:
    values[0] *= values.dtype.type(1.02)
    return values


def _scaled(node: onnx.NodeProto, graph: onnx.GraphProto) -> None:
    _weights(node, graph, 1, _a_row_off)


def _without_bias(node: onnx.NodeProto, graph: onnx.GraphProto) -> None:
    _weights(node, graph, 2, np.zeros_like)


def _exponent_off(node: onnx.NodeProto, graph: onnx.GraphProto) -> None:
    graph.initializer.append(numpy_helper.from_array(np.array(2.002, np.float32), "exponent_off"))
    node.input[1] = "exponent_off"


def _renamed(other: str) -> Callable[[onnx.NodeProto, onnx.GraphProto], None]:
    def change(node: onnx.NodeProto, graph: onnx.GraphProto) -> None:
        node.op_type = other

    return change


def _identity(node: onnx.NodeProto, graph: onnx.GraphProto) -> None:
    node.CopyFrom(helper.make_node("Identity", node.input[:1], node.output, node.name))


CASES: dict[
    str,
    tuple[
        type[nn.Module],
        tuple[int, ...],
        str,
        Callable[[onnx.NodeProto, onnx.GraphProto], None],
        set[str],
    ],
] = {
    "beside a choice that rounding decides": (
        NearTies,
        (16, 24),
        "MatMul|Gemm",
        _scaled,
        {"weights"},
    ),
    "a lost bias behind a squeeze": (Squeezed, (9, 12), "Gemm", _without_bias, {"weights"}),
    "a sum for a mean": (Pooled, (2, 3, 9, 9), "ReduceMean", _renamed("ReduceSum"), {"attribute"}),
    "in half precision": (Half, (2, 3, 12, 12), "Relu", _identity, {"clipping", "missing-op"}),
    "where all answers are NaN": (
        Power,
        (6, 12),
        "Pow",
        _exponent_off,
        {"attribute", "baked-value"},
    ),
    "where all answers are tiny": (Tiny, (6, 6), "Gemm", _scaled, {"weights"}),
}


@pytest.mark.parametrize("name", CASES)
def test_the_changed_node_is_named_and_why(tmp_path: Path, name: str) -> None:
    kind, shape, op_type, change, codes = CASES[name]
    torch.manual_seed(0)
    module, x, path = kind().eval(), torch.randn(*shape), tmp_path / "net.onnx"
    if kind is Half:
        module, x = copy.deepcopy(module).half(), x.half()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module, (x,), path, dynamo=True, dynamic_shapes=({0: "batch"},), verbose=False
        )
    model = onnx.load(path)
    node = [n for n in model.graph.node if n.op_type in op_type.split("|")][-1]
    change(node, model.graph)
    onnx.save(model, path)
    proof = onnxproof.verify(module, path, (x,), dynamic_shapes=({0: "batch"},))
    assert proof.location is not None and proof.location.nodes[0] == node.name, proof.location
    assert proof.causes[0].proven and proof.causes[0].code in codes, proof.causes
