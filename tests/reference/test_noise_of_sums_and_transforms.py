"""Results that torch gets right by luck have the noise of a sound kernel all the same; exact ones have none."""

from collections.abc import Callable

import pytest
import torch

from onnxproof.reference.rounding import Jitter

EPS = torch.finfo(torch.float32).eps


def spread(function: Callable[[], torch.Tensor]) -> torch.Tensor:
    """The standard deviation of 40 re-runs, by element."""
    runs = []
    for seed in range(40):
        with Jitter(seed):
            result = function()
        runs.append(torch.view_as_real(result) if result.is_complex() else result)
    return torch.stack(runs).double().std(0)


def lucky_row(width: int) -> torch.Tensor:
    """Of many rows of numbers up to 9 that is summed by torch and in order with the least error, and not exactly."""
    rows = (torch.rand(5000, width, generator=torch.Generator().manual_seed(3)) - 0.5) * 18
    truth = rows.double().sum(1)
    in_order = rows.cumsum(1)[:, -1].double()
    error = torch.maximum((rows.sum(1).double() - truth).abs(), (in_order - truth).abs())
    inexact = truth.float().double() != truth
    return rows[torch.where(inexact, error, torch.inf).argmin()]


@pytest.mark.parametrize(
    ("reduce", "count"),
    [
        (lambda x: x.sum(), 1),
        (lambda x: x.mean(), 8),
        (lambda x: torch.diag(x).trace(), 1),
        (lambda x: torch.nn.functional.adaptive_avg_pool1d(x[None, None], 1), 8),
    ],
)
def test_a_sum_that_is_right_by_luck_may_be_off_by_a_rounding_of_its_partial_sums(
    reduce: Callable[[torch.Tensor], torch.Tensor], count: int
) -> None:
    row = lucky_row(8)
    largest = float(row.cumsum(0).abs().max())
    found = float(spread(lambda: reduce(row)))
    assert 0.2 < found * count / (largest * EPS / 2) < 4


def test_a_sum_that_is_exact_by_luck_alone_is_not_taken_for_exact() -> None:
    unit = 2.0**-23
    row = torch.tensor([9.0 + 8 * unit, -9.25, 0.5 + unit, -0.375])
    assert float(row.sum()) == float(row.double().sum())
    assert float(spread(lambda: row.sum())) > EPS


def test_a_sum_of_whole_numbers_stays_exact() -> None:
    row = torch.tensor([3.0, -5.0, 7.0, 9.0, -2.0])
    assert float(spread(lambda: row.sum())) == 0.0
    assert float(spread(lambda: torch.diag(row).trace())) == 0.0


@pytest.mark.parametrize(
    "transform",
    [torch.fft.fft, torch.fft.rfft, lambda x: torch.fft.hfft(x.to(torch.complex64), n=7)],
)
def test_the_transform_of_an_impulse_is_rounded_by_its_typical_size(
    transform: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    impulse = torch.zeros(7)
    impulse[2] = 1.0
    found = float(spread(lambda: transform(impulse)).square().mean().sqrt())
    assert 0.5 < found / (EPS / 2) < 8


def test_the_transform_of_a_constant_is_not_exact() -> None:
    found = spread(lambda: torch.fft.fft(torch.ones(6)))
    assert float(found.min()) > EPS / 2


def test_a_transform_of_nothing_is_nothing() -> None:
    assert float(spread(lambda: torch.fft.fft(torch.zeros(7))).max()) == 0.0


def test_a_complex_product_is_rounded_by_its_absolute_value() -> None:
    x = torch.tensor([1.1 + 1.3j])
    y = torch.tensor([1.3000001 + 1.1j])
    real, imaginary = spread(lambda: x * y)[0].tolist()
    assert abs(float((x * y).real)) < 1e-5  # its own rounding would be a thousandth of that
    assert real > 0.3 * imaginary


def test_tanh_of_a_tiny_number_is_not_exact_and_that_of_zero_and_of_a_large_one_is() -> None:
    found = spread(lambda: torch.tanh(torch.tensor([1e-8, 0.0, 40.0])))
    assert found[0] > 0 and found[1] == 0 and found[2] == 0
