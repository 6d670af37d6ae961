"""Calibration: statistics that merge, ranges from one pass, data that is wrong found before a model is made of it."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from onnx import TensorProto, helper, numpy_helper

from onnxproof.errors import InputError, UsageError
from onnxproof.onnxmodel.onnx_file import read
from onnxproof.quantization.calibration import batches, data_quality
from onnxproof.quantization.calibration.calibration_pass import Pass
from onnxproof.quantization.calibration.observe import observe
from onnxproof.quantization.calibration.observer import Observer
from onnxproof.quantization.calibration.ranges import (
    CALIBRATORS,
    calibrator,
    entropy,
    min_max,
    percentile,
    squared_error,
)
from onnxproof.quantization.calibration.statistics import BINS, Statistics
from onnxproof.quantization.float_graph import prepare
from onnxproof.quantization.scoring import Score
from onnxproof.quantization.trial_cache import TrialCache

FLOATS = hnp.arrays(np.float32, st.integers(1, 200), elements=st.floats(-1e6, 1e6, width=32))


def seen(*arrays: Any, axis: int | None = None) -> Statistics:
    stats = Statistics(axis=axis)
    for turn, array in enumerate(arrays):
        stats.update(np.asarray(array, np.float32), str(turn), turn)
    return stats


@given(st.lists(FLOATS, min_size=1, max_size=6), st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_merged_statistics_are_those_of_the_whole(arrays: list[Any], cut: int) -> None:
    whole, first, second = seen(*arrays), seen(*arrays[:cut]), seen(*arrays[cut:])
    first.merge(second)
    assert (first.low, first.high, first.count) == (whole.low, whole.high, whole.count)
    assert first.octaves.tolist() == whole.octaves.tolist()
    assert (
        first.histogram.counts.sum() == whole.histogram.counts.sum() == sum(a.size for a in arrays)
    )
    assert first.mean == pytest.approx(whole.mean, rel=1e-9, abs=1e-9)


@given(st.lists(FLOATS, min_size=1, max_size=6))
@settings(max_examples=60, deadline=None)
def test_a_histogram_stays_small_and_counts_every_value_in_its_place(arrays: list[Any]) -> None:
    stats = seen(*arrays)
    h = stats.histogram
    assert h.counts.size == BINS
    everything = np.concatenate(arrays).astype(np.float64)
    middle = float(np.median(everything))
    below = int(h.counts[h.centres < middle - h.width].sum())
    assert abs(below - int((everything < middle - h.width / 2).sum())) <= int(
        (np.abs(everything - middle) <= 2 * h.width).sum()
    )


def test_the_channels_extremes_are_exact() -> None:
    x = np.random.default_rng(0).standard_normal((5, 3, 7, 7)).astype(np.float32)
    stats = seen(x[:2], x[2:], axis=1)
    assert stats.channel_low is not None and stats.channel_low.tolist() == x.min((0, 2, 3)).tolist()
    assert (
        stats.channel_high is not None and stats.channel_high.tolist() == x.max((0, 2, 3)).tolist()
    )


def test_a_batch_that_is_not_finite_is_named_and_left_out() -> None:
    stats = seen([1.0, 2.0], [np.nan, 5.0], [3.0])
    assert stats.broken == "1" and (stats.low, stats.high, stats.count) == (1.0, 3.0, 3)


def test_ranges_of_a_normal_tensor() -> None:
    x = np.random.default_rng(0).standard_normal(200_000)
    stats = seen(x)
    assert min_max(stats, 256, False) == (pytest.approx(x.min()), pytest.approx(x.max()))
    low, high = percentile(stats, 256, False, 0.99)
    assert (low, high) == (
        pytest.approx(np.quantile(x, 0.005), rel=0.05),
        pytest.approx(np.quantile(x, 0.995), rel=0.05),
    )
    for clipped in (squared_error, entropy):
        low, high = clipped(stats, 256, True)
        assert high == -low and 2.5 < high <= np.abs(x).max()


def test_the_squared_error_is_the_least_of_all_ranges() -> None:
    x = np.random.default_rng(1).laplace(size=50_000).astype(np.float32)

    def cost(high: float) -> float:
        step = 2 * high / 15
        return float(np.mean((np.clip(np.rint(x / step), -8, 7) * step - x) ** 2))

    _, high = squared_error(seen(x), 16, True)
    assert cost(high) <= 1.05 * min(
        cost(other) for other in np.linspace(0.5, float(np.abs(x).max()), 200)
    )


def test_entropy_really_searches() -> None:
    x = np.concatenate([np.random.default_rng(0).standard_normal(100_000), [60.0]])
    assert entropy(seen(x), 256, False)[1] < 30 < min_max(seen(x), 256, False)[1]


def test_one_outlier_does_not_hide_the_rest() -> None:
    x = np.concatenate([np.random.default_rng(0).standard_normal(100_000), [1e5]])
    assert 2.8 < percentile(seen(x), 256, False, 0.999)[1] < 4.3  # and not 1e5


@pytest.mark.parametrize("name", list(CALIBRATORS))
def test_zero_is_always_within_the_range(name: str) -> None:
    low, high = calibrator(name)(seen(np.linspace(3, 9, 1000)), 256, False)
    assert low == 0.0 and 3 < high <= 9.001


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("average", "there is no calibrator `average`"),
        ("percentile:200", "`percentile:200` is no percentile"),
    ],
)
def test_an_unknown_calibrator_is_an_error(name: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        calibrator(name)


@pytest.fixture
def net(tmp_path: Path) -> Path:
    """A linear layer and a ReLU over an open number of rows and columns of an image."""
    weight = numpy_helper.from_array(
        np.random.default_rng(0).standard_normal((4, 3, 1, 1)).astype(np.float32), "w"
    )
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w"], ["c"], name="conv"),
            helper.make_node("Relu", ["c"], ["y"], name="relu"),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, "h", "w"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4, "h", "w"])],
        [weight],
    )
    path = tmp_path / "net.onnx"
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path
    )
    return path


def ran(net: Path, data: Any, cache: Path | None = None) -> Pass:
    return observe(
        Observer(prepare(net)), batches.split_batches(data, read(net).inputs), cache=cache
    )


def images(count: int, size: int = 5, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal((count, 3, size, size)).astype(np.float32)


def test_ragged_batches_are_one_pass(net: Path) -> None:
    found = ran(net, [{"x": images(2, 5)}, {"x": images(3, 9)}, {"x": images(1, 4)}])
    assert found.samples == 6 and set(found.merged_statistics()) == {"x", "c", "y"}
    assert found.merged_statistics()["y"].low == 0.0


def test_what_is_longer_than_a_batch_is_cut(net: Path) -> None:
    assert [
        (label, batch["x"].shape[0])
        for label, batch in batches.split_batches({"x": images(70)}, read(net).inputs)
    ] == [("data[0:32]", 32), ("data[32:64]", 32), ("data[64:70]", 6)]


def test_a_sample_with_nan_is_reported_with_its_row(net: Path) -> None:
    x = images(40)
    x[33, 0, 0, 0] = np.nan
    found = ran(net, {"x": x})
    assert found.broken == ["data[32:40] row 1: the input `x`"]
    assert math.isfinite(found.merged_statistics()["x"].high)


def test_nothing_but_nan_is_an_error(net: Path) -> None:
    with pytest.raises(InputError, match="no calibration sample could be used"):
        ran(net, {"x": images(4) * np.nan})


def test_a_pass_that_was_stopped_goes_on_and_gives_the_same(net: Path, tmp_path: Path) -> None:
    data = [{"x": images(2, seed=k)} for k in range(70)]
    cache = tmp_path / "pass.npz"
    consumed = []

    def interrupted() -> Any:
        for item in data:
            if len(consumed) == 66:
                raise KeyboardInterrupt
            consumed.append(item)
            yield item

    with pytest.raises(KeyboardInterrupt):
        ran(net, interrupted(), cache)
    again = Observer(prepare(net))
    runs = 0
    plain = again.observe_batch

    def counted(*words: Any) -> str:
        nonlocal runs
        runs += 1
        return plain(*words)

    again.observe_batch = counted  # type: ignore[method-assign]
    found = observe(again, batches.split_batches(data, read(net).inputs), cache=cache)
    whole = ran(net, data)
    assert runs == 6  # 64 batches were kept
    assert found.samples == whole.samples == 140
    assert (
        found.merged_statistics()["c"].octaves.tolist()
        == whole.merged_statistics()["c"].octaves.tolist()
    )


def test_a_cache_of_other_data_or_another_model_is_refused(net: Path, tmp_path: Path) -> None:
    cache = tmp_path / "pass.npz"
    ran(net, {"x": images(40)}, cache)
    ran(net, {"x": images(40)}, cache)
    with pytest.raises(InputError, match="made from other data"):
        ran(net, {"x": images(40, seed=1)}, cache)
    model = onnx.load(net)
    model.graph.initializer[0].CopyFrom(
        numpy_helper.from_array(np.ones((4, 3, 1, 1), np.float32), "w")
    )
    onnx.save(model, net)
    with pytest.raises(InputError, match="made from another model"):
        ran(net, {"x": images(40)}, cache)


@pytest.mark.parametrize(
    "damage",
    ["empty", "garbage", "cut", "flipped", "array missing", "field missing", "another form"],
)
def test_a_damaged_cache_is_made_again_and_told(net: Path, tmp_path: Path, damage: str) -> None:
    cache = tmp_path / "pass.npz"
    whole = ran(net, {"x": images(40)}, cache)
    kept = cache.read_bytes()
    with np.load(cache) as archive:
        arrays = {name: archive[name] for name in archive.files}
    about = json.loads(arrays["about"].tobytes())
    if damage == "array missing":
        arrays.pop(next(name for name in arrays if name.endswith(".counts")))
    elif damage == "field missing":
        arrays["about"] = np.frombuffer(
            json.dumps({k: v for k, v in about.items() if k != "samples"}).encode(), np.uint8
        )
    elif damage == "another form":
        arrays["about"] = np.frombuffer(b"[1, 2]", np.uint8)
    if damage in ("array missing", "field missing", "another form"):
        np.savez(cache, **arrays)
    else:
        middle = len(kept) // 2
        flipped = (
            kept[:middle]
            + bytes(byte ^ 255 for byte in kept[middle : middle + 64])
            + kept[middle + 64 :]
        )
        cache.write_bytes(
            {"empty": b"", "garbage": b"something else", "cut": kept[:middle], "flipped": flipped}[
                damage
            ]
        )
    again = ran(net, {"x": images(40)}, cache)
    assert (
        again.rebuilt
        and again.samples == whole.samples
        and again.merged_statistics()["c"].octaves.tolist()
        == whole.merged_statistics()["c"].octaves.tolist()
    )
    assert not ran(net, {"x": images(40)}, cache).rebuilt


@pytest.mark.parametrize(
    "line", ["3", "null", "[1, 2]", '["k", null, null]', '["k", "x", 1]', "{}", "\x00\xff"]
)
def test_a_damaged_line_of_the_journal_is_passed_over(tmp_path: Path, line: str) -> None:
    path = tmp_path / "trials.jsonl"
    path.write_bytes(
        b'["known", 30.5, null]\n' + line.encode("latin-1") + b'\n["other", 20, 0.5]\n'
    )
    assert TrialCache(path, [])._scores == {
        "known": Score(sqnr_db=30.5, agreement=None),
        "other": Score(sqnr_db=20.0, agreement=0.5),
    }


def test_what_this_run_has_tried_itself_is_not_known_from_an_earlier_one(
    net: Path, tmp_path: Path
) -> None:
    model = onnx.load(net)
    first = TrialCache(tmp_path / "trials.jsonl", [])
    for _ in range(2):
        key, known = first.look_up(model)
        first.write(key, Score(sqnr_db=30.0, agreement=None))
    assert (known, first.tried, first.recalled) == (Score(sqnr_db=30.0, agreement=None), 2, 0)
    second = TrialCache(tmp_path / "trials.jsonl", [])
    second.look_up(model)
    assert (second.tried, second.recalled) == (1, 1)


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (np.zeros((4, 5, 5, 5), np.float32), "has shape"),
        (np.zeros((4, 3, 5, 5), complex), "which takes float32"),
    ],
)
def test_data_that_does_not_fit_is_told(net: Path, x: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        ran(net, {"x": x})


def findings(net: Path, data: Any, expected: Any = None) -> dict[str, str]:
    found = ran(net, data)
    return {f.code: f.what for f in data_quality.examine(found, [], expected=expected)}


@pytest.mark.parametrize(
    ("factor", "words"),
    [
        (255.0, "255 times larger than the example inputs: was normalisation left out"),
        (1 / 255, "255 times smaller than the example inputs: was it normalised twice"),
        (40.0, "40 times larger than the example inputs: was it scaled or normalised otherwise"),
    ],
)
def test_data_of_another_scale_is_guessed_at(net: Path, factor: float, words: str) -> None:
    assert (
        words
        in findings(net, {"x": images(64) * np.float32(factor)}, {"x": images(64)})[
            "calibration-scale"
        ]
    )


def test_data_of_the_right_scale_is_not(net: Path) -> None:
    assert findings(net, {"x": images(640)}, {"x": images(64, seed=3) * 2}) == {}


def test_few_samples_zeros_and_clipping_are_found(net: Path) -> None:
    assert findings(net, {"x": images(1)})["few-samples"].startswith(
        "there is 1 calibration sample: "
    )
    assert findings(net, {"x": images(8)})["few-samples"].startswith(
        "there are 8 calibration samples: "
    )
    assert findings(net, {"x": images(20)})["few-samples"] == "there are 20 calibration samples"
    assert (
        "all zeros"
        in findings(net, {"x": images(64) * 0}, {"x": images(4)})["calibration-constant"]
    )
    shifting = [{"x": images(32, seed=k) * (8.0 if k % 5 == 4 else 1.0)} for k in range(10)]
    assert "on the rest" in findings(net, shifting)["calibration-clips"]


def test_missing_classes_are_found() -> None:
    answers = [[np.eye(10, dtype=np.float32)[np.random.default_rng(0).integers(0, 5, 64)]]]
    found = data_quality.examine(Pass(model_hash="", samples=64), answers)
    assert [f.what for f in found] == [
        "the model gives 5 of its 10 classes to no calibration sample (5, 6, 7, 8, 9)"
    ]
