"""Would the file still answer on a device that computes in half precision? ONNX Runtime's CPU computes such a file in float32, and can't tell.

1. The graph is run in float64, and as the device computes (`runtimes/evaluator/device.py`), on ordinary cases first.
2. An output is lost where the truth is finite and the device's answer is not, or where it is wrong by a tenth of its size and more.
3. The node that is named: the first that makes something infinite of finite inputs where the truth is finite; or else the one whose error is the most times that of its inputs.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from onnxproof.errors import OnnxproofError
from onnxproof.numerics.measure import is_float
from onnxproof.onnxmodel.graph import source_of
from onnxproof.options import TARGETS
from onnxproof.reference.protocol import Reference
from onnxproof.results import Case, Finding
from onnxproof.runtimes import reference
from onnxproof.verification.budget import Budget
from onnxproof.verification.evidence import Request
from onnxproof.verification.observations import Observations

Array = np.ndarray[Any, Any]
_LOST = 0.1
"""Of an output's size: an error of this rms means that the answer is gone. The healthy twins of the tests stay below 0.002, the planted ones are above 0.26."""
_GROWS = 4.0
"""Times the error of its inputs that a node must have to be named. Not measured."""
_ROUNDING = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "tf32": 2.0**-11}
_MOST_CASES = 5
"""Cases on which the graph is run as the device computes. Not measured."""
_SHARE = 0.1
"""Of the budget, for each of those runs. Not measured."""
_KEPT_BYTES = 1 << 30
"""Bytes of inner values that are kept for naming a node. Not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loss:
    """What the device does to one case."""

    case: str
    output: str
    error: float
    """In units of the output's size; infinite for an overflow."""
    node: onnx.NodeProto | None
    how: str


@dataclass(slots=True)
class _Observed:
    """What nodes gave on the device, and which of them made something infinite of finite inputs."""

    values: dict[str, Array] = field(default_factory=dict)
    infinite: set[str] = field(default_factory=set)
    bytes: int = 0

    def see(self, node: onnx.NodeProto, outputs: Any) -> Any:
        """Keep the floats among the outputs."""
        for name, value in zip(node.output, outputs, strict=False):
            if not isinstance(value, np.ndarray) or not is_float(value):
                continue
            if not np.isfinite(value).all():
                self.infinite.add(name)
            if self.bytes + value.nbytes <= _KEPT_BYTES:
                self.bytes += value.nbytes
                self.values[name] = value
        return outputs


def ask(
    request: Request,
    known: Reference,
    observed: Observations,
    budget: Budget,
    half: str | None,
    own_precision: bool,
) -> list[Finding]:
    """What a device of the file's own half precision, or of the one that the user named, would lose; nothing where the file is faulty already."""
    precision = TARGETS.get(request.target, half)
    chosen = request.only or request.disabled_optimizers
    if precision is None or observed.faulty or (chosen and not request.target):
        return []
    return examine(
        request,
        precision,
        choose_cases(known.example(), observed.agreeing),
        affords=lambda: budget.affords(1),
        own_precision=own_precision,
    )


def examine(
    request: Request,
    precision: str,
    cases: Iterable[Case],
    *,
    affords: Callable[[], bool],
    own_precision: bool,
) -> list[Finding]:
    """What the device loses. On an ordinary case it decides the verdict where the user named the device; elsewhere it is told only.

    A file that was converted to half (`own_precision` is False) is at best DRIFT; a module in half loses there what its file loses.
    """
    weight = {"doubts": not own_precision}
    if request.target:
        weight = {"counts": True}
    try:
        truth = reference.open(request.path, "float64")
        device = reference.open(request.path, precision)
        truth.limit_s = device.limit_s = max(request.budget_s * _SHARE, 1.0)
        for case in cases:
            if not affords():
                what = f"the graph was not asked what it says in {precision}: no time was left"
                return [Finding(code="target-not-asked", what=what)]
            loss = _examine_case(case, truth, device, precision)
            if loss is not None:
                chosen = weight if is_ordinary(case) else {}
                return [_finding(loss, precision, chosen)]
    except OnnxproofError as why:  # an operator that the evaluator lacks, or too slow
        what = f"the graph could not be evaluated in {precision}: {why.what}"
        return [Finding(code="target-not-asked", what=what)]
    return []


def is_ordinary(case: Case) -> bool:
    """Whether the case looks like the example or is the user's own data."""
    return case.domain is None and case.group in ("ordinary", "data", "example")


def _examine_case(
    case: Case,
    truth: reference.ReferenceSession,
    device: reference.ReferenceSession,
    precision: str,
) -> _Loss | None:
    seen = _Observed()
    device.observe(seen.see)
    answers = device.run(case.inputs)
    device.observe(None)
    growth = _Growth(seen, _ROUNDING[precision])
    truth.observe(growth.see)
    wanted = truth.run(case.inputs)
    truth.observe(None)
    for name, answer, want in zip(truth.output_names, answers, wanted, strict=True):
        if not isinstance(answer, np.ndarray) or not is_float(answer):
            continue
        error = relative_error(answer, np.asarray(want))
        if error > _LOST:
            node, how = growth.guilty(name)
            return _Loss(case=case.name, output=name, error=error, node=node, how=how)
    return None


def relative_error(answer: Array, truth: Array) -> float:
    """The rms error where the truth is finite, in units of its rms; infinite where the answer is not finite there."""
    finite = np.isfinite(truth)
    a, t = answer.astype(np.float64)[finite], truth[finite]
    if not t.size:
        return 0.0
    if not np.isfinite(a).all():
        return float("inf")
    size = float(np.sqrt(np.mean(t**2)))
    if not size:
        return 0.0
    return float(np.sqrt(np.mean((a - t) ** 2))) / size


class _Growth:
    """The error of every value, and how many times that of its inputs it is."""

    def __init__(self, seen: _Observed, rounding: float) -> None:
        self._seen = seen
        self._rounding = rounding
        self._errors: dict[str, float] = {}
        self._nodes: list[onnx.NodeProto] = []
        self._vanished: set[str] = set()

    def see(self, node: onnx.NodeProto, outputs: Any) -> Any:
        """Compare a node's outputs in float64 with the device's."""
        self._nodes.append(node)
        for name, value in zip(node.output, outputs, strict=False):
            kept = self._seen.values.get(name)
            if kept is None or not isinstance(value, np.ndarray) or kept.shape != value.shape:
                continue
            self._errors[name] = relative_error(kept, value)
            if np.count_nonzero(kept) < np.count_nonzero(value) / 2:
                self._vanished.add(name)
        return outputs

    def guilty(self, output: str) -> tuple[onnx.NodeProto | None, str]:
        """The node that loses this output, and how."""
        above = self._ancestors(output)
        for place, node in enumerate(above):
            if self._overflows(node) and self._input_error(node) > _LOST:
                above = above[:place]  # a quotient by what had vanished before
                break
            if self._overflows(node):
                return node, "overflows"
        rated = [(self._times(node), place) for place, node in enumerate(above)]
        times, place = max(rated, default=(0.0, 0))
        if times < _GROWS:
            return None, "loses its digits"
        node = above[place]
        if self._vanished.intersection(node.output):
            return node, "vanishes"
        return node, "loses its digits"

    def _overflows(self, node: onnx.NodeProto) -> bool:
        infinite = any(self._errors.get(name) == float("inf") for name in node.output)
        return infinite and not self._seen.infinite.intersection(node.input)

    def _times(self, node: onnx.NodeProto) -> float:
        """The error of a node in units of that of its inputs, where it is large enough to cost the answer."""
        error = max((self._errors.get(name, 0.0) for name in node.output), default=0.0)
        if error < _LOST / _GROWS:
            return 0.0
        return min(error, 1e6) / max(self._rounding, self._input_error(node))

    def _input_error(self, node: onnx.NodeProto) -> float:
        return max((self._errors.get(name, 0.0) for name in node.input), default=0.0)

    def _ancestors(self, output: str) -> list[onnx.NodeProto]:
        """The nodes that an output depends on, in the graph's order."""
        needed = {output}
        above = []
        for node in reversed(self._nodes):
            if needed.intersection(node.output):
                needed.update(node.input)
                above.append(node)
        return above[::-1]


def _finding(loss: _Loss, precision: str, weight: Mapping[str, bool]) -> Finding:
    error = "is not finite" if loss.error == float("inf") else f"is wrong by {loss.error:.0%}"
    where = ""
    if loss.node is not None:
        where = f"`{_name(loss.node)}` ({loss.node.op_type}){_line(loss.node)} {loss.how}, and "
    what = (
        f"on a device that computes in {precision}, {where}output `{loss.output}` {error}"
        f" (case `{loss.case}`); on the CPU it is right, since that computes in float32"
    )
    kept = "it" if loss.node is None else f"`{_name(loss.node)}`"
    return Finding(
        code=f"target-{'overflow' if loss.how == 'overflows' else 'precision'}",
        what=what,
        help=f"keep {kept} in float32, or scale what it takes",
        **weight,
    )


def _name(node: onnx.NodeProto) -> str:
    return node.name or node.output[0]


def _line(node: onnx.NodeProto) -> str:
    """The line of Python, where the file says it."""
    source = source_of(node)[1]
    if source is None:
        return ""
    return f" at {source.file}:{source.line}"


def choose_cases(example: Mapping[str, Array], agreeing: Sequence[Case]) -> list[Case]:
    """The example, other ordinary cases, and then those that reach further."""
    first = Case(name="example", group="ordinary", about="the example inputs", inputs=example)
    others = [case for case in agreeing if case.domain is None and case.name != "example"]
    return [first, *sorted(others, key=lambda case: not is_ordinary(case))][:_MOST_CASES]
