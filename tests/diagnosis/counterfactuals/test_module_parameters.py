"""The forms in which a module's parameters may stand in a file."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from onnxproof.diagnosis.counterfactuals.module_parameters import (
    is_same_weight,
    module_parameters,
)


def seeded_norm(size: int, **options: Any) -> nn.BatchNorm1d:
    """A norm whose statistics are far from their defaults."""
    norm = nn.BatchNorm1d(size, **options).eval()
    generator = torch.Generator().manual_seed(size)
    with torch.no_grad():
        for tensor in norm.state_dict().values():
            if tensor.is_floating_point():
                tensor.copy_(torch.rand(size, generator=generator) + 0.5)
    return norm


def test_a_parameter_is_named_and_its_other_layouts_after_it() -> None:
    layer = nn.Linear(2, 3)
    arrays = dict(module_parameters(nn.Sequential(layer)))
    assert list(arrays) == ["0.weight", "0.weight transposed", "0.bias", "0.bias as a column"]
    weight = layer.weight.detach().double().numpy()
    assert np.array_equal(arrays["0.weight transposed"], weight.T)
    assert {array.dtype for array in arrays.values()} == {np.dtype(np.float64)}


def test_integers_are_no_weights_and_buffers_are() -> None:
    module = nn.Module()
    module.register_buffer("steps", torch.tensor([1, 2]))
    module.register_buffer("table", torch.ones(2, 2, 2, dtype=torch.bfloat16))
    arrays = dict(module_parameters(module))
    assert list(arrays) == ["table"]
    assert arrays["table"].tolist() == np.ones((2, 2, 2)).tolist()


@pytest.mark.parametrize(
    ("bias", "affine"), [(True, True), (False, True), (True, False), (False, False)]
)
def test_a_folded_layer_gives_what_the_layer_and_its_norm_give(bias: bool, affine: bool) -> None:
    module = nn.Sequential(nn.Linear(4, 3, bias=bias), seeded_norm(3, affine=affine)).double()
    arrays = dict(module_parameters(module))
    x = np.random.default_rng(0).normal(size=(5, 4))
    folded = x @ arrays["0.weight folded with 1"].T + arrays["0.bias folded with 1"]
    with torch.no_grad():
        assert np.allclose(folded, module(torch.from_numpy(x)).numpy(), atol=1e-12)


def test_a_folded_transposed_convolution_gives_what_it_and_its_norm_give() -> None:
    module = nn.Sequential(nn.ConvTranspose1d(3, 3, 2), seeded_norm(3)).double()
    arrays = dict(module_parameters(module))
    x = torch.ones(1, 3, 4, dtype=torch.float64).cumsum(2)
    weight = torch.from_numpy(arrays["0.weight folded with 1"])
    bias = torch.from_numpy(arrays["0.bias folded with 1"])
    with torch.no_grad():
        folded = nn.functional.conv_transpose1d(x, weight, bias)
        assert torch.allclose(folded, module(x), atol=1e-12)


def test_a_norm_of_another_size_or_behind_another_layer_is_not_folded() -> None:
    module = nn.Sequential(nn.Linear(4, 6), nn.Unflatten(1, (3, 2)), seeded_norm(3))
    assert not any("folded" in name for name, _ in module_parameters(module))
    module = nn.Sequential(nn.Linear(4, 6), seeded_norm(3))
    assert not any("folded" in name for name, _ in module_parameters(module))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ([1.0, 100.0], [1.00009, 100.0], True),
        ([1.0, 100.0], [1.00011, 100.0], False),
        ([0.0], [0.0], True),
        ([1e-30], [0.0], False),
        ([np.nan], [1.0], False),
        ([np.nan], [np.nan], False),
    ],
)
def test_weights_are_the_same_within_the_rounding_of_their_largest(
    one: list[float], other: list[float], same: bool
) -> None:
    assert is_same_weight(np.array(one), np.array(other)) is same
