"""Evaluates the file with true values in the place of others: the counterfactual that confirms a suspect."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from onnxproof.diagnosis import limits
from onnxproof.diagnosis.locate.comparison import Comparison, compare, content, counterparts
from onnxproof.diagnosis.locate.match import Match, match, merges_heads
from onnxproof.errors import BackendError, ModelError
from onnxproof.numerics.relative_error import relative_error
from onnxproof.numerics.sketch import KeptArrays, Sketch, sketch
from onnxproof.onnxmodel.graph import Graph
from onnxproof.reference.traced_value import Fetch, TracedValue

Array = np.ndarray[Any, Any]


def observe(
    session: Any,
    feeds: Mapping[str, Array],
    replacements: Mapping[str, Array] | None = None,
    *,
    sketching: bool = True,
    seen: dict[str, Sketch] | None = None,
) -> tuple[dict[str, Sketch], list[Array]]:
    """Evaluate the graph: sketches of every value, and the outputs.

    `replacements` go in the place of other values; `seen` has the sketches also where the evaluation breaks off.
    """
    if hasattr(session, "observed"):
        return session.observed(feeds, replacements or {}, sketching=sketching)  # type: ignore[no-any-return]
    sketches: dict[str, Sketch] = {} if seen is None else seen
    kept_arrays = KeptArrays()

    def observer(node: onnx.NodeProto, results: Any) -> Any:
        values = list(results)
        for place, name in enumerate(node.output[: len(values)]):
            if replacements and name in replacements:
                values[place] = reshape_like(np.asarray(values[place]), replacements[name])
            if sketching and isinstance(values[place], np.ndarray | np.generic):
                sketches[name] = sketch(np.asarray(values[place]), kept_arrays)
        return tuple(values)

    session.observe(observer)
    try:
        outputs = session.run(feeds)
    finally:
        session.observe(None)
    return sketches, outputs


def reshape_like(old: Array, new: Array) -> Array:
    """A value for another's place, in its shape where it has as many elements; its dtype stays, since a narrower one may be the fault."""
    if old.size != new.size:
        return new
    if merges_heads(new.shape, old.shape):
        new = new.swapaxes(1, 2)
    return new.reshape(old.shape)


@dataclass(
    frozen=True,
    slots=True,
    kw_only=True,
)
class Experiment:
    """One case, the file's evaluator, and what the module computed."""

    graph: Graph
    session: Any
    feeds: Mapping[str, Array]
    truth: Sequence[Array]
    output_places: Sequence[int]
    """For each item of the truth which output of the session it is; -1 where the file has none."""
    traced: Sequence[TracedValue]
    fetch: Fetch
    tolerance: float

    def error(self, replacements: Mapping[str, Array] | None = None) -> float:
        """The largest relative error of the outputs with these values in place."""
        try:
            _, outputs = observe(self.session, self.feeds, replacements, sketching=False)
        except (BackendError, ModelError):
            return float("inf")
        worst = 0.0
        for place, true in zip(self.output_places, self.truth, strict=True):
            answer = outputs[place] if 0 <= place < len(outputs) else None
            worst = max(worst, relative_error(answer, true))
        return worst

    def error_with(
        self,
        option: TracedValue,
        name: str,
        replacements: Mapping[str, Array],
    ) -> float:
        """The same with a traced value in the place of the value `name`, too; infinite where it can't be had.

        The value may be large: nothing holds it when this returns.
        """
        value = self.fetch(option.place)
        if value is None:
            return float("inf")
        return self.error({**replacements, name: value})

    def match(self, sketches: Mapping[str, Sketch]) -> dict[str, Match]:
        """The traced value nearest to each value."""
        return match(sketches, self.traced, self.tolerance)

    def compare(self, matches: Mapping[str, Match], *, stops: bool = True) -> Comparison:
        """The nodes of the main graph that are wrong."""
        return compare(self.graph, matches, self.tolerance, stops=stops)

    def counterparts(self, node: int, comparison: Comparison) -> list[TracedValue]:
        """The traced values which a node of the main graph should have computed, most likely first."""
        return counterparts(self.graph, node, comparison, self.traced)


@dataclass(
    frozen=True,
    slots=True,
    kw_only=True,
)
class Round:
    """One comparison in the search for several faults: those found before are replaced by true values."""

    matches: Mapping[str, Match]
    comparison: Comparison
    replacements: Mapping[str, Array]
    error: float
    """Of the outputs, with the replacements."""
    guilty: Sequence[int]
    """The nodes that were found guilty before."""
    truths: dict[int, TracedValue]
    """For each node that was confirmed the traced value that belongs in its place; each confirmation adds one."""


@dataclass(
    frozen=True,
    slots=True,
    kw_only=True,
)
class Confirmation:
    """A node, and the traced value that was shown to belong in its place."""

    node: int
    true_value: TracedValue | None
    """None where the node is only suspected."""
    error: float
    """Of the outputs, with the true value in place."""


def first_fix(
    experiment: Experiment,
    current: Round,
    nodes: Sequence[int],
    options: int,
) -> Confirmation | None:
    """The first node with a traced value that fixes the outputs in its place, among so many different options for each."""
    comparison = current.comparison
    for node in nodes:
        for option in _different(_options(experiment, comparison, node))[:options]:
            name = comparison.wrong_values[node]
            error = experiment.error_with(option, name, current.replacements)
            if limits.fixes(error, current.error):
                current.truths[node] = option
                return Confirmation(
                    node=node,
                    true_value=option,
                    error=error,
                )
    return None


def _options(experiment: Experiment, comparison: Comparison, node: int) -> list[TracedValue]:
    """The traced values to try: for a node that stops inside an operation of the module that one's result first."""
    options = experiment.counterparts(node, comparison)
    step = comparison.nearest.get(node)
    if node in comparison.stopped and step is not None and step.outer is not None:
        options.insert(0, experiment.traced[step.outer])
    return options


def _different(options: Sequence[TracedValue]) -> list[TracedValue]:
    """One of each content: a view of a value that did not fix anything need not be tried."""
    firsts: dict[tuple[int, bool, bytes], TracedValue] = {}
    for option in options:
        firsts.setdefault(content(option.sketch), option)
    return list(firsts.values())
