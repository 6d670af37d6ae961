"""Operators of other domains for the evaluator: Python functions from arrays to arrays.

A function is found by the operator's full name `domain::Name`, in this order: among the `OPERATORS` of the Python files that the user named
(`--ops operators.py`), and among the entry points of the group `onnxproof.operators`. It gets the inputs in order and the attributes by name.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

from onnxproof.errors import UsageError
from onnxproof.registry import points
from onnxproof.runtimes import current

ENTRY_POINTS = "onnxproof.operators"
Function = Callable[..., Any]
_files: dict[Path, Mapping[str, Function]] = {}
"""What each file of operators defines: read once."""


def find(domain: str, op_type: str) -> type[OpRun] | None:
    """The operator, or None where nobody brings it."""
    name = f"{domain}::{op_type}"
    for path in python_files():
        if path not in _files:
            _files[path] = _read(path)
        if name in _files[path]:
            return _wrap(domain, op_type, _files[path][name])
    for point in points(ENTRY_POINTS):
        if point.name == name:
            return _wrap(domain, op_type, point.load())
    return None


def python_files() -> list[Path]:
    """The Python files among the user's operators."""
    return [Path(name) for name in current().ops if name.endswith(".py")]


def _read(path: Path) -> Mapping[str, Function]:
    from onnxproof.reference.user_code import import_file

    operators = getattr(import_file(path), "OPERATORS", None)
    if not isinstance(operators, Mapping):
        raise UsageError(
            "no-operators",
            f"`{path}` defines no `OPERATORS`",
            help='write `OPERATORS = {"my.domain::MyOperator": function}`: a function from arrays to an array, or to a tuple of them',
        )
    return operators


def _wrap(domain: str, op_type: str, function: Function) -> type[OpRun]:
    """The function as the evaluator takes it."""

    def run(self: OpRun, *inputs: Any, **attributes: Any) -> tuple[Any, ...]:
        returned = function(*inputs, **attributes)
        if isinstance(returned, tuple):
            return tuple(np.asarray(value) for value in returned)
        return (np.asarray(returned),)

    return type(op_type, (OpRun,), {"op_domain": domain, "op_schema": None, "_run": run})
