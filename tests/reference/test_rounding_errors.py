"""Re-runs that draw from what an earlier one measured: the same noise, and nothing exact is blurred."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from onnxproof.reference import rounding_errors
from onnxproof.reference.rounding import Jitter
from onnxproof.reference.rounding_errors import RoundingErrors

settings.register_profile("onnxproof", deadline=None, max_examples=40, derandomize=True)
settings.load_profile("onnxproof")


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def seeded(make: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return make().eval()


MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (
        lambda: nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4)),
        (8, 16),
    ),
    "convolutions": (
        lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3)),
        (2, 3, 12, 12),
    ),
    "attention": (lambda: nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), (2, 9, 16)),
    "softmax": (lambda: nn.Sequential(nn.Linear(16, 500), nn.Softmax(-1)), (200, 16)),
    "recurrent": (lambda: nn.GRU(16, 8), (7, 2, 16)),
}


def rms(module: nn.Module, x: Tensor, jitters: list[Jitter]) -> float:
    """Of the errors of re-runs against float64."""
    with torch.no_grad():
        truth = first(copy.deepcopy(module).double()(x.double()))
        errors = []
        for jitter in jitters:
            with jitter:
                errors.append((first(module(x)).double() - truth).square().mean().item())
    return float(np.sqrt(np.mean(errors)))


def first(output: Any) -> Tensor:
    return output[0] if isinstance(output, tuple) else output


@pytest.mark.parametrize("name", MODULES)
def test_further_runs_have_the_noise_of_first_ones(name: str) -> None:
    make, shape = MODULES[name]
    module, x = seeded(make), drawn(*shape)
    measured = rms(module, x, [Jitter(seed) for seed in range(12)])
    errors = RoundingErrors()
    rms(module, x, [Jitter(0, errors=errors)])
    known = rms(module, x, [Jitter(seed, errors=errors) for seed in range(1, 13)])
    assert 0.7 < known / measured < 1.4


def test_further_runs_need_no_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    module, x = seeded(MODULES["mlp"][0]), drawn(8, 16)
    errors = RoundingErrors()
    calls: list[Any] = []
    true_measure = rounding_errors.measure
    monkeypatch.setattr(
        "onnxproof.reference.rounding.measure",
        lambda *args: calls.append(args) or true_measure(*args),
    )
    with torch.no_grad(), Jitter(0, errors=errors):
        one = module(x)
    assert calls
    calls.clear()
    with torch.no_grad(), Jitter(1, errors=errors):
        other = module(x)
    assert not calls and not torch.equal(one, other)


@given(values=st.lists(st.integers(-1000, 1000), min_size=1, max_size=50))
def test_what_was_exact_stays_exact(values: list[int]) -> None:
    x = torch.tensor(values, dtype=torch.float32)
    errors = RoundingErrors()
    for seed in range(2):
        with Jitter(seed, 8.0, errors=errors):
            assert (x * 0.5).sum().item() == sum(values) / 2


def test_what_was_exact_is_measured_anew_once_the_inputs_moved() -> None:
    x = torch.arange(1.0, 9.0)
    errors = RoundingErrors()
    with Jitter(0, errors=errors):
        assert torch.equal(x * x, torch.arange(1.0, 9.0) ** 2)
    moved = torch.nextafter(x, torch.tensor(10.0))
    with Jitter(1, 64.0, errors=errors, moved=True):
        blurred = moved * moved
    assert not torch.equal(blurred, moved * moved)


def test_errors_of_moved_inputs_are_not_remembered() -> None:
    x = torch.arange(1.0, 9.0)
    errors = RoundingErrors()
    with Jitter(0, errors=errors, moved=True):
        _ = x / 3
    with Jitter(1, 8.0, errors=errors):
        assert torch.equal(x * x, torch.arange(1.0, 9.0) ** 2)


def test_another_operation_or_size_at_the_same_place_is_measured_anew() -> None:
    x = drawn(64)
    errors = RoundingErrors()
    with Jitter(0, errors=errors):
        _ = x / 3
    with Jitter(1, errors=errors):
        smaller = x[:8] / 3
        other = x.exp()
    for blurred, plain in ((smaller, x[:8].double() / 3), (other, x.double().exp())):
        relative = ((blurred - plain) / plain).abs().max().item()
        assert 0 < relative < 1e-6


def test_what_does_not_fit_is_measured_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounding_errors, "_MOST_BYTES", 64)
    x = drawn(64)
    errors = RoundingErrors()
    with Jitter(0, errors=errors):
        _ = x / 3
    assert errors.find(1, torch.ops.aten.div.Tensor, (x,), moved=False) is None
    with Jitter(1, errors=errors):
        blurred = x / 3
    relative = ((blurred - x.double() / 3) * 3 / x.double()).abs().max().item()
    assert 0 < relative < 1e-6


@pytest.mark.parametrize("count", [1, (1 << 16) - 1, 1 << 16, (1 << 16) + 1, 200_000])
def test_every_piece_of_a_tensor_is_blurred_by_its_own_errors(count: int) -> None:
    x = torch.linspace(1.0, 1000.0, count)
    with Jitter(0):
        y = x / 3
    relative = ((y.double() - x.double() / 3).abs() * 3 / x.double()).numpy()
    assert relative.max() < 1e-6
    assert (relative > 0).mean() > 0.5


def test_a_product_that_overflows_on_its_way_does_so_each_time() -> None:
    x = torch.tensor([1e30, 1e30, 1e-30, 1e-30])
    errors = RoundingErrors()
    for seed in range(2):
        with Jitter(seed, errors=errors):
            assert torch.isinf(x.prod())
