"""A state as the file takes it."""

import numpy as np
import pytest

from onnxproof.onnxmodel.onnx_file import Port
from onnxproof.verification.rollout.state_layout import in_own_layout

OWN = np.ones((2, 3, 4), np.float32)


def port(*dims: int | str) -> Port:
    return Port(name="h", dtype="float32", dims=dims, kind="tensor")


@pytest.mark.parametrize(
    ("dims", "shape"),
    [
        (("batch", 3, 4), (5, 3, 4)),
        (("batch", 12), (5, 12)),
        (("batch", "length", 8), (5, 0, 8)),
        ((7, "batch", 8), (7, 5, 8)),
    ],
)
def test_fixed_dims_rows_and_no_length(dims: tuple[int | str, ...], shape: tuple[int, ...]) -> None:
    assert in_own_layout(OWN, port(*dims), 5).shape == shape


def test_a_state_that_no_machine_holds_is_left_to_the_runtime() -> None:
    assert in_own_layout(OWN, port(10**6, 10**6, 10**6), 5) is OWN
