"""The reference is a function from arrays to arrays, an estimator, or a model of another framework.

1. `run`: its answer, floats in the precision that the file answers in where its own is wider.
2. `truth`: the same computed in float64, where the model can be asked for that and answers in it.
3. `rerun`: its parameters and its inputs off by a unit in the last place. Without a truth, that is all that is known of its noise.
"""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnxproof.errors import InputError
from onnxproof.inputs.decisions import Decisions
from onnxproof.inputs.rules import Rules
from onnxproof.numerics import port_values
from onnxproof.numerics.sketch import KeptArrays, sketch
from onnxproof.onnxmodel.onnx_file import OnnxFile
from onnxproof.reference import loaders, tree
from onnxproof.reference.leaf import Leaf, leaves_of
from onnxproof.reference.loaders import ArrayModel
from onnxproof.reference.perturbation import move_by_ulp
from onnxproof.reference.subject import Subject
from onnxproof.reference.traced_value import Fetch, TracedValue, caching_fetch
from onnxproof.results import Finding, NoiseKind
from onnxproof.runtimes.session.execution import Clock

Array = np.ndarray[Any, Any]


class ArrayReference:
    """Calls an array model with named arrays, and gives what it returns as named arrays."""

    def __init__(self, subject: Subject, clock: Clock, file: OnnxFile | None = None) -> None:
        loader = loaders.find(subject.module)
        assert loader is not None
        self._model = loader.open(subject.module)
        self._clock = clock
        self._file = file
        self._example = example_arrays(subject.kwargs or subject.args, _input_names(file))
        self._names: list[str] = []
        self._worked = False
        self.kind = NoiseKind.DOUBLE
        self.rules = Rules()
        self.tree: Any = dict(self._example)

    @property
    def session(self) -> None:
        """None: there is no PyTorch module."""
        return None

    def float64_session(self) -> None:
        """None: there is no PyTorch module."""
        return None

    def example(self) -> dict[str, Array]:
        """The given inputs."""
        return {name: array.copy() for name, array in self._example.items()}

    def leaves(self, inputs: Mapping[str, Array]) -> tuple[list[Leaf], list[Leaf]]:
        """Inputs and outputs by name."""
        outputs = self._answers(inputs)
        self._names = list(outputs)
        return leaves_of(inputs.items()), leaves_of(outputs.items())

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        """The model as it is."""
        self.rules.check(inputs)
        return self._in_order(self._answers(inputs))

    def truth(self, inputs: Mapping[str, Array]) -> list[Array] | None:
        """The model in float64; None once it can't be asked for that, or answers in less."""
        if self.kind is NoiseKind.PERTURBED:
            return None
        try:
            with self._clock.forward("reference64"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                answer = self._model.call_wide(inputs)
            outputs = None
            if answer is not None:
                outputs = self._in_order(self._named(answer))
        except Exception:  # the user's own code in another precision may raise anything
            outputs = None
        is_wide = outputs is not None and all(map(_is_wide, outputs))
        if not is_wide and not self._worked:
            self.kind = NoiseKind.PERTURBED
        self._worked |= is_wide
        return outputs if is_wide else None

    def trace(self, inputs: Mapping[str, Array]) -> tuple[list[TracedValue], Fetch]:
        """The values between its parts, and its answers, in float64."""
        kept = KeptArrays()
        values: list[TracedValue] = []
        arrays: list[Array] = []
        named: list[loaders.Step] = [(f"input {name}", array) for name, array in inputs.items()]
        named += self._model.steps(inputs)
        named += self._named(self._widest_answer(inputs)).items()
        for place, (name, array, *source) in enumerate(named):
            arrays.append(port_values.encode(np.asarray(array)))
            values.append(
                TracedValue(
                    place=place,
                    op=name,
                    sketch=sketch(arrays[-1], kept),
                    dtype=str(arrays[-1].dtype),
                    inputs=tuple(range(max(0, place - 1), place)),
                    module=name,
                    source=source[0] if source else None,
                )
            )
        return values, caching_fetch(values, lambda place: arrays[place])

    def _widest_answer(self, inputs: Mapping[str, Array]) -> Any:
        """In float64 where the model can be asked for that, else as it is."""
        try:
            answer = self._model.call_wide(inputs)
        except Exception:  # the user's own code in another precision may raise anything
            answer = None
        return self._model.call(inputs) if answer is None else answer

    def rerun(
        self,
        inputs: Mapping[str, Array],
        seed: int,
        *,
        amplitude: float = 1.0,
        move: bool = False,
    ) -> list[Array]:
        """The model with its parameters moved, and its inputs where they may; where neither can be, the inputs all the same."""
        model = self._model.moved(seed, amplitude)
        if move or model is None:
            inputs = move_by_ulp(inputs, seed, amplitude)
        return self._in_order(self._answers(inputs, model or self._model))

    @property
    def draws(self) -> bool:
        """Not known; it is asked twice."""
        return False

    def run_again(self, inputs: Mapping[str, Array], seed: int | None = None) -> list[Array]:
        """The same run once more."""
        return self.run(inputs)

    def with_gradients(self, inputs: Mapping[str, Array]) -> list[Array] | None:
        """None: there is one mode."""
        return None

    def in_precision(self, inputs: Mapping[str, Array], dtype: str) -> list[Array] | None:
        """None: it is not converted."""
        return None

    def ties(
        self, inputs: Mapping[str, Array], rule: str, *, wide: bool = False
    ) -> list[Array] | None:
        """None: it breaks ties in its own way only."""
        return None

    def parameter(self, name: str) -> Array | None:
        """None: its parameters have no names that a file would keep."""
        return None

    def findings(self) -> Sequence[str]:
        """Nothing is noticed."""
        return ()

    def truth_findings(self) -> Sequence[Finding]:
        """Nothing: such a model is run as it is."""
        return ()

    def decisions(self) -> Decisions:
        """Where the model decides."""
        return self._model.decisions()

    def _answers(
        self, inputs: Mapping[str, Array], model: ArrayModel | None = None
    ) -> dict[str, Array]:
        copies = {name: np.array(array) for name, array in inputs.items()}
        with self._clock.forward("reference"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            answer = (model or self._model).call(copies)
        return {name: self._narrowed(array) for name, array in self._named(answer).items()}

    def _named(self, answer: Any) -> dict[str, Array]:
        """The outputs by name, as the file has them: a vector as a column, scores as the columns of a map."""
        roots = {name or "output": value for name, value in _roots(answer)}
        ports = self._ports(list(roots))
        named: dict[str, Array] = {}
        for root, value in roots.items():
            port = ports.get(root)
            if port is not None and port.kind != "tensor":
                value = self._as_map(value)
            for name, array in port_values.flatten(root, value).items():
                named[name] = _as_column(array, port)
        return named

    def _ports(self, roots: list[str]) -> dict[str, Any]:
        """The file's output of each of ours: by name, else by position."""
        if self._file is None:
            return {}
        by_name = {port.name: port for port in self._file.outputs}
        if all(root in by_name for root in roots):
            return by_name
        return dict(zip(roots, self._file.outputs, strict=False))

    def _as_map(self, value: Any) -> Any:
        """Scores as a map from class to column, where the classes are known."""
        classes = self._model.classes()
        array = np.asarray(value) if not isinstance(value, list | tuple | dict) else None
        if array is None or array.ndim != 2 or array.shape[1] != len(classes):
            return value
        return {label: array[:, place] for place, label in enumerate(classes)}

    def _narrowed(self, array: Array) -> Array:
        """In the precision of the file where the model answers in a wider one: an estimator trained in float64 is its own truth."""
        if self._file is None or array.dtype != np.float64:
            return array
        floats = [port.dtype for port in self._file.outputs if port.dtype.startswith("float")]
        if not floats or "float64" in floats:
            return array
        if self.kind is NoiseKind.DOUBLE:
            self.kind = NoiseKind.WIDER
        with np.errstate(over="ignore"):
            return array.astype(max(floats, key=lambda name: np.dtype(name).itemsize))

    def _in_order(self, outputs: Mapping[str, Array]) -> list[Array]:
        """The outputs in the order of the example's; other ones are another answer altogether."""
        if self._names and list(outputs) != self._names:
            raise ValueError(
                f"it returns {', '.join(outputs)} here, and {', '.join(self._names)} for the example"
            )
        return [port_values.encode(array) for array in outputs.values()]


def _is_wide(array: Array) -> bool:
    return array.dtype.kind not in "fc" or array.dtype.itemsize >= 8


def _roots(answer: Any) -> list[tuple[str, Any]]:
    """What a model returns, by name: a dict's items, a tuple's by place, a data frame's columns, or the one output."""
    if hasattr(answer, "detach"):
        answer = answer.detach().cpu().numpy()
    if _is_frame(answer):
        return [(str(name), answer[name].to_numpy()) for name in answer.columns]
    if isinstance(answer, dict):
        return [(str(name), value) for name, value in answer.items()]
    if isinstance(answer, tuple):
        children = tree.children_of(answer) or ()
        return [(str(name), value) for name, value in children]
    return [("", answer)]


def _as_column(array: Array, port: Any) -> Array:
    """A vector as the column that the file gives, which holds the same numbers."""
    if port is None or array.ndim != 1 or port.dims is None or len(port.dims) != 2:
        return array
    if port.dims[1] not in (1, None):
        return array
    return array[:, None]


def _input_names(file: OnnxFile | None) -> list[str]:
    return [] if file is None else [port.name for port in file.inputs]


def example_arrays(example: Any, names: Sequence[str] = ()) -> dict[str, Array]:
    """The example by input name: a dict, a data frame by column, or arrays in the order of the file's inputs."""
    arrays: dict[str, Array] = {}
    for name, value in _named_example(example, names).items():
        if hasattr(value, "detach"):
            value = value.detach().cpu().numpy()
        flat = port_values.flatten(str(name), value)
        arrays |= {part: array for part, array in flat.items() if not part.startswith("len(")}
    if not arrays:
        raise InputError("no-example", "the reference needs example inputs to be called with")
    return arrays


def _named_example(example: Any, names: Sequence[str]) -> dict[str, Any]:
    """The values of the example by name."""
    if isinstance(example, tuple) and len(example) == 1:
        example = example[0]
    if _is_frame(example):
        if len(names) == 1:
            return {names[0]: example.to_numpy()}
        return {str(name): example[name].to_numpy()[:, None] for name in example.columns}
    if isinstance(example, Mapping):
        return dict(example)
    values = example if isinstance(example, tuple) else (example,)
    labels = [*names, *(f"input{place}" for place in range(len(names), len(values)))]
    return dict(zip(labels, values, strict=False))


def _is_frame(value: Any) -> bool:
    return hasattr(value, "columns") and hasattr(value, "to_numpy")
