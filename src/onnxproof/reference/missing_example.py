"""Example inputs for a model that comes without: of what the user declared, or of what an ONNX file says of its inputs."""

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from onnxproof.errors import SubjectError
from onnxproof.inputs.rules import Rule
from onnxproof.options import Input

Array = np.ndarray[Any, Any]
_ROWS = (10, 2, 1)
"""Upper ends that are tried for integers of which nothing is known: a table may have as few rows (not measured)."""
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def of_declared(module: Any, declared: Mapping[str, Input]) -> Any:
    """An example of the declared dtypes and shapes, by the names of `forward`; None where none has a shape."""
    shaped = {name: said for name, said in declared.items() if said.shape is not None}
    if not shaped:
        return None
    for rows in _ROWS:
        arrays = {name: _draw(name, said, rows) for name, said in shaped.items()}
        example = of_call(module, arrays, {})
        if _is_certain(shaped) or _accepts(module, example):
            return example
    arrays = {name: _draw(name, said, _ROWS[0]) for name, said in shaped.items()}
    return of_call(module, arrays, {})  # the refusal is told when it is called


def of_call(module: Any, arrays: Mapping[str, Array], declared: Mapping[str, Input]) -> Any:
    """Arrays as the arguments of a call: by keyword where `forward` has these names, otherwise in their order."""
    arrays = _with_declared(arrays, declared)
    parameters = _parameters(module)
    if parameters is None:
        return tuple(arrays.values())
    kinds = {parameter.kind for parameter in parameters.values()}
    names = [name for name, parameter in parameters.items() if parameter.kind in _NAMED]
    if set(arrays) <= set(names) or inspect.Parameter.VAR_KEYWORD in kinds:
        return dict(arrays)
    return tuple(arrays.values())


def check_names(module: Any, declared: Mapping[str, Input]) -> None:
    """Refuse a declared input that `forward` does not have.

    Raises:
        SubjectError: `unknown-input`.
    """
    parameters = _parameters(module)
    if parameters is None:
        return
    kinds = {parameter.kind for parameter in parameters.values()}
    if inspect.Parameter.VAR_KEYWORD in kinds or inspect.Parameter.VAR_POSITIONAL in kinds:
        return
    for name, said in declared.items():
        if said.shape is not None and name not in parameters:
            raise SubjectError(
                "unknown-input",
                f"`forward` has no parameter `{name}`",
                notes=[f"it takes {', '.join(parameters)}"],
                help="name the inputs as `forward` does",
            )


def of_file(path: Path, declared: Mapping[str, Input]) -> Any:
    """Inputs that fit a file, where something was declared about them; None where nothing was: then the file is asked later."""
    if not declared:
        return None
    from onnxproof.reference.graph import example_for

    return _with_declared(example_for(path), declared)


def _with_declared(arrays: Mapping[str, Array], declared: Mapping[str, Input]) -> dict[str, Array]:
    """The arrays, with values as they were declared; a declared shape and dtype win too."""
    changed = dict(arrays)
    for name, said in declared.items():
        if name in changed:
            known = changed[name]
            shape = known.shape if said.shape is None else said.shape
            full = Input(
                dtype=said.dtype or str(known.dtype),
                shape=shape,
                values=said.values,
                range=said.range,
                avoid=said.avoid,
                samples=said.samples,
            )
            if Rule.of(name, said) is not None or said.shape is not None:
                changed[name] = _draw(name, full, _ROWS[0])
    return changed


def _draw(name: str, said: Input, rows: int) -> Array:
    """Values of one input: by its rule, or normal floats, masks that hide nothing, and small integers."""
    import ml_dtypes  # noqa: F401 - bfloat16 and its like become known to numpy by it

    rng = np.random.default_rng([0, *name.encode()])
    shape = said.shape or ()
    try:
        dtype = np.dtype(said.dtype or "float32")
    except TypeError as why:
        raise SubjectError(
            "bad-input",
            f"`{said.dtype}` of the input `{name}` is no dtype",
            help="say float32, float16, bfloat16, int64, int32, uint8 or bool",
        ) from why
    rule = Rule.of(name, said)
    if rule is not None and rule.bounded:
        return rule.draw(shape, rng, dtype)
    if dtype.kind == "b" or (dtype.kind in "iu" and "mask" in name.lower()):
        drawn = np.ones(shape, dtype)
    elif dtype.kind in "iu":
        drawn = rng.integers(0, rows, shape).astype(dtype)
    else:
        drawn = rng.standard_normal(shape).astype(dtype)
    if rule is not None:
        return rule.fit(drawn)
    return np.asarray(drawn)


def _is_certain(declared: Mapping[str, Input]) -> bool:
    """Whether no integer was drawn of which nothing is known."""
    return all(
        np.dtype(said.dtype or "float32").kind not in "iu" or Rule.of(name, said) is not None
        for name, said in declared.items()
    )


def _accepts(module: Any, example: Any) -> bool:
    if not hasattr(module, "forward"):
        return True  # what is no module is called later, and its refusal told then
    from onnxproof.reference.subject import arguments
    from onnxproof.reference.torch_session import TorchSession

    args, kwargs = arguments(example)
    session = TorchSession(module, args, kwargs)
    try:
        session.call(session.example)
    except Exception:  # the user's own module: any refusal is an answer
        return False
    return True


def _parameters(module: Any) -> dict[str, inspect.Parameter] | None:
    """The parameters of `forward`; None where they can't be read, or there is no module."""
    forward = getattr(module, "forward", module)
    try:
        if hasattr(forward, "schema"):  # TorchScript: its Python signature says nothing
            names = [argument.name for argument in forward.schema.arguments[1:]]
            return {name: inspect.Parameter(name, _NAMED[0]) for name in names}
        return dict(inspect.signature(forward).parameters)
    except (TypeError, ValueError):
        return None
