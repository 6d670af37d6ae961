"""What a module compares values with is read from a run of it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from onnxproof.reference.compared_constants import ComparedConstants

X = torch.linspace(-2, 2, 12).reshape(3, 4)


@pytest.mark.parametrize(
    ("compare", "numbers"),
    [
        (lambda x: x == -999, {-999.0}),
        (lambda x: x.clamp(-1.5, 0.25), {-1.5, 0.25}),
        (lambda x: x.clamp_(min=0.125), {0.125}),
        (lambda x: torch.nn.functional.hardtanh(x, -3, 3), {-3.0, 3.0}),
        (lambda x: x > torch.tensor(0.75), {0.75}),
        (lambda x: torch.isin(x.long(), torch.tensor([4, 7])), {4.0, 7.0}),
        (lambda x: torch.bucketize(x, torch.tensor([0.5, 1.5])), {0.5, 1.5}),
    ],
)
def test_the_operands_of_comparisons_are_kept(
    compare: Callable[[Tensor], Any], numbers: set[float]
) -> None:
    plain = compare(X.clone())
    with ComparedConstants() as compared:
        assert torch.equal(compare(X.clone()), plain)
    assert numbers <= set(compared.numbers)


@pytest.mark.parametrize(
    "compute", [lambda x: x * 3 + 17, lambda x: x > x.flip(0), lambda x: x < float("inf")]
)
def test_other_numbers_and_data_are_not(compute: Callable[[Tensor], Any]) -> None:
    with ComparedConstants() as compared:
        compute(X)
    assert compared.numbers == ()
