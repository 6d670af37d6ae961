"""The truth where float64 is easy, hard and impossible; and the noise that honest rounding may show."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from onnxproof import api
from onnxproof.numerics.measure import eps
from onnxproof.reference import subject
from onnxproof.reference.module import ModuleReference
from onnxproof.reference.naive_sums import naive_result
from onnxproof.reference.rounding import Jitter, Promote
from onnxproof.reference.ties import BreakTies
from onnxproof.results import NoiseKind, Verdict
from onnxproof.runtimes.session.execution import Clock

settings.register_profile("onnxproof", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("onnxproof")
Array = np.ndarray[Any, Any]
X = torch.randn(5, 8, generator=torch.Generator().manual_seed(0))
WEIGHT = torch.randn(8, 8, generator=torch.Generator().manual_seed(1))


def reference_of(module: nn.Module, *example: Tensor) -> ModuleReference:
    return ModuleReference(subject.load(module, example or (X,)), Clock())


class Weighted(nn.Module):
    """x @ w, with a step in between that each subclass makes in its own way."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(WEIGHT.clone())

    def step(self, y: Tensor) -> Tensor:
        return y

    def forward(self, x: Tensor) -> Tensor:
        return self.step(x @ self.weight) / 3


class CastsToFloat(Weighted):
    def step(self, y: Tensor) -> Tensor:
        return y.float()


class CastsByName(Weighted):
    def step(self, y: Tensor) -> Tensor:
        return y.to(torch.float32) + torch.zeros(8, dtype=torch.float32)


class FloatConstant(Weighted):
    def step(self, y: Tensor) -> Tensor:
        return torch.bmm(y[None], torch.eye(8, dtype=torch.float32)[None])[0]


class BuildsZeros(Weighted):
    def step(self, y: Tensor) -> Tensor:
        out = torch.zeros(y.shape, dtype=torch.float32)
        out[:, :4] = y[:, :4]
        out[:, 4:] = y[:, 4:]
        return out


class PlainAttribute(Weighted):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.eye(8)

    def step(self, y: Tensor) -> Tensor:
        return torch.matmul(y, self.table)


class Halver(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, y: Tensor) -> Tensor:
        return (y.float() * 0.5).float()


class CustomFunction(Weighted):
    def step(self, y: Tensor) -> Tensor:
        return Halver.apply(y) * 2


def wide(x: Array) -> Array:
    return x.astype(np.float64) @ WEIGHT.double().numpy() / 3


@pytest.mark.parametrize(
    "module",
    [
        Weighted(),
        nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.GELU()),
        nn.LSTM(8, 4),
        nn.LayerNorm(8),
    ],
    ids=lambda m: type(m).__name__,
)
def test_a_plain_module_is_converted(module: nn.Module) -> None:
    asked = reference_of(module)
    for _ in range(2):  # the second run is without the watch
        truth = asked.truth(asked.example())
        assert truth is not None and asked.kind is NoiseKind.DOUBLE and truth[0].dtype == np.float64
        np.testing.assert_allclose(truth[0], asked.run(asked.example())[0], atol=1e-5)


def test_the_truth_is_computed_in_float64() -> None:
    asked = reference_of(Weighted())
    for _ in range(2):
        truth = asked.truth(asked.example())
        assert truth is not None
        np.testing.assert_allclose(truth[0], wide(X.numpy()), rtol=1e-14)


@pytest.mark.parametrize(
    "module",
    [CastsToFloat, CastsByName, FloatConstant, BuildsZeros, PlainAttribute, CustomFunction],
)
def test_hard_coded_dtypes_are_promoted(module: type[Weighted]) -> None:
    """Each of these either raises in a plain `.double()` copy or rounds to float32 on the way."""
    asked = reference_of(module())
    for seed in range(2):
        inputs = {"x": torch.randn(3, 8, generator=torch.Generator().manual_seed(seed)).numpy()}
        truth = asked.truth(inputs)
        assert (
            truth is not None and asked.kind is NoiseKind.PROMOTED and truth[0].dtype == np.float64
        )
        np.testing.assert_allclose(truth[0], wide(inputs["x"]), rtol=1e-13, atol=1e-15)


def test_promotion_leaves_integers_and_the_default_dtype_alone() -> None:
    class Mixed(nn.Module):
        def forward(self, x: Tensor, ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            return x.float() * 2, ids + 1, (x > 0).to(torch.int32)

    asked = reference_of(Mixed(), X, torch.arange(3))
    truth = asked.truth(asked.example())
    assert truth is not None and [str(a.dtype) for a in truth] == ["float64", "int64", "int32"]
    assert torch.get_default_dtype() is torch.float32


def test_the_module_stays_in_its_own_precision() -> None:
    module = CastsToFloat()
    asked = reference_of(module)
    asked.truth(asked.example())
    assert (
        module.weight.dtype is torch.float32 and asked.run(asked.example())[0].dtype == np.float32
    )


def test_a_bit_view_is_not_promoted() -> None:
    """A float seen as its bits must keep its width, or the truth would be of another function."""

    class Bits(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x.float().view(torch.int32) & -65536).view(torch.float32)

    asked = reference_of(Bits())
    assert np.array_equal(
        asked.run(asked.example())[0], (X.view(torch.int32) & -65536).view(torch.float32).numpy()
    )


def test_a_float64_module_is_its_own_truth() -> None:
    asked = reference_of(Weighted().double(), X.double())
    truth = asked.truth(asked.example())
    assert truth is not None and np.array_equal(truth[0], asked.run(asked.example())[0])


def test_a_half_module_has_a_wide_truth() -> None:
    asked = reference_of(Weighted().half(), X.half())
    truth = asked.truth(asked.example())
    assert (
        truth is not None
        and truth[0].dtype == np.float64
        and asked.run(asked.example())[0].dtype == np.float16
    )
    np.testing.assert_allclose(
        truth[0], X.half().double().numpy() @ WEIGHT.half().double().numpy() / 3, rtol=1e-13
    )


# --- where float64 can't be had ------------------------------------------------------------------------------------


class RefusesDouble(Weighted):
    """As a hand-written kernel does: float32 or nothing."""

    def step(self, y: Tensor) -> Tensor:
        if y.dtype != torch.float32:
            raise RuntimeError(f"this kernel takes float32, not {y.dtype}")
        return torch.tanh(y)


class NoKernel(Weighted):
    """torch quantizes float32 only: `Quantize only works on Float Tensor, got Double`."""

    def step(self, y: Tensor) -> Tensor:
        return torch.quantize_per_tensor(y, 0.1, 0, torch.qint8).dequantize()


def tanh_file(path: Path, *, divisor: float = 3.0) -> Path:
    """tanh(x @ w) / divisor."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], name="product"),
        helper.make_node("Tanh", ["p"], ["t"], name="tanh"),
        helper.make_node("Div", ["t", "d"], ["y"], name="division"),
    ]
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 8]) for name in ("x", "y")
    ]
    weights = [
        numpy_helper.from_array(WEIGHT.numpy(), "w"),
        numpy_helper.from_array(np.array(divisor, np.float32), "d"),
    ]
    onnx.save(
        helper.make_model(
            helper.make_graph(nodes, "g", ports[:1], ports[1:], weights),
            opset_imports=[helper.make_opsetid("", 17)],
            ir_version=8,
        ),
        path,
    )
    return path


@pytest.mark.parametrize("module", [RefusesDouble, NoKernel])
def test_a_module_without_float64_says_so(module: type[Weighted]) -> None:
    asked = reference_of(module())
    assert asked.run(asked.example())[0].dtype == np.float32
    assert asked.truth(asked.example()) is None and asked.kind is NoiseKind.PERTURBED


def test_without_float64_the_noise_comes_from_reruns(tmp_path: Path) -> None:
    module = RefusesDouble
    right = api.verify(
        module(), tanh_file(tmp_path / "right.onnx"), (X,), budget_s=8, explain=False
    )
    assert right.verdict is Verdict.FAITHFUL
    assert {gap.noise_kind for gap in right.gaps if gap.compared} == {NoiseKind.PERTURBED} and min(
        gap.noise for gap in right.gaps if gap.compared
    ) > 0
    wrong = api.verify(
        module(),
        tanh_file(tmp_path / "wrong.onnx", divisor=3.0002),
        (X,),
        budget_s=8,
        explain=False,
    )
    assert (
        wrong.verdict is Verdict.DRIFT
        and wrong.worst is not None
        and wrong.worst.noise_ratio > wrong.policy.noise_limit
    )


def test_a_failure_after_successes_is_of_that_case_only() -> None:
    class Sometimes(Weighted):
        def step(self, y: Tensor) -> Tensor:
            if y.dtype is torch.float64 and y.shape[0] == 1:
                raise RuntimeError("not for one row")
            return y

    asked = reference_of(Sometimes())
    assert asked.truth({"x": X.numpy()}) is not None
    assert asked.truth({"x": X[:1].numpy()}) is None and asked.kind is NoiseKind.DOUBLE
    assert asked.truth({"x": X.numpy()}) is not None


@pytest.mark.parametrize("error", [AssertionError, KeyError, IndexError, AttributeError])
def test_whatever_a_module_raises_in_float64_is_caught(error: type[Exception]) -> None:
    class Asserts(Weighted):
        def step(self, y: Tensor) -> Tensor:
            if y.dtype is torch.float64:
                raise error("float32 only")
            return y

    asked = reference_of(Asserts())
    assert asked.truth(asked.example()) is None and asked.kind is NoiseKind.PERTURBED


# --- rounding anew -------------------------------------------------------------------------------------------------

EXACT = {
    "copy": lambda x: x.clone() * 1,
    "compare": lambda x: (x > 0.25) | (x == x.flip(0)),
    "negate and abs": lambda x: (-x).abs(),
    "choose": lambda x: torch.where(x > 0, x, x.flip(0)).amax(-1),
    "sort": lambda x: torch.sort(x, dim=-1)[0],
    "half and half": lambda x: torch.full((4,), 0.5) + torch.full((4,), 0.5),
    "powers of two": lambda x: torch.round(x * 4) * 0.25 + 2,
    "whole numbers": lambda x: torch.round(x * 9).sum(-1) + torch.round(x).mean() * 0,
    "whole products": lambda x: torch.round(x * 9) @ torch.round(x * 9).T,
    "relu": torch.relu,
    "gather": lambda x: x[torch.tensor([1, 0])],
    "round": torch.round,
}


@pytest.mark.parametrize("name", EXACT)
def test_exact_results_stay_exact(name: str) -> None:
    plain = EXACT[name](X)
    for seed in range(3):
        with Jitter(seed, 4.0):
            assert torch.equal(EXACT[name](X), plain), name


@given(values=st.lists(st.integers(-1000, 1000), min_size=1, max_size=50))
def test_sums_of_whole_numbers_stay_exact(values: list[int]) -> None:
    tensor = torch.tensor(values, dtype=torch.float32)
    with Jitter(0, 8.0):
        assert tensor.sum().item() == sum(values)


def spread(run: Any, runs: int = 16) -> tuple[Array, Array]:
    """Re-runs and the value in float64."""
    found = []
    for seed in range(runs):
        with Jitter(seed):
            found.append(run(torch.float32).double().numpy())
    return np.stack(found), run(torch.float64).numpy()


@pytest.mark.parametrize("inner", [8, 64, 1024])
def test_the_spread_of_a_product_is_of_the_size_of_its_rounding(inner: int) -> None:
    a, b = (
        torch.randn(32, inner, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1)
    )
    found, truth = spread(lambda dtype: a.to(dtype) @ b.to(dtype).T)
    noise = float(np.sqrt(((found - truth) ** 2).mean()))
    unit = float(np.abs(truth).mean()) * eps(np.dtype(np.float32)) / 2
    assert 0.3 * unit < noise < 12 * unit
    real = float(np.sqrt((((a @ b.T).double().numpy() - truth) ** 2).mean()))
    assert 0.5 * real < noise < 6 * real


def test_every_inexact_operation_is_blurred_and_each_seed_differs() -> None:
    for run in (
        torch.tanh,
        torch.exp,
        lambda x: x / 3,
        lambda x: x.mean(-1),
        lambda x: torch.softmax(x, -1),
        lambda x: x @ x.T,
    ):
        found = []
        for seed in (0, 1, 0):
            with Jitter(seed):
                found.append(run(X))
        assert not torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])
        assert torch.allclose(found[0], run(X), atol=1e-5, rtol=1e-5)


def test_a_larger_amplitude_blurs_more() -> None:
    errors = []
    for amplitude in (1.0, 8.0):
        with Jitter(0, amplitude):
            errors.append(
                float(((X @ WEIGHT).double() - X.double() @ WEIGHT.double()).abs().mean())
            )
    assert 4 < errors[1] / errors[0] < 16


def test_what_is_not_finite_stays_as_it_is() -> None:
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), 1.0])
    with Jitter(0):
        y = x / 3
    assert torch.isnan(y[0]) and y[1] == float("inf") and y[2] == -float("inf")


def test_integers_are_not_touched() -> None:
    with Jitter(0, 100.0):
        assert torch.arange(9).cumsum(0).tolist() == np.arange(9).cumsum().tolist()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_blurred_by_its_own_step(dtype: torch.dtype) -> None:
    x = X.to(dtype)
    with Jitter(0):
        y = x / 3
    assert y.dtype is dtype
    error = ((y.double() - x.double() / 3).abs() / (x.double() / 3).abs()).mean().item()
    assert 0.1 * torch.finfo(dtype).eps < error < 4 * torch.finfo(dtype).eps


def test_rewrites_are_counted() -> None:
    x = X.double()
    with Promote() as watch:
        _ = x * 2 + torch.ones(8, dtype=torch.float64)
    assert watch.rewrites == 0
    with Promote() as watch:
        y = x.float() * 2
    assert watch.rewrites > 0 and y.dtype is torch.float64


# --- the simplest honest kernel ------------------------------------------------------------------------------------


def loop_sum(values: Array) -> np.float32:
    total = np.float32(0)
    for value in values:
        total = np.float32(total + value)
    return total


ROWS = np.random.default_rng(0).standard_normal((3, 4, 37)).astype(np.float32) * 100


@pytest.mark.parametrize("keep", [True, False])
def test_plain_sums_equal_a_loop(keep: bool) -> None:
    found = naive_result("sum", {"self": torch.from_numpy(ROWS), "dim": [-1], "keepdim": keep})
    wanted = np.array([[loop_sum(row) for row in plane] for plane in ROWS])
    assert found is not None and np.array_equal(
        found.numpy(), wanted[..., None] if keep else wanted
    )


def test_plain_sums_over_other_and_several_dims() -> None:
    first = naive_result("sum", {"self": torch.from_numpy(ROWS), "dim": [1], "keepdim": False})
    assert first is not None and np.array_equal(
        first.numpy(), np.array([[loop_sum(ROWS[i, :, k]) for k in range(37)] for i in range(3)])
    )
    both = naive_result("mean", {"self": torch.from_numpy(ROWS), "dim": [1, 2], "keepdim": True})
    assert both is not None and both.shape == (3, 1, 1)
    assert np.array_equal(
        both.numpy().reshape(-1),
        np.array([np.float32(loop_sum(ROWS[i].reshape(-1)) / np.float32(148)) for i in range(3)]),
    )
    everything = naive_result("sum", {"self": torch.from_numpy(ROWS), "dim": None})
    assert (
        everything is not None
        and everything.shape == ()
        and everything.item() == loop_sum(ROWS.reshape(-1))
    )


def test_plain_cumulative_sum_equals_a_loop() -> None:
    found = naive_result("cumsum", {"self": torch.from_numpy(ROWS), "dim": -1})
    assert found is not None and np.array_equal(
        found.numpy()[..., -1], np.array([[loop_sum(row) for row in plane] for plane in ROWS])
    )


def test_plain_layer_norm_equals_a_loop() -> None:
    x = ROWS[0]
    found = naive_result(
        "native_layer_norm",
        {
            "input": torch.from_numpy(x),
            "normalized_shape": [37],
            "weight": None,
            "bias": None,
            "eps": 1e-5,
        },
    )
    for row, got in zip(x, found if found is not None else (), strict=True):
        mean = np.float32(loop_sum(row) / np.float32(37))
        centred = row - mean
        variance = np.float32(loop_sum(centred * centred) / np.float32(37))
        np.testing.assert_allclose(
            got.numpy(), centred / np.sqrt(variance + np.float32(1e-5)), rtol=3e-7
        )


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("mean", {"dim": [-1]}),
        ("var", {"dim": [-1], "correction": 1}),
        ("var", {"dim": [0, 2], "correction": 0}),
        ("std", {"dim": [-1], "correction": None}),
        ("linalg_vector_norm", {"ord": 2, "dim": [-1]}),
    ],
)
def test_plain_kernels_compute_what_torch_computes(name: str, arguments: dict[str, Any]) -> None:
    x = torch.from_numpy(ROWS)
    found = naive_result(name, {"self": x, **arguments})
    if name == "linalg_vector_norm":
        wanted = torch.linalg.vector_norm(x.double(), dim=arguments["dim"])
    else:
        options = (
            {} if arguments.get("correction") is None else {"correction": arguments["correction"]}
        )
        wanted = getattr(torch, name)(x.double(), dim=arguments["dim"], **options)
    assert found is not None and found.dtype is torch.float32
    np.testing.assert_allclose(found.double().numpy(), wanted.numpy(), rtol=1e-5, atol=1e-4)


def test_other_operations_and_dtypes_have_no_plain_kernel() -> None:
    assert (
        naive_result("mm", {"self": X}) is None
        and naive_result("sum", {"self": X.double(), "dim": None}) is None
    )
    assert naive_result("linalg_vector_norm", {"self": X, "ord": 1, "dim": [-1]}) is None


def test_a_long_mean_is_noisier_than_torch_makes_it() -> None:
    """Equal numbers: torch sums in blocks and is exact to an ulp, one accumulator is not, and neither is wrong."""
    x = torch.full((60_000,), 0.1)
    with Jitter(0):
        blurred = x.mean()
    assert abs(blurred.item() - 0.1) > 20 * abs(x.mean().item() - float(np.float32(0.1)))


def test_a_gate_that_is_written_in_place_is_blurred_like_any_other() -> None:
    x, written = torch.full((64,), -30.0), torch.full((64,), -30.0)
    with Jitter(0):
        plain, gate = x.sigmoid(), written.sigmoid_()
    assert gate is written and torch.equal(x, torch.full((64,), -30.0))
    assert all(float(t.abs().max()) > 2.0**-25 for t in (plain, gate)), (
        "runtimes compute it by a polynomial whose error is absolute"
    )


# --- ties ----------------------------------------------------------------------------------------------------------

TIED = torch.tensor([[1.0, 3.0, 3.0, 0.0], [2.0, 2.0, 2.0, 2.0], [0.0, 1.0, 2.0, 3.0]])


@pytest.mark.parametrize(
    ("rule", "argmax", "argmin", "top"),
    [
        ("first", [1, 0, 3], [3, 0, 0], [[1, 2], [0, 1], [3, 2]]),
        ("last", [2, 3, 3], [3, 3, 0], [[2, 1], [3, 2], [3, 2]]),
    ],
)
def test_ties_are_broken_by_the_rule(
    rule: str, argmax: list[int], argmin: list[int], top: list[list[int]]
) -> None:
    with BreakTies(rule) as watch:
        assert TIED.argmax(-1).tolist() == argmax and TIED.argmin(-1).tolist() == argmin
        assert TIED.max(-1).indices.tolist() == argmax and TIED.max(-1).values.tolist() == [3, 2, 3]
        values, indices = TIED.topk(2, dim=-1)
        assert indices.tolist() == top and values.tolist() == [[3, 3], [2, 2], [3, 2]]
        assert torch.sort(TIED[1]).indices.tolist() == (
            [0, 1, 2, 3] if rule == "first" else [3, 2, 1, 0]
        )
    assert watch.seen


@pytest.mark.parametrize("rule", ["first", "last"])
def test_without_ties_nothing_changes(rule: str) -> None:
    plain = (
        X.argmax(-1),
        X.argmin(0, keepdim=True),
        X.argmax(),
        X.topk(3, largest=False),
        torch.sort(X, dim=0, descending=True),
        X.min(-1),
    )
    with BreakTies(rule) as watch:
        broken = (
            X.argmax(-1),
            X.argmin(0, keepdim=True),
            X.argmax(),
            X.topk(3, largest=False),
            torch.sort(X, dim=0, descending=True),
            X.min(-1),
        )
    assert not watch.seen
    for a, b in zip(plain, broken, strict=True):
        assert (
            torch.equal(a, b)
            if isinstance(a, Tensor)
            else all(torch.equal(p, q) for p, q in zip(a, b, strict=True))
        )


def test_an_oracle_answers_by_a_rule_only_where_it_met_a_tie() -> None:
    class Best(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.argmax(-1)

    asked = reference_of(Best(), TIED)
    first, last = asked.ties({"x": TIED.numpy()}, "first"), asked.ties({"x": TIED.numpy()}, "last")
    assert (
        first is not None
        and last is not None
        and first[0].tolist() == [1, 0, 3]
        and last[0].tolist() == [2, 3, 3]
    )
    assert asked.ties({"x": X.numpy()}, "last") is None
