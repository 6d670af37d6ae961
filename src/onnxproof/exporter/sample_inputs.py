"""Several cases of the plan as inputs of a file: what a choice that costs accuracy is measured on."""

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
_MOST = 10
_LOOKED_AT = 64
_GROUPS = ("ordinary", "data", "masks", "ids", "shapes", "distinct")
"""Kinds of cases that a model is served; huge values, say, leave half precision by nature and would forbid it everywhere."""
_LARGER = ("scale-10", "scale-0.1")
"""Of the other scales, those that a served input may have."""


def feeds(found: Subject, path: Path) -> list[dict[str, Array]]:
    """The example, draws of its kind, the user's data, other sizes and masks: those that the file takes, by the names of its inputs."""
    file = onnx_file.read(path)
    reference = open_reference(found, Clock())
    example = reference.example()
    merged, _ = pairing.merge(
        *reference.leaves(example), file, tree=reference.tree, dynamic_shapes=found.dynamic_shapes
    )
    data = user_data.stream(found.data, [port.name for port in merged.inputs])
    space = inference.make_space(
        merged, example, file, seed=0, domains=(), data=data, parameter=reference.parameter
    )
    session = ort.open(path, "basic")
    made: list[dict[str, Array]] = []
    try:
        for case in itertools.islice(_served(plan(space)), _LOOKED_AT):
            fed = feed(case.inputs, merged)
            if _finite(fed) and _takes(session, fed):
                made.append(fed)
            if len(made) == _MOST:
                break
    finally:
        session.close()
    return made


def _served(planned: Iterator[Case]) -> Iterator[Case]:
    return (
        case
        for case in planned
        if case.domain is None
        and case.group in _GROUPS
        and (not case.name.startswith("scale-") or case.name in _LARGER)
    )


def _finite(fed: dict[str, Array]) -> bool:
    return all(
        array.size > 0 and (array.dtype.kind != "f" or bool(np.isfinite(array).all()))
        for array in fed.values()
    )


def _takes(session: Any, fed: dict[str, Array]) -> bool:
    try:
        session.run(fed)
    except OnnxproofError:
        return False
    return True
