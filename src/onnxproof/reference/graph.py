"""The oracle of an ONNX file: another model is measured against what this one says."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from onnxproof.errors import Crashed, InputError, ModelError, Refused
from onnxproof.inputs.inference import lookups
from onnxproof.inputs.space import as_dtype
from onnxproof.numerics.measure import is_float
from onnxproof.onnxmodel import onnx_file
from onnxproof.reference.pairing import Leaf
from onnxproof.reference.protocol import ulp_moved
from onnxproof.results import NoiseKind
from onnxproof.runtimes import Session, ort, reference
from onnxproof.runtimes.session.execution import Clock
from onnxproof.system import temporary

Array = np.ndarray[Any, Any]
_LEVELS = ("disabled", "basic", "extended")
_ABORT_ON_NOTHING = frozenset({"LSTM", "GRU", "RNN"})
"""ONNX Runtime 1.31 ends the whole process when these get an empty batch."""
_VARIANTS, _MOVED_AT_MOST = 2, 1 << 28
"""Copies of a file with moved weights, and the bytes of the largest that is copied."""
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
TRUTH_LIMIT_S = 10.0
"""A float64 evaluation that takes longer is given up: the noise then comes from re-runs."""


class GraphOracle:
    """Runs the file on ONNX Runtime, in float64 by the standard's evaluator, and again at other optimisation levels."""

    def __init__(self, path: Path, example: Any, clock: Clock) -> None:
        self._path, self._clock = Path(path), clock
        self._file = onnx_file.read(self._path)
        onnx_file.require_tensors(self._file)
        self._session = ort.open(self._path)
        self._example = (
            _given(self._file, example)
            if example is not None and len(example)
            else _made(self._file)
        )
        self._truth: reference.ReferenceSession | None = None
        self._others: dict[str, Session] = {}
        self.kind = NoiseKind.GRAPH
        self.tree: Any = None

    @property
    def path(self) -> Path:
        """The file, for whoever locates."""
        return self._path

    def example(self) -> dict[str, Array]:
        """The given inputs, or inputs that fit the file."""
        return {name: array.copy() for name, array in self._example.items()}

    def leaves(self, inputs: Mapping[str, Array]) -> tuple[list[Leaf], list[Leaf]]:
        """Inputs and outputs by the file's own names."""
        outputs = self.run(inputs)
        ins = [Leaf(name=n, dtype=str(a.dtype), shape=a.shape) for n, a in inputs.items()]
        return ins, [
            Leaf(name=n, dtype=str(a.dtype), shape=a.shape)
            for n, a in zip(self._session.output_names, outputs, strict=True)
        ]

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        """The file as it is served; not on inputs that would end this process."""
        if self._file.op_types & _ABORT_ON_NOTHING and any(
            array.size == 0 for array in inputs.values()
        ):
            raise Refused(
                "runtime-refused",
                "onnxruntime's recurrent kernels abort on empty inputs",
                where="ort",
            )
        with self._clock.forward("ort-reference"):
            return _known(self._session.run(inputs))

    def truth(self, inputs: Mapping[str, Array]) -> list[Array] | None:
        """The graph in float64; None once the evaluator lacks an operator or takes too long."""
        if self.kind is NoiseKind.PERTURBED:
            return None
        try:
            with self._clock.forward("reference64"):
                if self._truth is None:
                    self._truth = reference.open(self._path, "float64")
                    self._truth.limit_s = TRUTH_LIMIT_S
                return _known(self._truth.run(inputs))
        except (Refused, ModelError):
            self.kind, self._truth = NoiseKind.PERTURBED, None
            return None

    def rerun(
        self, inputs: Mapping[str, Array], seed: int, *, amplitude: float = 1.0, move: bool = False
    ) -> list[Array]:
        """The file at another optimisation level, whose kernels round in another order; `move` also moves the inputs, or else the weights."""
        session = self._at(_LEVELS[seed % len(_LEVELS)])
        if move and not any(is_float(array) for array in inputs.values()):
            session = self._weights_moved(seed % _VARIANTS) or session
        with self._clock.forward("ort-rerun"):
            return _known(session.run(ulp_moved(inputs, seed) if move else inputs))

    @property
    def draws(self) -> bool:
        """Whether a node of the graph does."""
        return bool(self._file.op_types & RANDOM)

    def again(self, inputs: Mapping[str, Array], seed: int | None = None) -> list[Array]:
        """Once more in the same session: a node that draws random numbers goes on drawing."""
        return self.run(inputs)

    def with_gradients(self, inputs: Mapping[str, Array]) -> list[Array] | None:
        """None: a graph has one mode."""
        return None

    def in_precision(self, inputs: Mapping[str, Array], dtype: str) -> list[Array] | None:
        """None: a graph is not converted, it is as it is."""
        return None

    def ties(
        self, inputs: Mapping[str, Array], rule: str, *, wide: bool = False
    ) -> list[Array] | None:
        """None: the runtime breaks ties in its own way only."""
        return None

    def parameter(self, name: str) -> Array | None:
        """None: two files are compared by what they say, not by what they hold."""
        return None

    def findings(self) -> Sequence[str]:
        """Nothing: a graph keeps no state."""
        return ()

    def _weights_moved(self, variant: int) -> Session | None:
        """The file with every float weight moved by a unit in the last place, for inputs of integers, which can't be; None for large ones."""
        label = f"weights-{variant}"
        if label not in self._others:
            model = onnx.load(self._path)
            if model.ByteSize() > _MOVED_AT_MOST:
                return None
            weights = {
                tensor.name: onnx.numpy_helper.to_array(tensor)
                for tensor in model.graph.initializer
                if tensor.data_type in _FLOATS
            }
            moved = ulp_moved(weights, variant)
            for tensor in model.graph.initializer:
                if tensor.name in moved:
                    tensor.CopyFrom(onnx.numpy_helper.from_array(moved[tensor.name], tensor.name))
            with temporary.Folder() as folder:
                onnx.save(model, Path(folder) / "moved.onnx")
                self._others[label] = ort.open(Path(folder) / "moved.onnx")
        return self._others[label]

    def _at(self, level: str) -> Session:
        if level not in self._others:
            try:
                self._others[level] = ort.open(self._path, level)
            except (
                ModelError,
                Crashed,
            ):  # some models open only when a fusion removes what no kernel implements
                self._others[level] = self._session
        return self._others[level]


def _given(file: onnx_file.OnnxFile, example: Any) -> dict[str, Array]:
    """The user's inputs by the file's names: a dict by name, or a sequence in the file's order; arrays or tensors."""
    names = [port.name for port in file.inputs]
    if isinstance(example, Mapping):
        missing = [name for name in names if name not in example]
        unknown = [name for name in example if name not in names]
        if missing or unknown:
            raise InputError(
                "input-missing",
                f"the example has no `{missing[0]}`"
                if missing
                else f"the file has no input `{unknown[0]}`",
                where=str(file.path),
                notes=[
                    f"the file takes {', '.join(names)}",
                    f"the example has {', '.join(map(str, example))}",
                ],
            )
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
    return {name: _array(value) for name, value in zip(names, values, strict=True)}


def _array(value: Any) -> Array:
    if not hasattr(value, "detach"):
        return np.array(value)
    from onnxproof.reference.torch_session import to_numpy  # a tensor, so torch is there

    return np.array(to_numpy(value))


def example_for(path: Path) -> tuple[Array, ...]:
    """Inputs that fit a file, in its order: for a reference that comes without an example."""
    file = onnx_file.read(path)
    onnx_file.require_tensors(file)
    return tuple(_made(file).values())


def _made(file: onnx_file.OnnxFile) -> dict[str, Array]:
    """Inputs that fit the file: normal floats, ids within their tables, masks that hide nothing."""
    rng, tables = np.random.default_rng(0), lookups(file)
    return {
        port.name: _filled(port, min(tables.get(port.name, {}).values(), default=10), rng)
        for port in file.inputs
    }


def _filled(port: onnx_file.Port, rows: int, rng: np.random.Generator) -> Array:
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
    shape = tuple(_size(dim, axis) for axis, dim in enumerate(port.dims))
    if dtype.kind == "b" or (dtype.kind in "iu" and "mask" in port.name.lower()):
        return np.ones(shape, dtype)
    if dtype.kind in "iu":
        return rng.integers(0, max(1, min(rows, 10)), shape).astype(dtype)
    return as_dtype(rng.standard_normal(shape), dtype)


def _size(dim: str | int | None, axis: int) -> int:
    if isinstance(dim, int):
        return dim
    return (2 if "batch" in dim.lower() else 8) if dim else (2 if axis == 0 else 8)


def _known(outputs: Sequence[Array | None]) -> list[Array]:
    return [output for output in outputs if output is not None]
