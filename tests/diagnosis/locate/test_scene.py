"""The error of answers over the outputs that count, and the user's limits in locating."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxproof.diagnosis.locate import _is_right_in_float64
from onnxproof.diagnosis.locate.evaluation import Evaluation
from onnxproof.diagnosis.locate.scene import Located, Scene, name_suspects
from onnxproof.options import Policy
from onnxproof.results import Case, Gap, Location, Signature, Source, Stage, Status, Suspect


def scene(*truth: Any, **other: Any) -> Scene:
    arrays = [np.asarray(array, np.float64) for array in truth]
    nothing: Any = None
    return Scene(
        reference=nothing,
        path=Path("m.onnx"),
        file=nothing,
        signature=Signature(inputs=(), outputs=()),
        case=Case(name="c", group="ordinary", about="", inputs={}),
        backend="ort",
        truth=arrays,
        dtypes=[array.dtype for array in arrays],
        noise=1e-7,
        **other,
    )


def test_the_largest_error_counts_and_only_of_steady_outputs() -> None:
    answers = [np.array([1.0, 1.0]), np.array([2.2])]
    assert scene([1, 1], [2]).error(answers) == pytest.approx(0.1)
    assert scene([1, 1], [2], steady=(True, False)).error(answers) == 0.0


def test_answers_that_are_not_there_are_infinitely_wrong() -> None:
    assert scene([1]).error(None) == float("inf")
    assert scene([1]).error([]) == float("inf")
    assert scene([1]).error([None]) == float("inf")


def test_a_model_that_answers_with_nan_or_zeros_explains_nothing() -> None:
    nan, zero, one = np.array([np.nan]), np.array([0.0]), np.array([1.0])
    assert scene([1]).error([nan], [nan]) == float("inf")
    assert scene([1]).error([zero], [one]) == 1.0
    assert scene([1]).error([one], [zero]) == 1.0
    assert scene([1]).error([one], [one]) == 0.0


def test_the_users_bias_limit_decides_whether_the_file_is_right_in_float64() -> None:
    gap = Gap(
        case="c", group="ordinary", backend="ort", output="y", status=Status.COMPARED, bias=3.0
    )
    evaluation = Evaluation(session=None, gap=0.0, seen={}, resolution=3e-7)
    assert not _is_right_in_float64(scene([1], gap=gap), evaluation, 1e-3)
    lenient = scene([1], gap=gap, policy=Policy(bias_limit=4.0))
    assert _is_right_in_float64(lenient, evaluation, 1e-3)


def test_a_location_takes_module_and_line_of_its_first_suspect() -> None:
    source = Source(file="m.py", line=3, text="y = x")
    suspects = [
        Suspect(node="a", op_type="Add", ratio=9.0, module="block", source=source),
        Suspect(node="b", op_type="Mul", ratio=2.0),
    ]
    location = name_suspects(Location(stage=Stage.EXPORT), suspects)
    assert (location.nodes, location.module, location.source) == (("a", "b"), "block", source)
    assert name_suspects(Location(stage=Stage.EXPORT), []) == Location(stage=Stage.EXPORT)


def test_what_was_not_traced_has_no_values() -> None:
    located = Located(location=Location(stage=Stage.EXPORT))
    assert located.fetch(0) is None and located.traced_values == []
