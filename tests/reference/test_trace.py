"""What the module computes is recorded with its steps, its module and its line, and each value can be had again."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from onnxproof.numerics.sketch import sketch
from onnxproof.reference import elementary_steps
from onnxproof.reference.operations import decomposition, is_plain, is_view, op_name, tensors_in
from onnxproof.reference.trace import Recorder
from onnxproof.reference.traced_value import TracedValue, caching_fetch

aten = torch.ops.aten


def record(function: object, x: np.ndarray, wanted: tuple[int, ...] = ()) -> Recorder:
    recorder = Recorder({}, wanted)
    tensors = recorder.begin({"x": x})
    with recorder:
        function(tensors["x"])  # type: ignore[operator]
    return recorder


def test_the_inputs_come_first_and_every_operation_follows() -> None:
    recorder = record(lambda x: torch.exp(x) + 1, np.zeros((2, 3), np.float32))
    assert [value.op for value in recorder.traced] == ["input x", "exp", "add"]
    assert [value.inputs for value in recorder.traced] == [(), (0,), (1,)]
    assert recorder.traced[1].source is not None


def test_the_steps_of_an_operation_refer_to_its_result() -> None:
    recorder = record(functional.silu, np.ones((2, 9), np.float32))
    ops = [value.op for value in recorder.traced]
    whole = ops.index("silu")
    assert ops[1:whole] == ["sigmoid", "mul"]
    assert {value.outer for value in recorder.traced[1:whole]} == {whole}


def test_a_value_that_was_written_to_is_another_one() -> None:
    def write(x: torch.Tensor) -> torch.Tensor:
        y = torch.exp(x)
        view = y[0]
        y.add_(1)
        return torch.neg(view)

    recorder = record(write, np.zeros((2, 3), np.float32))
    last = recorder.traced[-1]
    assert last.op == "neg"
    assert recorder.traced[last.inputs[0]].op == "add_"


@pytest.mark.parametrize(
    ("operation", "arguments"),
    [
        (aten.gelu.default, (torch.randn(3, 4, dtype=torch.float64),)),
        (aten.silu.default, (torch.randn(3, 4, dtype=torch.float64),)),
        (aten.hardswish.default, (torch.randn(3, 4, dtype=torch.float64) * 4,)),
        (aten.softplus.default, (torch.randn(3, 4, dtype=torch.float64), 2.0)),
        (
            aten.native_layer_norm.default,
            (torch.randn(2, 5, dtype=torch.float64), [5], torch.rand(5).double(), None, 1e-5),
        ),
        (
            aten.native_group_norm.default,
            (torch.randn(2, 4, 3).double(), torch.rand(4).double(), None, 2, 4, 3, 2, 1e-5),
        ),
        (aten.var.correction, (torch.randn(3, 4, dtype=torch.float64), [1])),
        (
            aten._cdist_forward.default,
            (torch.randn(3, 4).double(), torch.randn(5, 4).double(), 2.0, None),
        ),
    ],
)
def test_the_steps_compute_what_the_operation_computes(
    operation: object, arguments: tuple[object, ...]
) -> None:
    whole = operation(*arguments)  # type: ignore[operator]
    steps = elementary_steps.STEPS[operation](*arguments)
    torch.testing.assert_close(steps, whole[0] if isinstance(whole, tuple) else whole)


def test_views_and_frequent_operations_are_not_decomposed() -> None:
    assert is_view(aten.transpose.int) and decomposition(aten.transpose.int) is None
    assert decomposition(aten.add.Tensor) is None
    assert op_name(aten.add.Tensor) == "add"


def test_plain_arguments_hold_no_tensor() -> None:
    x = torch.zeros(1)
    assert is_plain([1, 2.0, "a", None]) and not is_plain([x]) and not is_plain(object())
    assert list(tensors_in({"a": [x, (x, 1)]})) == [x, x]


def test_a_fetched_value_is_computed_once() -> None:
    calls: list[int] = []
    value = TracedValue(
        place=0,
        op="exp",
        sketch=sketch(np.zeros(3)),
        dtype="float64",
        inputs=(),
        module="",
        source=None,
    )

    def compute(place: int) -> np.ndarray:
        calls.append(place)
        return np.ones(3)

    fetch = caching_fetch([value], compute)
    assert fetch(0) is fetch(0) and calls == [0]
