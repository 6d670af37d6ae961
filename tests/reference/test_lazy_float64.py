"""A module whose weights are widened when they are read says, to the bit, what its converted copy says."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from onnxproof.reference import lazy_float64
from onnxproof.reference.float64 import TruthSession
from onnxproof.reference.lazy_float64 import Float64Weight, copy_in_float64, widen
from onnxproof.results import NoiseKind

ATTENTION = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)


class Tied(nn.Module):
    """A table that is read by rows and multiplied with, as language models tie theirs."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(30, 16)
        self.head = nn.Linear(16, 30, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.table(ids).tanh())


class AsksForItsDtype(nn.Module):
    """Masks with the smallest number of its weight's dtype, and returns the weight too."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, 16))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        least = torch.full((), torch.finfo(self.weight.dtype).min, dtype=self.weight.dtype)
        some = self.weight[2:9, ::2].sum(0, keepdim=True).expand(3, -1)
        return x @ self.weight + (x > 3) * least, some, self.weight


class Writes(nn.Module):
    """Divides its weight by its norm, in place, as spectral norms do."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, 16))

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.weight.div_(self.weight.norm())
        return x @ self.weight


X = torch.randn(2, 5, 16)
MODULES: list[tuple[Any, Tensor]] = [
    (nn.Sequential(nn.Linear(16, 24), nn.GELU(), nn.Linear(24, 8, bias=False)), X),
    (nn.Sequential(nn.Conv1d(5, 8, 3), nn.BatchNorm1d(8), nn.ConvTranspose1d(8, 4, 3)), X),
    (nn.LSTM(16, 12, batch_first=True, bidirectional=True), X),
    (ATTENTION, X),
    (nn.MultiheadAttention(16, 4, batch_first=True), X),
    (Tied(), torch.arange(12).reshape(3, 4)),
    (AsksForItsDtype(), X),
    (parametrizations.weight_norm(nn.Linear(16, 16)), X),
    (nn.Bilinear(16, 16, 4), X),
]


@pytest.fixture
def widened_when_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lazy_float64, "SMALL", 0)
    monkeypatch.setattr(lazy_float64, "AT_ONCE", 1 << 14)


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [widen(value)]
    return [leaf for item in value or () for leaf in _tensors(item)]


@pytest.mark.parametrize(
    "index", range(len(MODULES)), ids=lambda index: type(MODULES[index][0]).__name__
)
def test_the_bits_are_those_of_a_converted_copy(index: int, widened_when_read: None) -> None:
    module, x = MODULES[index]
    module = module.eval()
    arguments = [x, x, x] if isinstance(module, nn.MultiheadAttention) else [x]
    if isinstance(module, nn.Bilinear):
        arguments = [x, x + 1]
    arguments = [a.double() if a.is_floating_point() else a for a in arguments]
    lazy = copy_in_float64(module, lazy=True)
    assert any(isinstance(parameter, Float64Weight) for parameter in lazy.parameters())
    with torch.no_grad():
        expected = _tensors(copy.deepcopy(module).double()(*arguments))
        for outputs in (lazy(*arguments), copy_in_float64(module, lazy=False)(*arguments)):
            for one, other in zip(_tensors(outputs), expected, strict=True):
                assert one.dtype == other.dtype and torch.equal(one, other)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    rows=st.integers(1, 5),
    columns=st.integers(1, 40),
    at_once=st.integers(8, 4096),
    bias=st.booleans(),
)
def test_columns_of_a_large_matrix_give_the_product(
    rows: int, columns: int, at_once: int, bias: bool
) -> None:
    layer = nn.Linear(7, columns, bias=bias)
    x = torch.randn(rows, 7).double()
    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(lazy_float64, "SMALL", 0)
        patch.setattr(lazy_float64, "AT_ONCE", 1)
        patch.setattr(lazy_float64, "_COLUMNS_AT_ONCE", at_once)
        found = copy_in_float64(layer, lazy=True)(x)
    expected = copy.deepcopy(layer).double()(x)
    torch.testing.assert_close(found, expected, rtol=1e-14, atol=1e-14)


def test_a_large_module_keeps_one_copy_of_its_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lazy_float64, "AT_ONCE", 1 << 20)
    module = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 16)).eval()
    truth = TruthSession(module, (torch.randn(2, 512),), {})
    x = np.random.default_rng(0).standard_normal((3, 512)).astype(np.float32)
    outputs = [truth.run({"input": x})[0] for _ in range(2)]
    with torch.no_grad():
        expected = copy.deepcopy(module).double()(torch.from_numpy(x).double()).numpy()
    assert all(np.array_equal(output, expected) for output in outputs)
    weight = truth.session.module[0].weight
    assert isinstance(weight, Float64Weight) and weight.dtype == torch.float64
    assert weight.stored.data_ptr() == module[0].weight.data_ptr()
    assert truth.kind is NoiseKind.DOUBLE and truth.plain


def test_a_module_that_writes_into_its_weight_gets_a_copy(widened_when_read: None) -> None:
    module = Writes()
    before = module.weight.detach().clone()
    truth = TruthSession(module, (X,), {})
    lazy = copy_in_float64(module, lazy=True)
    with pytest.raises(lazy_float64.WrittenWeight), torch.no_grad():
        lazy(X.double())
    truth.session.module = lazy
    output = truth.run({"x": X.numpy()})[0]
    with torch.no_grad():
        expected = copy.deepcopy(module).double()(X.double()).numpy()
    assert output is not None and np.array_equal(output, expected)
    assert torch.equal(module.weight, before)
