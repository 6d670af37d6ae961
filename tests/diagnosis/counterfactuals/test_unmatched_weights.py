"""A matrix that no parameter of the module is, among others that are: the weights are tried first."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from onnxproof.diagnosis import causes
from onnxproof.diagnosis.counterfactuals.unmatched_weights import reads_unmatched_matrix

BLOCKS, HERE = 6, 3
Array = np.ndarray[Any, Any]


def flipped(weight: Array) -> Array:
    return weight * np.where(np.arange(len(weight)) == 1, -1, 1)[:, None].astype(weight.dtype)


def workbench(changed: dict[int, Any]) -> Any:
    """A net and its graph, in which some matrices are changed."""
    torch.manual_seed(0)
    module = nn.Sequential(*(nn.Linear(4, 4, bias=False) for _ in range(BLOCKS)))
    nodes, weights = [], []
    for place, layer in enumerate(module):
        value = np.ascontiguousarray(layer.weight.detach().numpy().T)
        value = changed.get(place, lambda weight: weight)(value)
        weights.append(numpy_helper.from_array(np.ascontiguousarray(value), f"w{place}"))
        names = [f"v{place}", f"w{place}"], [f"v{place + 1}"]
        nodes.append(helper.make_node("MatMul", *names, name=f"n{place}"))
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4])
        for name in ("v0", f"v{BLOCKS}")
    ]
    model: onnx.ModelProto = helper.make_model(
        helper.make_graph(nodes, "g", ports[:1], ports[1:], weights)
    )
    reference = SimpleNamespace(session=SimpleNamespace(module=module))
    return SimpleNamespace(
        model=model, suspect=model.graph.node[HERE], scene=SimpleNamespace(reference=reference)
    )


def first_cause(bench: Any) -> str:
    return next(iter(causes._in_order(bench)))


def test_a_flipped_row_at_the_located_node_puts_the_weights_first() -> None:
    bench = workbench({HERE: flipped})
    assert reads_unmatched_matrix(bench)
    assert first_cause(bench) == "weights"


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({}, id="the module's own"),
        pytest.param({HERE: np.transpose}, id="in another order"),
        pytest.param({place: lambda w: 2 * w for place in range(BLOCKS)}, id="all are folded"),
        pytest.param({HERE + 1: flipped}, id="another node's"),
    ],
)
def test_otherwise_the_cheapest_comes_first(changed: dict[int, Any]) -> None:
    bench = workbench(changed)
    assert not reads_unmatched_matrix(bench)
    assert list(causes._in_order(bench)) == list(causes.codes())


def test_a_reference_without_parameters_says_nothing() -> None:
    bench = workbench({HERE: flipped})
    bench.scene.reference.session = None
    assert first_cause(bench) != "weights"
