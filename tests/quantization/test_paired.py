"""A drop of the metric is accepted by its interval, never on noise; and what is done when the samples are too few to tell."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.quantized_faults import imbalanced, mlp

import onnxproof
from onnxproof.cli import main
from onnxproof.exporter import export
from onnxproof.options import Policy
from onnxproof.quantization.paired_metric import Outcome, compare_paired, interval
from onnxproof.quantization.scoring import compute_outputs
from onnxproof.reference import subject


def right_or_wrong(lost: int, won: int, same: int) -> tuple[Any, Any]:
    before = np.asarray([1.0] * lost + [0.0] * won + [1.0] * same)
    after = np.asarray([0.0] * lost + [1.0] * won + [1.0] * same)
    return before, after


@given(st.integers(0, 40), st.integers(0, 40), st.integers(2, 400))
def test_the_interval_holds_the_drop_mirrors_and_is_never_empty(
    lost: int, won: int, same: int
) -> None:
    before, after = right_or_wrong(lost, won, same)
    low, high = interval(before, after)
    assert -1 <= low < (before - after).mean() < high <= 1
    back = interval(after, before)
    assert back == pytest.approx((-high, -low), abs=1e-9)
    assert (low > 0) == (
        lost > won and (lost - won) ** 2 / (lost + won) > 1.959964**2
    )  # beyond nothing exactly when McNemar's test says so


@given(st.integers(0, 20), st.integers(0, 20), st.integers(2, 200))
def test_more_samples_of_the_same_kind_make_it_narrower(lost: int, won: int, same: int) -> None:
    widths = [
        high - low
        for low, high in (interval(*right_or_wrong(k * lost, k * won, k * same)) for k in (1, 2, 4))
    ]
    assert all(b < a for a, b in pairwise(widths))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(0.1, 0.9), min_size=2, max_size=60), st.integers(0, 2**32 - 1))
def test_scores_of_any_kind_have_an_interval_around_their_drop(
    scores: list[float], seed: int
) -> None:
    before = np.asarray(scores)
    after = np.random.default_rng(seed).permutation(before)
    low, high = interval(before, after)
    spread = before.max() - before.min()
    assert low - 1e-9 <= (before - after).mean() <= high + 1e-9
    assert (high > low) == (spread > 0)  # nothing changed is not the same as nothing can change


@pytest.mark.parametrize(
    ("lost", "won", "count"),
    [(0.0, 0.0, 300), (0.004, 0.0, 1000), (0.01, 0.01, 500), (0.05, 0.02, 200)],
)
def test_a_budget_that_does_not_hold_is_rarely_called_shown(
    lost: float, won: float, count: int
) -> None:
    rng = np.random.default_rng(0)
    wrongly = 0
    for _ in range(400):
        b, c, same = rng.multinomial(count, [lost, won, 1 - lost - won])
        wrongly += (
            compare_paired(*right_or_wrong(b, c, same)).outcome(lost - won - 1e-6) is Outcome.SHOWN
        )
    assert wrongly <= 400 * 0.05


def test_what_is_shown_what_is_not_and_how_many_samples_would() -> None:
    none = compare_paired(*right_or_wrong(0, 0, 300))
    assert none.outcome(0.005) is Outcome.NOT_SHOWN and none.outcome(0.02) is Outcome.SHOWN
    needed = none.samples_needed(0.005)
    assert (
        needed is not None
        and compare_paired(*right_or_wrong(0, 0, needed)).outcome(0.005) is Outcome.SHOWN
    )
    some = compare_paired(*right_or_wrong(5, 3, 992))
    needed = some.samples_needed(0.005)
    assert needed is not None
    assert compare_paired(
        *right_or_wrong(5 * needed // 1000, 3 * needed // 1000, 992 * needed // 1000)
    ).high == pytest.approx(0.005, rel=0.15)
    assert compare_paired(*right_or_wrong(50, 0, 950)).outcome(0.01) is Outcome.BEYOND
    assert compare_paired(*right_or_wrong(50, 0, 950)).samples_needed(0.01) is None
    assert (
        compare_paired(np.asarray([0.7]), np.asarray([0.7])).outcome(0.5) is Outcome.NOT_SHOWN
    )  # one number says nothing about noise
    assert (
        compare_paired(np.asarray([0.7]), np.asarray([0.7]), confidence=0).outcome(0.5)
        is Outcome.SHOWN
    )


# ---------------------------------------------------------------- what the verb does with it


def exported(module: Any, x: Any, path: Path) -> Path:
    torch.set_num_threads(1)
    export.write(
        subject.load(module.eval(), (torch.from_numpy(x[:2]),), dynamic_shapes=({0: "batch"},)),
        path,
    )
    return path


def data(shape: tuple[int, ...], rows: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal((rows, *shape)).astype(np.float32)


def quantized(
    source: Path, output: Path, x: Any, evaluate: Any, **budget: Any
) -> onnxproof.Quantized:
    return onnxproof.quantize(
        source,
        output,
        calibration={"x": x},
        evaluate=evaluate,
        recipes=(),
        budget=onnxproof.Budget(seconds=30, **budget),
        proof_s=1.0,
        policy=Policy(domains=()),
    )


def ranked(source: Path, x: Any) -> Any:
    model = onnx.load(source)
    return compute_outputs(model, [("x", {model.graph.input[0].name: x})])[0][0].argsort(1)


def tossed(source: Path, x: Any) -> Any:
    """The net's first or second choice in turns, from the nearest ties on: whatever rounding changes is won as often as lost."""
    model = onnx.load(source)
    scores = compute_outputs(model, [("x", {model.graph.input[0].name: x})])[0][0]
    order, ranks = scores.argsort(1), np.empty(len(x), int)
    ranks[np.argsort(np.ptp(np.sort(scores, axis=1)[:, -2:], axis=1))] = np.arange(len(x))
    return np.where(ranks % 2, order[:, -1], order[:, -2])


@pytest.fixture(scope="module")
def coin(tmp_path_factory: Any) -> tuple[Path, Any]:
    torch.manual_seed(0)
    x = data((16,), 6000)
    source = exported(mlp(), x, tmp_path_factory.mktemp("coin") / "float.onnx")
    return source, (x, tossed(source, x))


def test_a_drop_that_is_noise_is_not_accepted_on_its_estimate(
    coin: Any, tmp_path: Path, capsys: Any
) -> None:
    source, (x, _) = coin
    labels = tossed(source, x[:3000])
    result = quantized(source, tmp_path / "int8.onnx", x[:192], (x[:3000], labels), max_drop=0.004)
    assert (
        result.metric is not None and result.metric.drop <= 0.004 < result.metric.high
    )  # the estimate alone would have been taken
    assert result.outcome is Outcome.NOT_SHOWN and not result.met
    assert result.kept_float == () and result.path.is_file()  # no speed is given up on noise
    assert "they are too few to show it" in result.steps[-1].what
    np.savez(tmp_path / "eval.npz", x=x[:3000], labels=labels)
    np.savez(tmp_path / "calib.npz", x=x[:192])
    words = [
        "quantize",
        str(source),
        "-o",
        str(tmp_path / "b.onnx"),
        "--calibration",
        str(tmp_path / "calib.npz"),
        "--evaluate",
        str(tmp_path / "eval.npz"),
        "--recipe",
        "none",
        "--time",
        "10",
        "--max-drop",
        "0.4%",
    ]
    assert main(words) == 1
    told = " ".join(capsys.readouterr().out.split())
    assert "a drop of at most 0.0040 is not shown with 3000 samples: 95% interval" in told
    assert (
        f"about {result.metric.samples_needed(0.004):,} samples would show it" in told
        and "the fastest graph is written all the same" in told
    )
    assert main([*words, "--confidence", "0"]) == 0
    assert main([*words, "--confidence", "1.5"]) == 2


def test_with_enough_samples_the_same_model_is_shown(coin: Any, tmp_path: Path) -> None:
    source, (x, labels) = coin
    result = quantized(source, tmp_path / "int8.onnx", x[:192], (x, labels), max_drop=0.01)
    assert (
        result.outcome is Outcome.SHOWN
        and result.met
        and result.metric is not None
        and result.metric.high <= 0.01
    )


def test_a_real_drop_is_bought_back_with_values_in_float_and_shown(tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = data((3, 8, 8), 1200)
    source = exported(imbalanced(), x, tmp_path / "float.onnx")
    result = quantized(
        source, tmp_path / "int8.onnx", x[:192], (x, ranked(source, x)[:, -1]), max_drop=0.1
    )
    assert (
        result.outcome is Outcome.SHOWN
        and result.kept_float
        and result.metric is not None
        and result.metric.high <= 0.1
    )
    step = result.steps[-1]
    assert step.kept and step.after_db > step.before_db + 3


def test_a_drop_that_may_be_real_is_bought_back_only_where_the_samples_can_show_it(
    coin: Any, tmp_path: Path
) -> None:
    source, (x, _) = coin
    model = onnx.load(source)
    scores = np.sort(compute_outputs(model, [("x", {model.graph.input[0].name: x})])[0][0], axis=1)
    near = x[np.argsort(scores[:, -1] - scores[:, -2])][
        [*range(2), *range(-144, 0)]
    ]  # a few that rounding may turn, and many that it can't
    result = quantized(
        source, tmp_path / "int8.onnx", x[:192], (near, ranked(source, near)[:, -1]), max_drop=0.001
    )
    assert (
        result.metric is not None
        and result.metric.drop > 0.001
        and result.outcome is Outcome.NOT_SHOWN
    )
    assert (
        "show this budget for no model at all" in result.steps[-1].what and result.kept_float == ()
    )


def test_an_evaluator_of_one_number_shows_nothing_and_says_what_to_do(
    coin: Any, tmp_path: Path, capsys: Any
) -> None:
    from onnxproof.report import quantized as report
    from onnxproof.report import terminal

    source, (x, labels) = coin
    result = quantized(
        source,
        tmp_path / "int8.onnx",
        x[:192],
        lambda predict: float((predict(x[:500])[0].argmax(1) == labels[:500]).mean()),
        max_drop=0.5,
    )
    assert result.outcome is Outcome.NOT_SHOWN and not result.met
    report.show(result, terminal.console())
    assert "let the evaluator return one score for each sample" in " ".join(
        capsys.readouterr().out.split()
    )
