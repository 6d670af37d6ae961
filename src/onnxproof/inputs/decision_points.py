"""The decision points of a graph: where a value falls on one side of a bound, and which sides the cases reached.

Comparisons, bounds, branches, roundings and casts to integers are read from the graph. Their inputs are probed on a
sample of the cases (one more session, without optimisation). For a side that no case reached, inputs are steered:
1. A known case is scaled, shifted and negated until the value crosses the bound.
2. The interval between the two cases is halved until one element sits at the very bound.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from onnxproof.errors import Crashed, OnnxproofError
from onnxproof.inputs.space import Inputs, as_dtype, is_float
from onnxproof.onnxmodel.onnx_file import OnnxFile, constants
from onnxproof.results import Case, Coverage, Signature
from onnxproof.runtimes import ort
from onnxproof.runtimes.reference import add_outputs
from onnxproof.runtimes.session.execution import Clock, feed
from onnxproof.system.deadline import Deadline

Array = np.ndarray[Any, Any]
_COMPARE = frozenset({"Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal"})
_SIGN = frozenset(
    {
        "Relu",
        "LeakyRelu",
        "PRelu",
        "Elu",
        "Selu",
        "Celu",
        "ThresholdedRelu",
        "Abs",
        "Sign",
        "Sqrt",
        "Log",
        "Floor",
        "Ceil",
        "Round",
    }
)
"""Operators that behave otherwise on either side of zero (or of every integer, where only zero is looked at)."""
_INTEGER_TYPES = (TensorProto.INT32, TensorProto.INT64)
_MOST_POINTS = 256
"""Decision points of one graph that are probed (not measured)."""
_MOST_WEIGHTS = 1 << 23
"""Weights of a model that is still opened a second time (not measured)."""
_HALVINGS = 12
"""Steps from a case that crossed to the bound: it is then within 1/4096 of the interval (not measured)."""
_MISSED_SHOWN = 20
_MOVES: tuple[Callable[[Array], Array], ...] = (
    lambda x: -x,
    lambda x: x * 10,
    lambda x: x * 100,
    lambda x: x * 0.01,
    lambda x: x + 3,
    lambda x: x - 3,
    lambda x: np.abs(x) + 1,
    lambda x: -np.abs(x) - 1,
    lambda x: x * 1000,
    lambda x: np.zeros_like(x),
)


@dataclass(slots=True)
class Point:
    """One decision: the node, the values it is made on, and the sides that were seen."""

    node: str
    op_type: str
    left: str
    right: str = ""
    """The value it is compared with; empty for a fixed bound."""
    bound: float = 0.0
    seen: set[str] = field(default_factory=set)

    def margin(self, values: Mapping[str, Array]) -> Array | None:
        """The distance to the bound, by element."""
        left = values.get(self.left)
        right: Array | None = np.asarray(self.bound)
        if self.right:
            right = values.get(self.right)
        if left is None or right is None or not left.size:
            return None
        with np.errstate(all="ignore"):
            return np.asarray(left, np.float64) - np.asarray(right, np.float64)

    def look(self, values: Mapping[str, Array]) -> None:
        """Note the sides that these values are on."""
        margin = self.margin(values)
        if margin is None:
            return
        sides = {"below": margin < 0, "above": margin > 0, "on": margin == 0}
        self.seen |= {side for side, elements in sides.items() if bool(np.any(elements))}

    @property
    def exercised(self) -> bool:
        """Both sides were seen; on the bound counts for either."""
        return len(self.seen) >= 2


class Watch:
    """Probes the decision points of a file; `fit` brings inputs to what the user said of them."""

    def __init__(
        self,
        file: OnnxFile,
        signature: Signature,
        clock: Clock,
        fit: Callable[[Inputs], dict[str, Array]] = dict,
    ) -> None:
        self._fit = fit
        self._signature = signature
        self._clock = clock
        self.points = list(_points(file))[:_MOST_POINTS]
        self._session: Any = None
        if self.points:
            self._session = _open(file, self.points)
        self._last: list[Case] = []

    def look(self, case: Case) -> None:
        """Run one case through the probes."""
        if self._probe(case.inputs) and case.domain is None and case.ordinary:
            self._last = [*self._last, case][-2:]

    def steer(self, tries: int, deadline: Deadline) -> Iterator[Case]:
        """Cases on a side that no case reached yet, and such as sit at its bound."""
        if not self._last:
            return
        start = self._last[0]
        left = tries
        for point in [point for point in self.points if not point.exercised]:
            for number, move in enumerate(_MOVES):
                if left <= 0 or point.exercised or deadline.passed:
                    break
                left -= 1
                moved = {name: _moved(array, move) for name, array in start.inputs.items()}
                inputs = self._fit(moved)
                before = set(point.seen)
                if not self._probe(inputs) or point.seen == before:
                    continue
                crossing = replace(
                    start,
                    name=f"steer-{point.node}-{number}",
                    group="thresholds",
                    about=f"crosses the bound of {point.node}",
                    inputs=inputs,
                    ordinary=False,
                )
                yield crossing  # 1
                yield from self._approach_bound(point, start, crossing)  # 2

    def _probe(self, inputs: Inputs) -> bool:
        """Note on which side of every point these inputs are; False where they can't be run."""
        values = self._values(inputs)
        if values is None:
            return False
        for point in self.points:
            point.look(values)
        return True

    def _approach_bound(
        self,
        point: Point,
        start: Case,
        crossing: Case,
    ) -> Iterator[Case]:
        """Halve the interval between a case on either side, for one element, until it sits on the bound."""
        low = start.inputs
        high = crossing.inputs
        low_signs = self._signs(point, low)
        high_signs = self._signs(point, high)
        if low_signs is None or high_signs is None or low_signs.shape != high_signs.shape:
            return
        crossed = np.flatnonzero(low_signs != high_signs)
        if not crossed.size:
            return
        element = int(crossed[0])
        for _ in range(_HALVINGS):
            middle = self._fit({name: _mean(low[name], high[name]) for name in low})
            signs = self._signs(point, middle)
            if signs is None:
                return
            if signs.reshape(-1)[element] == low_signs.reshape(-1)[element]:
                low = middle
            else:
                high = middle
        yield replace(
            crossing,
            name=f"{crossing.name}-edge",
            about=f"at the bound of {point.node}",
            inputs=high,
        )

    def _signs(self, point: Point, inputs: Inputs) -> Array | None:
        """On which side of the bound each element is; None where the inputs can't be run."""
        values = self._values(inputs)
        if values is None:
            return None
        margin = point.margin(values)
        if margin is None:
            return None
        return np.sign(margin)

    def coverage(self) -> Coverage:
        """How many points were exercised, and the first that were not."""
        if self.points and self._session is None:
            return Coverage(
                points=len(self.points),
                missed=("not probed: the model is too large to be held twice",),
            )
        missed = []
        for point in self.points:
            if not point.exercised:
                sides = "/".join(sorted(point.seen)) or "nothing"
                missed.append(f"{point.node} ({point.op_type}): only {sides} seen")
        return Coverage(
            points=len(self.points),
            exercised=len(self.points) - len(missed),
            missed=tuple(missed[:_MISSED_SHOWN]),
        )

    def _values(self, inputs: Inputs) -> dict[str, Array] | None:
        if self._session is None:
            return None
        try:
            with self._clock.forward("ort-probe"):
                probed = self._session.run(feed(inputs, self._signature))
        except Crashed:  # out of time: every further probe would be
            self._session = None
            return None
        except OnnxproofError:
            return None
        by_name = zip(self._session.output_names, probed, strict=True)
        return {name: value for name, value in by_name if value is not None}


def _open(file: OnnxFile, points: Sequence[Point]) -> Any:
    """A session that answers with the values the decisions are made on; None for a model too large to hold twice."""
    weights = sum(int(np.prod(tensor.dims)) for tensor in file.model.graph.initializer)
    if weights > _MOST_WEIGHTS:
        return None
    model = onnx.load(file.path)
    compared = [name for point in points for name in (point.left, point.right)]
    names = list(dict.fromkeys(name for name in compared if name))
    add_outputs(model, names)
    try:
        return ort.open_model(model, "disabled", outputs=names)
    except OnnxproofError:
        return None


def _moved(array: Array, move: Callable[[Array], Array]) -> Array:
    """A float input moved; any other as it is."""
    if not is_float(array.dtype):
        return array
    return as_dtype(move(array.astype(np.float64)), array.dtype)


def _mean(low: Array, high: Array) -> Array:
    """The float input halfway between two; any other as it is in the first."""
    if not is_float(low.dtype):
        return low
    total = low.astype(np.float64) + high.astype(np.float64)
    return as_dtype(total / 2, low.dtype)


def _points(file: OnnxFile) -> Iterator[Point]:
    """Every decision that depends on the inputs' values."""
    fixed = constants(file)
    static = {tensor.name for tensor in file.model.graph.initializer} | set(fixed)
    for node in file.model.graph.node:
        inputs = [name for name in node.input if name]
        if node.op_type in ("Shape", "Size") or static.issuperset(inputs):
            static.update(node.output)
        else:
            yield from _points_of(node, fixed, static)


def _points_of(
    node: onnx.NodeProto, fixed: Mapping[str, Array], static: Collection[str]
) -> Iterator[Point]:
    """The decisions of one node; `static` are the values that do not depend on the inputs."""
    name = node.name or node.output[0]
    op_type = node.op_type
    if op_type in _COMPARE and node.input[0] and node.input[0] not in static:
        yield Point(name, op_type, node.input[0], node.input[1])
    elif op_type == "Clip":
        for bound in _clip_bounds(node, fixed):
            yield Point(name, op_type, node.input[0], bound=bound)
    elif op_type in ("Where", "If"):
        yield Point(name, op_type, node.input[0], bound=0.5)
    elif op_type in _SIGN or _casts_to_integer(node):
        yield Point(name, op_type, node.input[0])
    elif op_type in ("Max", "Min") and len(node.input) == 2:
        yield Point(name, op_type, node.input[0], node.input[1])


def _clip_bounds(node: onnx.NodeProto, fixed: Mapping[str, Array]) -> list[float]:
    """The bounds of a Clip that are constants."""
    bounds = [fixed[name] for name in node.input[1:] if name in fixed]
    return [float(bound.reshape(-1)[0]) for bound in bounds if bound.size == 1]


def _casts_to_integer(node: onnx.NodeProto) -> bool:
    if node.op_type != "Cast":
        return False
    return onnx.helper.get_attribute_value(node.attribute[0]) in _INTEGER_TYPES
