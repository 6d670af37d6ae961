"""The reference is an ONNX file: another model is measured against what this one says."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from onnxproof.errors import Crashed, InputError, ModelError, Refused
from onnxproof.inputs.decisions import Decisions
from onnxproof.inputs.file_constants import bounds, small_constants
from onnxproof.inputs.inference import lookups
from onnxproof.inputs.rules import Rules
from onnxproof.inputs.space import as_dtype
from onnxproof.inputs.texts import file_texts
from onnxproof.numerics import port_values
from onnxproof.numerics.measure import is_float
from onnxproof.onnxmodel import onnx_file
from onnxproof.reference import graph_trace
from onnxproof.reference.leaf import Leaf, leaves_of
from onnxproof.reference.perturbation import move_by_ulp
from onnxproof.reference.traced_value import Fetch, TracedValue
from onnxproof.results import Finding, NoiseKind
from onnxproof.runtimes import Session, ort, reference
from onnxproof.runtimes.session.execution import Clock
from onnxproof.system import temporary

Array = np.ndarray[Any, Any]
_LEVELS = ("disabled", "basic", "extended")
_ABORT_ON_NOTHING = frozenset({"LSTM", "GRU", "RNN"})
"""ONNX Runtime 1.31 ends the whole process when these get an empty batch."""
_VARIANTS = 2
"""Copies of a file with moved weights. Not measured."""
_MOVED_AT_MOST = 1 << 28
"""Bytes of the largest file that is copied for that. Not measured: two copies of 256 MB are held in memory."""
_MOST_ELEMENTS = 1 << 26
"""Elements of an input that is made up: as many as a case may have. Not measured."""
_FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE)
RANDOM = frozenset(
    {
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
        "Multinomial",
        "Bernoulli",
        "Dropout",
    }
)
"""Operators that draw, or may."""
_ELEMENTS = 2
"""Of a sequence that is made up."""
_TEXT = "onnxproof"
"""For an input of strings where the graph knows none."""
TRUTH_LIMIT_S = 10.0
"""A float64 evaluation that takes longer is given up: the noise then comes from re-runs. Not measured."""


class GraphReference:
    """Runs the file on ONNX Runtime, in float64 by the standard's evaluator, and again at other optimisation levels."""

    def __init__(self, path: Path, example: Any, clock: Clock) -> None:
        self._path = Path(path)
        self._clock = clock
        self._file = onnx_file.read(self._path)
        onnx_file.require_comparable(self._file)
        self._session = ort.open(self._path)
        if example is not None and len(example):
            self._example = _example_by_name(self._file, example)
        else:
            self._example = generate_example(self._file)
        self._truth: reference.ReferenceSession | None = None
        self._others: dict[str, Session] = {}
        self.kind = NoiseKind.GRAPH
        self.rules = Rules()
        self.tree: Any = None

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    @property
    def session(self) -> None:
        """None: there is no module."""
        return None

    def float64_session(self) -> None:
        """None: there is no module."""
        return None

    def example(self) -> dict[str, Array]:
        """The given inputs, or inputs that fit the file."""
        return {name: array.copy() for name, array in self._example.items()}

    def leaves(self, inputs: Mapping[str, Array]) -> tuple[list[Leaf], list[Leaf]]:
        """Inputs and outputs by the file's own names."""
        outputs = self._named(self._session, inputs)
        return leaves_of(inputs.items()), leaves_of(outputs.items())

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        """The file as it is served; not on inputs that would end this process."""
        self.rules.check(inputs)
        aborts_on_empty = bool(self._file.op_types & _ABORT_ON_NOTHING)
        if aborts_on_empty and any(array.size == 0 for array in inputs.values()):
            raise Refused(
                "runtime-refused",
                "onnxruntime's recurrent kernels abort on empty inputs",
                where="ort",
            )
        with self._clock.forward("ort-reference"):
            return self._outputs(self._session, inputs)

    def truth(self, inputs: Mapping[str, Array]) -> list[Array] | None:
        """The graph in float64; None once the evaluator lacks an operator or takes too long."""
        if self.kind is NoiseKind.PERTURBED:
            return None
        try:
            with self._clock.forward("reference64"):
                if self._truth is None:
                    self._truth = reference.open(self._path, "float64")
                    self._truth.limit_s = TRUTH_LIMIT_S
                return self._outputs(self._truth, inputs)
        except (Refused, ModelError):
            self.kind = NoiseKind.PERTURBED
            self._truth = None
            return None

    def trace(self, inputs: Mapping[str, Array]) -> tuple[list[TracedValue], Fetch]:
        """Every value of the graph in float64."""
        return graph_trace.trace(self._path, inputs)

    def rerun(
        self,
        inputs: Mapping[str, Array],
        seed: int,
        *,
        amplitude: float = 1.0,
        move: bool = False,
    ) -> list[Array]:
        """The file at another optimisation level, whose kernels round in another order; `move` also moves the inputs, or else the weights."""
        session = self._session_at(_LEVELS[seed % len(_LEVELS)])
        if move and not any(is_float(array) for array in inputs.values()):
            session = self._session_with_moved_weights(seed % _VARIANTS) or session
        with self._clock.forward("ort-rerun"):
            if move:
                inputs = move_by_ulp(inputs, seed)
            return self._outputs(session, inputs)

    def _outputs(self, session: Session, inputs: Mapping[str, Array]) -> list[Array]:
        """The outputs as arrays, those of sequences and maps one by one."""
        return [port_values.encode(array) for array in self._named(session, inputs).values()]

    def _named(self, session: Session, inputs: Mapping[str, Array]) -> dict[str, Array]:
        named: dict[str, Array] = {}
        for name, value in zip(session.output_names, session.run(inputs), strict=True):
            named |= port_values.flatten(name, value)
        return named

    @property
    def draws(self) -> bool:
        """Whether a node of the graph does."""
        return bool(self._file.op_types & RANDOM)

    def run_again(self, inputs: Mapping[str, Array], seed: int | None = None) -> list[Array]:
        """Once more in the same session: a node that draws random numbers goes on drawing."""
        return self.run(inputs)

    def with_gradients(self, inputs: Mapping[str, Array]) -> list[Array] | None:
        """None: a graph has one mode."""
        return None

    def in_precision(self, inputs: Mapping[str, Array], dtype: str) -> list[Array] | None:
        """None: a graph is not converted, it is as it is."""
        return None

    def ties(
        self,
        inputs: Mapping[str, Array],
        rule: str,
        *,
        wide: bool = False,
    ) -> list[Array] | None:
        """None: the runtime breaks ties in its own way only."""
        return None

    def parameter(self, name: str) -> Array | None:
        """None: two files are compared by what they say, not by what they hold."""
        return None

    def decisions(self) -> Decisions:
        """What this graph compares with and looks up: the other file may have lost it."""
        return Decisions(
            texts=tuple(file_texts(self._file)),
            constants=(*small_constants(self._file), *bounds(self._file)),
        )

    def truth_findings(self) -> Sequence[Finding]:
        """Nothing: the evaluator says itself what it can't do."""
        return ()

    def findings(self) -> Sequence[str]:
        """Nothing: a graph keeps no state."""
        return ()

    def _session_with_moved_weights(self, variant: int) -> Session | None:
        """The file with every float weight moved by a unit in the last place, for inputs of integers, which can't be moved; None for large files."""
        label = f"weights-{variant}"
        if label not in self._others:
            model = onnx.load(self._path)
            if model.ByteSize() > _MOVED_AT_MOST:
                return None
            _move_weights(model, variant)
            with temporary.Folder() as folder:
                path = Path(folder) / "moved.onnx"
                onnx.save(model, path)
                self._others[label] = ort.open(path)
        return self._others[label]

    def _session_at(self, level: str) -> Session:
        if level not in self._others:
            try:
                self._others[level] = ort.open(self._path, level)
            except (ModelError, Crashed):
                # Some models open only when a fusion removes what no kernel implements.
                self._others[level] = self._session
        return self._others[level]


def _move_weights(model: onnx.ModelProto, seed: int) -> None:
    weights = {
        tensor.name: onnx.numpy_helper.to_array(tensor)
        for tensor in model.graph.initializer
        if tensor.data_type in _FLOATS
    }
    moved = move_by_ulp(weights, seed)
    for tensor in model.graph.initializer:
        if tensor.name in moved:
            tensor.CopyFrom(onnx.numpy_helper.from_array(moved[tensor.name], tensor.name))


def _example_by_name(file: onnx_file.OnnxFile, example: Any) -> dict[str, Array]:
    """The user's inputs by the file's names: a dict by name, or a sequence in the file's order; arrays or tensors."""
    names = [port.name for port in file.inputs]
    if isinstance(example, Mapping):
        _check_names(file, names, example)
        values = [example[name] for name in names]
    else:
        values = list(example)
    if len(values) != len(names):
        raise InputError(
            "input-count",
            f"the file takes {len(names)} inputs and the example has {len(values)}",
            where=str(file.path),
            notes=[f"the file takes {', '.join(names)}"],
        )
    arrays: dict[str, Array] = {}
    for name, value in zip(names, values, strict=True):
        parts = port_values.flatten(name, _array(value))
        arrays |= {part: array for part, array in parts.items() if not part.startswith("len(")}
    return arrays


def _check_names(
    file: onnx_file.OnnxFile,
    names: Sequence[str],
    example: Mapping[Any, Any],
) -> None:
    missing = [name for name in names if name not in example]
    unknown = [name for name in example if name not in names]
    if not missing and not unknown:
        return
    if missing:
        what = f"the example has no `{missing[0]}`"
    else:
        what = f"the file has no input `{unknown[0]}`"
    raise InputError(
        "input-missing",
        what,
        where=str(file.path),
        notes=[
            f"the file takes {', '.join(names)}",
            f"the example has {', '.join(map(str, example))}",
        ],
    )


def _array(value: Any) -> Any:
    if isinstance(value, Mapping) or (isinstance(value, list) and _holds_arrays(value)):
        return value
    if not hasattr(value, "detach"):
        return np.array(value)
    from onnxproof.reference.torch_session import to_numpy  # a tensor, so torch is there

    return np.array(to_numpy(value))


def _holds_arrays(value: list[Any]) -> bool:
    """Whether a list is a sequence of tensors or of maps, rather than the numbers of one tensor."""
    return any(isinstance(item, np.ndarray | Mapping) for item in value)


def example_for(path: Path) -> dict[str, Array]:
    """Inputs that fit a file, by name in its order: for a reference that comes without an example."""
    file = onnx_file.read(path)
    onnx_file.require_comparable(file)
    return generate_example(file)


def generate_example(file: onnx_file.OnnxFile) -> dict[str, Array]:
    """Inputs that fit the file: normal floats, ids within their tables, masks that hide nothing."""
    rng = np.random.default_rng(0)
    tables = lookups(file)
    example: dict[str, Array] = {}
    texts = file_texts(file) or [_TEXT]
    for port in file.inputs:
        rows = min(tables.get(port.name, {}).values(), default=10)
        for name in _part_names(port):
            if port.dtype == "str":
                shape = tuple(_generate_size(dim, axis) for axis, dim in enumerate(port.dims or ()))
                example[name] = rng.choice(np.array(texts, np.str_), shape)
            else:
                example[name] = _generate_input(port, rows, rng)
    return example


def _part_names(port: onnx_file.Port) -> list[str]:
    """The port itself, or some elements of a sequence; what keys a map has, nobody knows."""
    if port.kind == "sequence":
        return [f"{port.name}[{place}]" for place in range(_ELEMENTS)]
    if port.kind == "map":
        raise InputError(
            "no-example",
            f"`{port.name}` is a map, and the file does not say which keys it has",
            help="pass example inputs: a dict of keys and arrays",
        )
    return [port.name]


def _generate_input(port: onnx_file.Port, rows: int, rng: np.random.Generator) -> Array:
    if port.dims is None or port.dtype == "unknown":
        raise InputError(
            "no-example",
            f"the file does not say what shape or dtype `{port.name}` has",
            help="pass example inputs",
        )
    try:
        dtype = np.dtype(port.dtype)
    except TypeError:
        raise InputError(
            "no-example",
            f"`{port.name}` is no tensor but a {port.dtype}",
            help="pass example inputs",
        ) from None
    shape = tuple(_generate_size(dim, axis) for axis, dim in enumerate(port.dims))
    if math.prod(shape) > _MOST_ELEMENTS:
        size = "x".join(str(n) for n in shape)
        raise InputError(
            "no-example",
            f"`{port.name}` is declared as {size}: too large to be made up",
            help="pass example inputs",
        )
    if dtype.kind == "b" or (dtype.kind in "iu" and "mask" in port.name.lower()):
        return np.ones(shape, dtype)
    if dtype.kind in "iu":
        return rng.integers(0, max(1, min(rows, 10)), shape).astype(dtype)
    return as_dtype(rng.standard_normal(shape), dtype)


def _generate_size(dim: str | int | None, axis: int) -> int:
    """A fixed dim as it is; 2 for a batch (the first dim, if it has no name), 8 for any other open dim."""
    if isinstance(dim, int):
        return dim
    is_batch = "batch" in dim.lower() if dim else axis == 0
    return 2 if is_batch else 8
