"""The conformance kit passes honest backends and names what a misbehaving one does wrong."""

from pathlib import Path

import numpy as np
import pytest

from onnxproof import runtimes, testing
from onnxproof.errors import BackendError, Refused, UsageError
from onnxproof.runtimes import open_session
from onnxproof.testing import _models


@pytest.mark.parametrize("backend", ["ort", "ort:disabled", "ort:basic", "reference"])
def test_our_backends_pass(backend: str, tmp_path: Path) -> None:
    assert testing.conformance(backend, tmp_path) == []


def test_an_honest_fake_passes(tmp_path: Path) -> None:
    with testing.fake_backend("fake"):
        assert testing.conformance("fake", tmp_path, raises=True) == []


@pytest.mark.parametrize(
    ("run", "named"),
    [
        (testing.adds_noise(1e-3), "values: the values are off by"),
        (testing.stale(), "fresh-answers: input 2 on one session: the values are off by"),
        (testing.raising(), "values: raised RuntimeError: the fake raises"),
        (
            testing.raising(),
            "refuses-bad-inputs: an input of the wrong rank: RuntimeError instead of Refused",
        ),
        (testing.flattens(), "values: the output has the shape [15] instead of [5, 3]"),
        (testing.broadcasts(), "values: the output has the shape [1, 3] instead of [5, 3]"),
        (testing.drops_nan(), "nan-and-inf: NaN was lost or made"),
        (testing.swaps_outputs(), "output-order: output `sum`: the values are off by"),
        (testing.narrows(), "dtypes: float64: the output is float32 instead of float64"),
        (testing.narrows(), "dtypes: int64: the values are wrong"),
        (testing.spoils_inputs(), "inputs-untouched: the caller's input was written to"),
        (
            lambda session, inputs: session.run(
                {k: v.astype(np.float32) if v.dtype == np.int64 else v for k, v in inputs.items()}
            ),
            "refuses-bad-inputs: an input of the wrong dtype was not refused",
        ),
        (lambda session, inputs: session.run(inputs)[:1], "output-order: 1 outputs instead of 3"),
    ],
)
def test_a_misbehaviour_is_named(run: testing.Run, named: str, tmp_path: Path) -> None:
    with testing.fake_backend("fake", run):
        failed = testing.conformance("fake", tmp_path)
    assert [words for words in failed if words.startswith(named)], failed


@pytest.mark.parametrize(
    ("run", "only"),
    [
        (testing.stale(), {"fresh-answers"}),
        (testing.drops_nan(), {"nan-and-inf"}),
        (testing.swaps_outputs(), {"output-order", "inner-values"}),
        (testing.narrows(), {"dtypes"}),
        (testing.spoils_inputs(), {"inputs-untouched"}),
    ],
)
def test_a_single_misbehaviour_fails_its_own_check_alone(
    run: testing.Run, only: set[str], tmp_path: Path
) -> None:
    with testing.fake_backend("fake", run):
        assert {words.partition(":")[0] for words in testing.conformance("fake", tmp_path)} == only


def test_on_request_a_failure_raises_with_every_check(tmp_path: Path) -> None:
    with (
        testing.fake_backend("fake", testing.drops_nan()),
        pytest.raises(BackendError, match=r"the backend `fake` fails 1 checks[\s\S]*nan-and-inf"),
    ):
        testing.conformance("fake", tmp_path, raises=True)


def test_a_fake_is_gone_afterwards_and_the_one_before_is_back() -> None:
    with testing.fake_backend("ort", testing.raising()):
        with testing.fake_backend("ort", inner="reference"):
            assert runtimes.load("ort").describe().about == "a fake in front of reference"
        assert runtimes.load("ort:basic").describe().about == "a fake in front of ort"
    assert runtimes.load("ort").describe().about.startswith("ONNX Runtime")
    with pytest.raises(UsageError, match="no backend `fake`"):
        runtimes.load("fake")


def test_a_fake_can_answer_by_itself(tmp_path: Path) -> None:
    path, _ = _models.linear_model(tmp_path)
    with testing.fake_backend("seven", lambda session, inputs: [np.full((1, 3), 7, np.float32)]):
        assert open_session("seven", path).run({})[0].tolist() == [[7.0, 7.0, 7.0]]  # type: ignore[union-attr]
    with (
        testing.fake_backend("no", testing.raising(Refused("refused", "not this one"))),
        pytest.raises(Refused, match="not this one"),
    ):
        open_session("no", path).run({})
