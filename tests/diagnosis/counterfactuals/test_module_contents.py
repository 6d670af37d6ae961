"""Parameters and state of a module, as the file may have them."""

from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import helper
from torch import nn

from onnxproof.diagnosis.causes import weights
from onnxproof.diagnosis.counterfactuals import misplaced_weights
from onnxproof.diagnosis.counterfactuals.module_parameters import module_parameters
from onnxproof.diagnosis.counterfactuals.module_state import (
    describe_differences,
    is_same_data,
    reset_state,
    state_differences,
)


class Counter(nn.Module):
    """A module with a counter, a cache and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = 3
        self.cache: torch.Tensor | None = torch.ones(2)
        self.items = [1, 2]
        self.register_buffer("mean", torch.full((1,), 2.0))


def test_parameters_come_transposed_and_folded() -> None:
    torch.manual_seed(0)
    layer = nn.Conv2d(2, 3, 1)
    norm = nn.BatchNorm2d(3).eval()
    norm.running_var.fill_(4.0)  # type: ignore[union-attr, operator]
    norm.running_mean.fill_(1.0)  # type: ignore[union-attr, operator]
    arrays = dict(module_parameters(nn.Sequential(layer, norm)))
    x = torch.randn(1, 2, 4, 4)
    weight = torch.tensor(arrays["0.weight folded with 1"])
    bias = torch.tensor(arrays["0.bias folded with 1"])
    folded = nn.functional.conv2d(x.double(), weight, bias)
    assert torch.allclose(folded, norm(layer(x)).double(), atol=1e-5)
    assert arrays["0.bias as a column"].shape == (3, 1, 1)


def test_a_norm_without_weights_before_a_batch_norm_is_left_out() -> None:
    module = nn.Sequential(nn.LayerNorm(3, elementwise_affine=False), nn.BatchNorm1d(3))
    assert not any("folded" in name for name, _ in module_parameters(module))


def test_the_bias_of_a_convolution_may_stand_in_another_order() -> None:
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], name="conv")
    truth = np.array([1.0, 2.0, 3.0])
    value = truth[::-1].astype(np.float32)
    constant = weights._Constant(node=node, place=2, name="b", value=value)
    bench: Any = None
    what = weights._describe(bench, constant, "conv.bias", truth, [])
    assert what == (
        "`b` of conv holds the numbers of `conv.bias` in another order",
        "weight-layout",
    )


def test_gates_are_permuted_in_weights_and_biases() -> None:
    hidden = 2
    matrix = np.arange(4 * hidden, dtype=np.float32).reshape(1, -1, 1)
    bias = np.arange(8 * hidden, dtype=np.float32).reshape(1, -1)
    node = helper.make_node("LSTM", ["x", "w", "r", "b"], ["y"], hidden_size=hidden)
    constants = [
        onnx.numpy_helper.from_array(array, name)
        for name, array in (("w", matrix), ("r", matrix), ("b", bias))
    ]
    graph = helper.make_graph([node], "g", [], [], constants)
    misplaced_weights._permute_gates(graph, output="y", order=(1, 0, 2, 3), places=(1, 2, 3))
    arrays = {t.name: onnx.numpy_helper.to_array(t) for t in graph.initializer}
    assert list(graph.node[0].input) == ["x", "y_gates_1", "y_gates_2", "y_gates_3"]
    assert arrays["y_gates_1"].reshape(-1).tolist() == [2, 3, 0, 1, 4, 5, 6, 7]
    assert arrays["y_gates_3"].reshape(-1)[8:12].tolist() == [10, 11, 8, 9]


def test_state_that_differs_is_described_with_both_values() -> None:
    other = Counter()
    other.steps = 4
    other.cache = None
    other.mean.fill_(1.5)  # type: ignore[operator, union-attr]
    assert set(describe_differences(Counter(), other)) == {
        "`steps` (4 for 3)",
        "`cache` (None for a tensor [2])",
        "`mean` (1.5 for 2)",
    }
    assert list(state_differences(Counter(), Counter())) == []


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (1, 1.0, False),
        ([1, {"a": torch.zeros(2)}], [1, {"a": torch.zeros(2)}], True),
        ([1, {"a": torch.zeros(2)}], [1, {"a": torch.ones(2)}], False),
        ({"a": 1}, {"b": 1}, False),
        (print, print, True),
    ],
)
def test_data_is_compared_inside_containers(one: Any, other: Any, same: bool) -> None:
    assert is_same_data(one, other) is same


def test_state_is_reset_by_its_kind() -> None:
    module = Counter()
    for name in ("steps", "cache", "items", "mean"):
        reset_state(module, ("", name), 0)
    assert (module.steps, module.cache, module.items) == (0, None, [])
    module = Counter()
    for name in ("steps", "cache", "mean"):
        reset_state(module, ("", name), 5)
    assert module.steps == 5
    assert module.cache is not None
    assert module.cache.tolist() == [0.0, 0.0]
    assert module.mean.tolist() == [5.0]  # type: ignore[operator, union-attr]
