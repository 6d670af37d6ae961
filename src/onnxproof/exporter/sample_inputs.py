"""Inputs of several cases for a file: what the accuracy of a choice is measured on."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from onnxproof.errors import OnnxproofError
from onnxproof.inputs import data_stream as user_data
from onnxproof.inputs import inference
from onnxproof.inputs.generators import plan
from onnxproof.onnxmodel import onnx_file
from onnxproof.reference import pairing
from onnxproof.reference.protocol import open_reference
from onnxproof.reference.subject import Subject
from onnxproof.results import Case
from onnxproof.runtimes import ort
from onnxproof.runtimes.session.execution import Clock, feed

Array = np.ndarray[Any, Any]
_MAX_CASES = 10
"""Cases whose inputs are taken. Not measured."""
_MAX_TRIED = 64
"""Cases of the plan that are tried. Not measured."""
_GROUPS = ("ordinary", "data", "masks", "ids", "shapes", "distinct")
"""Kinds of cases that a model is served; huge values, for example, overflow in half precision by nature and would forbid it everywhere."""
_SERVED_SCALES = ("scale-10", "scale-0.1")
"""Of the other scales, those that a served input may have."""


def collect_inputs(subject: Subject, path: Path) -> list[dict[str, Array]]:
    """The example, draws of its kind, the user's data, other sizes and masks: those that the file accepts, by the names of its inputs."""
    file = onnx_file.read(path)
    reference = open_reference(subject, Clock())
    example = reference.example()
    merged, _ = pairing.merge(
        *reference.leaves(example), file, tree=reference.tree, dynamic_shapes=subject.dynamic_shapes
    )
    data = user_data.stream(subject.data, [port.name for port in merged.inputs])
    space = inference.make_space(
        merged,
        example,
        file,
        seed=0,
        domains=(),
        data=data,
        parameter=reference.parameter,
    )
    session = ort.open(path, "basic")
    accepted: list[dict[str, Array]] = []
    try:
        for case in itertools.islice(_served_cases(plan(space)), _MAX_TRIED):
            inputs = feed(case.inputs, merged)
            if _all_finite(inputs) and _accepts(session, inputs):
                accepted.append(inputs)
            if len(accepted) == _MAX_CASES:
                break
    finally:
        session.close()
    return accepted


def _served_cases(cases: Iterator[Case]) -> Iterator[Case]:
    for case in cases:
        if case.domain is not None or case.group not in _GROUPS:
            continue
        if not case.name.startswith("scale-") or case.name in _SERVED_SCALES:
            yield case


def _all_finite(inputs: dict[str, Array]) -> bool:
    for array in inputs.values():
        if not array.size:
            return False
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            return False
    return True


def _accepts(session: Any, inputs: dict[str, Array]) -> bool:
    try:
        session.run(inputs)
    except OnnxproofError:
        return False
    return True
