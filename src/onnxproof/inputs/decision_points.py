"""The decision points of a graph: where a value picks one of two ways, and which ways the cases took.

Comparisons, bounds, branches, roundings and casts to integers are read from the graph. Their inputs are probed on a
sample of the cases (one more session, without optimisation), and for a way that no case took, inputs are steered: a
known case is scaled, shifted and turned round until the value crosses, and then halved towards the very edge.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx

from onnxproof.errors import Crashed, OnnxproofError
from onnxproof.inputs.space import as_dtype, is_float
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
_MOST_POINTS = 256
_MOST_WEIGHTS = 1 << 23
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
        right = values.get(self.right) if self.right else np.asarray(self.bound)
        if left is None or right is None or not left.size:
            return None
        with np.errstate(all="ignore"):
            return np.asarray(left, np.float64) - np.asarray(right, np.float64)

    def look(self, values: Mapping[str, Array]) -> None:
        """Note the sides that these values take."""
        margin = self.margin(values)
        if margin is not None:
            self.seen |= {
                side
                for side, hit in (("below", margin < 0), ("above", margin > 0), ("on", margin == 0))
                if bool(np.any(hit))
            }

    @property
    def exercised(self) -> bool:
        """Both sides were seen; on the bound counts for either."""
        return len(self.seen) >= 2


class Watch:
    """Probes the decision points of a file."""

    def __init__(self, file: OnnxFile, signature: Signature, clock: Clock) -> None:
        self._signature, self._clock = signature, clock
        self.points = list(_points(file))[:_MOST_POINTS]
        self._session = _open(file, self.points) if self.points else None
        self._last: list[Case] = []

    def look(self, case: Case) -> None:
        """Run one case through the probes."""
        values = self._values(case.inputs)
        if values is not None:
            for point in self.points:
                point.look(values)
            if case.domain is None and case.ordinary:
                self._last = [*self._last, case][-2:]

    def steer(self, tries: int, deadline: Deadline) -> Iterator[Case]:
        """Cases that take a way which no case took yet, and such as sit at its edge."""
        left = tries
        for point in [p for p in self.points if not p.exercised]:
            for start in self._last[:1]:
                for number, move in enumerate(_MOVES):
                    if left <= 0 or point.exercised or deadline.passed:
                        break
                    left -= 1
                    inputs = {
                        n: as_dtype(move(a.astype(np.float64)), a.dtype) if is_float(a.dtype) else a
                        for n, a in start.inputs.items()
                    }
                    values = self._values(inputs)
                    before = set(point.seen)
                    for other in self.points if values is not None else ():
                        other.look(values or {})
                    if point.seen != before and values is not None:
                        found = replace(
                            start,
                            name=f"steer-{point.node}-{number}",
                            group="thresholds",
                            about=f"crosses the bound of {point.node}",
                            inputs=inputs,
                            ordinary=False,
                        )
                        yield found
                        yield from self._edge(point, start, found)

    def _edge(self, point: Point, start: Case, found: Case) -> Iterator[Case]:
        """Halve the way between a case on either side, for one element, until it sits on the bound."""
        low, high = start.inputs, found.inputs
        first, last = self._values(low), self._values(high)
        a, b = (point.margin(v) if v is not None else None for v in (first, last))
        if a is None or b is None or a.shape != b.shape:
            return
        crossing = np.flatnonzero(np.sign(a).reshape(-1) != np.sign(b).reshape(-1))
        if not crossing.size:
            return
        place, sign = int(crossing[0]), float(np.sign(a).reshape(-1)[crossing[0]])
        for _ in range(12):
            middle = {
                n: as_dtype(
                    (low[n].astype(np.float64) + high[n].astype(np.float64)) / 2, low[n].dtype
                )
                if is_float(low[n].dtype)
                else low[n]
                for n in low
            }
            values = self._values(middle)
            margin = point.margin(values) if values is not None else None
            if margin is None:
                return
            here = float(np.sign(margin).reshape(-1)[place])
            low, high = (middle, high) if here == sign else (low, middle)
        yield replace(
            found, name=f"{found.name}-edge", about=f"at the bound of {point.node}", inputs=high
        )

    def coverage(self) -> Coverage:
        """How many points were exercised, and the first that were not."""
        if self.points and self._session is None:
            return Coverage(
                points=len(self.points),
                missed=("not probed: the model is too large to be held twice",),
            )
        missed = [
            f"{p.node} ({p.op_type}): only {'/'.join(sorted(p.seen)) or 'nothing'} seen"
            for p in self.points
            if not p.exercised
        ]
        return Coverage(
            points=len(self.points),
            exercised=len(self.points) - len(missed),
            missed=tuple(missed[:20]),
        )

    def _values(self, inputs: Mapping[str, Array]) -> dict[str, Array] | None:
        if self._session is None:
            return None
        try:
            with self._clock.forward("ort-probe"):
                found = self._session.run(feed(inputs, self._signature))
        except Crashed:  # out of time: every further probe would be
            self._session = None
            return None
        except OnnxproofError:
            return None
        return {
            name: value
            for name, value in zip(self._session.output_names, found, strict=True)
            if value is not None
        }


def _open(file: OnnxFile, points: Sequence[Point]) -> Any:
    """A session that answers with the values the decisions are made on; None for a model too large to hold twice."""
    if sum(int(np.prod(t.dims)) for t in file.model.graph.initializer) > _MOST_WEIGHTS:
        return None
    model = onnx.load(file.path)
    names = list(dict.fromkeys(n for p in points for n in (p.left, p.right) if n))
    add_outputs(model, names)
    try:
        return ort.open(model.SerializeToString(), "disabled", outputs=names)
    except OnnxproofError:
        return None


def _points(file: OnnxFile) -> Iterator[Point]:
    """Every decision that depends on the inputs' values."""
    fixed = constants(file)
    static = {t.name for t in file.model.graph.initializer} | set(fixed)
    for node in file.model.graph.node:
        if node.op_type in ("Shape", "Size") or all(name in static for name in node.input if name):
            static.update(node.output)
            continue
        name = node.name or node.output[0]
        if node.op_type in _COMPARE and node.input[0] not in static | {""}:
            yield Point(name, node.op_type, node.input[0], node.input[1])
        elif node.op_type == "Clip":
            for bound in [b for b in node.input[1:] if b in fixed and fixed[b].size == 1]:
                yield Point(
                    name, node.op_type, node.input[0], bound=float(fixed[bound].reshape(-1)[0])
                )
        elif node.op_type in ("Where", "If"):
            yield Point(name, node.op_type, node.input[0], bound=0.5)
        elif node.op_type in _SIGN or (
            node.op_type == "Cast" and onnx.helper.get_attribute_value(node.attribute[0]) in (6, 7)
        ):
            yield Point(name, node.op_type, node.input[0])
        elif node.op_type in ("Max", "Min") and len(node.input) == 2:
            yield Point(name, node.op_type, node.input[0], node.input[1])
