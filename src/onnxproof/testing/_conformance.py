"""The conformance kit: small models whose answers are known, and what a backend must do with each."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from onnxproof import runtimes
from onnxproof.errors import BackendError, BackendMissing, ModelError, Refused
from onnxproof.runtimes import open_session
from onnxproof.runtimes.session import inner_values
from onnxproof.testing._models import (
    ELEMENT_TYPES,
    arithmetic_model,
    batch,
    linear_model,
    write_model,
)

Array = np.ndarray[Any, Any]
Inputs = Mapping[str, Array]
Outputs = list[Array | None]


def conformance(
    backend: str,
    folder: Path,
    *,
    raises: bool = False,
) -> list[str]:
    """Every check that the backend fails, by name and in words; an empty list means that it passed.

    What not every runtime can do (a dtype besides float32, an empty tensor, a scalar, weights beside the file, inner
    values) may be refused clearly: `refusals` tells what was. Small models are written into `folder`. With `raises`, a
    failure is a BackendError.
    """
    failed = [words for words, excused in _results(backend, folder) if not excused]
    if failed and raises:
        raise BackendError(
            "nonconforming", f"the backend `{backend}` fails {len(failed)} checks", notes=failed
        )
    return failed


def refusals(backend: str, folder: Path) -> list[str]:
    """What the backend refuses clearly, and may."""
    return [words for words, excused in _results(backend, folder) if excused]


def _results(backend: str, folder: Path) -> Iterator[tuple[str, bool]]:
    """What every check has to say, and whether that is a refusal that a backend may give."""
    for name, check in _CHECKS.items():
        try:
            for words in check(backend, folder):
                yield f"{name}: {words}", words.startswith(_EXCUSED)
        except BackendMissing:
            raise
        except (Refused, ModelError) as why:
            if name in _MAY_REFUSE:
                yield f"{name}: {_EXCUSED}: {why.what}", True
            else:
                yield f"{name}: raised {type(why).__name__}: {why.what}", False
        except Exception as why:  # noqa: BLE001 a backend under test may raise anything; that is a failed check, not a failed kit
            yield f"{name}: raised {type(why).__name__}: {' '.join(str(why).split())[:200]}", False


_EXCUSED = "refused"
_MAY_REFUSE = frozenset({"empty", "scalar", "external-data", "nan-and-inf", "inner-values"})


def _difference(
    output: Array | None,
    wanted: Array,
    *,
    tolerance: float = 1e-5,
) -> str:
    """Words for how an output differs from what it should be; empty when it does not. Nothing is broadcast."""
    if output is None:
        return "the output is missing"
    if output.shape != wanted.shape:
        return f"the output has the shape {list(output.shape)} instead of {list(wanted.shape)}"
    if output.dtype != wanted.dtype:
        return f"the output is {output.dtype} instead of {wanted.dtype}"
    if wanted.dtype.kind != "f":
        if (output == wanted).all():
            return ""
        return "the values are wrong"
    if not np.array_equal(np.isnan(output), np.isnan(wanted)):
        return "NaN was lost or made"
    with np.errstate(invalid="ignore"):
        error = np.abs(output.astype(np.float64) - wanted.astype(np.float64))
        error = np.where(output == wanted, 0.0, error)
    error = np.nan_to_num(error, nan=0.0, posinf=np.inf)
    worst = float(error.max(initial=0.0))
    finite = wanted[np.isfinite(wanted)]
    scale = float(np.abs(finite).max(initial=0.0))
    if worst <= tolerance * max(1.0, scale):
        return ""
    return f"the values are off by {worst:.3g}"


def _differences(
    backend: str,
    path: Path,
    inputs: Inputs,
    wanted: Array,
) -> Iterator[str]:
    """How the first output of a fresh session differs, if it does."""
    words = _difference(_run(backend, path, inputs)[0], wanted)
    if words:
        yield words


def _run(
    backend: str,
    path: Path,
    inputs: Inputs,
) -> Outputs:
    """Run copies of the inputs in a session of their own."""
    session = open_session(backend, path)
    try:
        return session.run({name: array.copy() for name, array in inputs.items()})
    finally:
        session.close()


def _refusal(
    backend: str,
    path: Path,
    inputs: Inputs,
    what: str,
) -> Iterator[str]:
    try:
        _run(backend, path, inputs)
    except Refused:
        return
    except Exception as why:  # noqa: BLE001 anything but our own class is a failed check
        yield f"{what}: {type(why).__name__} instead of Refused"
    else:
        yield f"{what} was not refused"


def _check_describe(backend: str, folder: Path) -> Iterator[str]:
    described = runtimes.load(backend).describe()
    if described.name != runtimes.parse(backend)[0] or not described.about:
        yield f"describe() says `{described.name}`: `{described.about}`"


def _check_names(backend: str, folder: Path) -> Iterator[str]:
    session = open_session(backend, arithmetic_model(folder))
    inputs = list(session.input_names)
    outputs = list(session.output_names)
    if inputs != ["b", "a"] or outputs != ["sum", "difference", "product"]:
        yield f"inputs {inputs} and outputs {outputs} are not the file's, or not in its order"
    session.close()


def _check_order(backend: str, folder: Path) -> Iterator[str]:
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    b = np.full((2, 3), 10, np.float32)
    outputs = _run(backend, arithmetic_model(folder), {"a": a, "b": b})
    if len(outputs) != 3:
        yield f"{len(outputs)} outputs instead of 3"
        return
    wanted = {"sum": b + a, "difference": b - a, "product": b * a}
    for (name, array), output in zip(wanted.items(), outputs, strict=True):
        words = _difference(output, array)
        if words:
            yield f"output `{name}`: {words}"


def _check_values(backend: str, folder: Path) -> Iterator[str]:
    path, answer = linear_model(folder)
    yield from _differences(backend, path, {"x": batch(5)}, answer(batch(5)))


def _check_dynamic(backend: str, folder: Path) -> Iterator[str]:
    path, answer = linear_model(folder)
    session = open_session(backend, path)
    for rows in (3, 1, 7):
        x = batch(rows, rows)
        wanted = answer(x)  # before the backend may write into x
        words = _difference(session.run({"x": x})[0], wanted)
        if words:
            yield f"batch {rows}: {words}"
    session.close()


def _check_fresh(backend: str, folder: Path) -> Iterator[str]:
    path, answer = linear_model(folder)
    session = open_session(backend, path)
    for turn, seed in enumerate((1, 2, 1)):
        x = batch(3, seed)
        wanted = answer(x)  # before the backend may write into x
        words = _difference(session.run({"x": x})[0], wanted)
        if words:
            yield f"input {turn + 1} on one session: {words}"
    session.close()


def _check_untouched(backend: str, folder: Path) -> Iterator[str]:
    path = write_model(
        folder / "same.onnx",
        [helper.make_node("Identity", ["x"], ["y"])],
        {"x": ("float32", ["n", 4])},
        {"y": ("float32", ["n", 4])},
    )
    x = batch(3)
    session = open_session(backend, path)
    output = session.run({"x": x})[0]
    if not np.array_equal(x, batch(3)):
        yield "the caller's input was written to"
    if output is not None and np.shares_memory(output, x):
        yield "the output shares the memory of the input"
    session.close()


def _check_dtypes(backend: str, folder: Path) -> Iterator[str]:
    for dtype in ELEMENT_TYPES:
        path = write_model(
            folder / f"dtype-{dtype}.onnx",
            [helper.make_node("Transpose", ["x"], ["y"], perm=[1, 0])],
            {"x": (dtype, [2, 3])},
            {"y": (dtype, [3, 2])},
        )
        x = _values_of_dtype(dtype)
        try:
            output = _run(backend, path, {"x": x})[0]
            words = _difference(output, np.ascontiguousarray(x.T), tolerance=1e-15)
        except (Refused, ModelError) as why:
            if dtype != "float32":
                yield f"{_EXCUSED} {dtype}: {why.what}"
                continue
            words = f"raised {type(why).__name__}: {why.what}"
        except Exception as why:  # noqa: BLE001 one dtype that fails must not hide the others
            words = f"raised {type(why).__name__}: {' '.join(str(why).split())[:120]}"
        if words:
            yield f"{dtype}: {words}"


def _values_of_dtype(dtype: str) -> Array:
    """Values that a narrower dtype does not hold."""
    numbers = np.arange(6).reshape(2, 3)
    if dtype == "bool":
        return (numbers % 2).astype(dtype)
    if dtype == "int64":
        return numbers.astype(dtype) + 2**40  # a runtime that keeps 32 bits loses it
    if dtype == "float64":
        return numbers.astype(dtype) + 1e-12
    return numbers.astype(dtype)


def _check_empty(backend: str, folder: Path) -> Iterator[str]:
    path, answer = linear_model(folder)
    yield from _differences(backend, path, {"x": batch(0)}, answer(batch(0)))


def _check_scalar(backend: str, folder: Path) -> Iterator[str]:
    path = write_model(
        folder / "scalar.onnx",
        [helper.make_node("Add", ["x", "one"], ["y"])],
        {"x": ("float32", [])},
        {"y": ("float32", [])},
        {"one": np.array(1, np.float32)},
    )
    two = np.array(2, np.float32)
    yield from _differences(backend, path, {"x": two}, np.array(3, np.float32))


def _check_nonfinite(backend: str, folder: Path) -> Iterator[str]:
    path = write_model(
        folder / "plus.onnx",
        [helper.make_node("Add", ["x", "x"], ["y"])],
        {"x": ("float32", ["n"])},
        {"y": ("float32", ["n"])},
    )
    x = np.array([np.nan, np.inf, -np.inf, 1], np.float32)
    yield from _differences(backend, path, {"x": x}, x + x)


def _check_external(backend: str, folder: Path) -> Iterator[str]:
    path, answer = linear_model(folder, external=True)
    yield from _differences(backend, path, {"x": batch(2)}, answer(batch(2)))


def _check_refuses(backend: str, folder: Path) -> Iterator[str]:
    path, _answer = linear_model(folder)
    yield from _refusal(backend, path, {"x": batch(2)[0]}, "an input of the wrong rank")
    yield from _refusal(backend, path, {"x": batch(2)[:, :3]}, "an input of the wrong size")
    yield from _refusal(
        backend, path, {"x": batch(2).astype(np.int64)}, "an input of the wrong dtype"
    )
    yield from _refusal(backend, path, {"z": batch(2)}, "an input of the wrong name")
    yield from _refusal(backend, path, {}, "a missing input")


def _check_bad_models(backend: str, folder: Path) -> Iterator[str]:
    nowhere = [helper.make_node("NoSuchOperator", ["x"], ["y"], domain="onnxproof.nowhere")]
    unknown = write_model(
        folder / "missing-operator.onnx", nowhere, {"x": ("float32", [2])}, {"y": ("float32", [2])}
    )
    damaged = folder / "damaged.onnx"
    damaged.write_bytes(b"not a model at all")
    for path, what in (
        (unknown, "a model with an unknown operator"),
        (damaged, "a file that is no model"),
    ):
        try:
            _run(backend, path, {"x": np.ones(2, np.float32)})
        except (ModelError, Refused):  # a runtime may read the operators only when it runs
            continue
        except Exception as why:  # noqa: BLE001 see _refusal
            yield f"{what}: {type(why).__name__} instead of ModelError"
        else:
            yield f"{what} was opened"


def _check_inner(backend: str, folder: Path) -> Iterator[str]:
    path, _ = linear_model(folder)
    model = onnx.load(path)
    weight, bias = (numpy_helper.to_array(tensor) for tensor in model.graph.initializer)
    x = batch(3)
    values = inner_values.values(backend, path, {"x": x}, ["p", "s"])
    for name, wanted in (("p", x @ weight), ("s", x @ weight + bias)):
        if name not in values:
            yield f"{_EXCUSED}: the inner value `{name}` is not given"
            continue
        words = _difference(values[name], wanted)
        if words:
            yield f"`{name}`: {words}"


_CHECKS: Mapping[str, Callable[[str, Path], Iterator[str]]] = {
    "describe": _check_describe,
    "names": _check_names,
    "output-order": _check_order,
    "values": _check_values,
    "dynamic-dims": _check_dynamic,
    "fresh-answers": _check_fresh,
    "inputs-untouched": _check_untouched,
    "dtypes": _check_dtypes,
    "empty": _check_empty,
    "scalar": _check_scalar,
    "nan-and-inf": _check_nonfinite,
    "external-data": _check_external,
    "refuses-bad-inputs": _check_refuses,
    "bad-models": _check_bad_models,
    "inner-values": _check_inner,
}
