"""Into the subgraphs: which node of a branch, of a loop's body or of a local function is wrong while its inputs are right.

The evaluators of the subgraphs are observed while the model is evaluated. Every run of one (a loop has many) is compared with
the reference's values like a graph of its own, and the first run with a wrong value has the guilty node.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from onnxproof.diagnosis import limits
from onnxproof.diagnosis.locate.comparison import Comparison, compare, counterparts
from onnxproof.diagnosis.locate.experiment import Experiment, reshape_like
from onnxproof.numerics.sketch import KeptArrays, Sketch, sketch
from onnxproof.onnxmodel.graph import Graph
from onnxproof.reference.traced_value import TracedValue
from onnxproof.runtimes.evaluator.evaluator import inner_evaluators

Array = np.ndarray[Any, Any]
InnerValue = tuple[str, int, str]
"""The path of a subgraph, the number of its run, and the name of a value in it."""
_MOST_OPTIONS = 8
"""Traced values that are tried for an inner node. Not measured."""
_MOST_RUNS = 64
"""Runs of one subgraph that are looked at: a loop that goes wrong does so early. Not measured."""


@dataclass(
    frozen=True,
    slots=True,
    kw_only=True,
)
class InnerNode:
    """The guilty node inside another."""

    path: str
    """Outer node, subgraph, inner node."""
    node: onnx.NodeProto
    traced: TracedValue | None
    gap: float
    confirmed: bool


@dataclass(frozen=True, slots=True)
class _Run:
    """One run of one subgraph."""

    path: str
    number: int
    evaluator: Any
    seen: dict[str, Sketch] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Outer:
    """The node of the main graph whose inside is searched, as the evaluator runs it."""

    node: Any
    name: str


class _Observer:
    """Sees the values in every subgraph of one node, and may put others in their place."""

    def __init__(
        self, outer: _Outer, replacements: Mapping[InnerValue, Array] | None = None
    ) -> None:
        self._runs: dict[str, list[_Run]] = {}
        self._replacements = replacements or {}
        self._kept_arrays = KeptArrays()
        self._evaluators = list(_inner_evaluators(outer.node, outer.name))

    def __enter__(self) -> "_Observer":
        for path, evaluator in self._evaluators:
            evaluator.observer = self._observer_of(path, evaluator)
        return self

    def __exit__(self, *details: object) -> None:
        for _, evaluator in self._evaluators:
            evaluator.observer = None

    def runs(self, path: str) -> list[_Run]:
        """The runs of one subgraph."""
        return self._runs.get(path, [])

    def _observer_of(self, path: str, evaluator: Any) -> Any:
        """The callback for one evaluator, which is given its path."""
        return lambda node, results: self._observe(path, evaluator, node, results)

    def _observe(
        self,
        path: str,
        evaluator: Any,
        node: onnx.NodeProto,
        results: Any,
    ) -> Any:
        """Sketch the results of one node, and put replacements in their place."""
        runs = self._runs.setdefault(path, [])
        if not runs or node.output[0] in runs[-1].seen:
            runs.append(_Run(path, len(runs), evaluator))
        run = runs[-1]
        values = list(results)
        for place, name in enumerate(node.output[: len(values)]):
            replacement = self._replacements.get((path, run.number, name))
            if replacement is not None:
                values[place] = reshape_like(np.asarray(values[place]), replacement)
            if isinstance(values[place], np.ndarray | np.generic):
                run.seen[name] = sketch(np.asarray(values[place]), self._kept_arrays)
        return tuple(values)


class SubgraphSearch:
    """Looks for the guilty node inside the nodes of the main graph."""

    def __init__(self, experiment: Experiment, error: float) -> None:
        self._experiment = experiment
        self._error = error
        self.skipped: dict[str, str] = {}
        """What was not compared, each with its reason."""

    def find(self, node: int) -> InnerNode | None:
        """The guilty node inside a guilty node; None where it has no inside, or nothing in there stands out."""
        graph = self._experiment.graph
        session = self._experiment.session
        name = graph.name(node)
        if not hasattr(session, "node"):
            if _has_subgraph(graph.nodes[node]):
                self.skipped[name] = "a runtime does not show what is inside"
            return None
        outer = _Outer(session.node(node), name)
        if not list(_inner_evaluators(outer.node, "")):
            return None
        with _Observer(outer) as observer:
            self._experiment.error()
        for word, evaluator in inner_evaluators(outer.node):
            runs = observer.runs(f"{name}/{word}")
            if not runs:
                self.skipped[f"{name}/{word}"] = "not run in this case"
            guilty = self._search_runs(outer, observer, self._own_runs(node, evaluator, runs))
            if guilty is not None:
                return guilty
        self.skipped[name] = (
            "wrong as a whole; no value inside it is one that the reference makes, so no inner node stands out"
        )
        return None

    def _own_runs(
        self,
        node: int,
        evaluator: Any,
        runs: Sequence[_Run],
    ) -> Sequence[_Run]:
        """The runs that are this node's: a subgraph is its own, a function may be called by several nodes."""
        session = self._experiment.session
        callers = [
            place
            for place in range(len(session.nodes))
            if getattr(session.node(place), "impl_", None) is evaluator
        ]
        if len(callers) > 1 and len(callers) == len(runs):
            return [runs[callers.index(node)]]
        return runs

    def _search_runs(
        self,
        outer: _Outer,
        observer: _Observer,
        runs: Sequence[_Run],
    ) -> InnerNode | None:
        """The guilty node of the first run with a wrong value, or one inside that node."""
        for run in runs[:_MOST_RUNS]:
            graph, comparison = self._compare(run)
            if not comparison.suspects:
                continue
            node, option = self._find_guilty(outer, run, graph, comparison)
            path = f"{run.path}/{graph.name(node)}"
            for word, _ in inner_evaluators(run.evaluator.rt_nodes_[node]):
                deeper = self._search_runs(outer, observer, observer.runs(f"{path}/{word}"))
                if deeper is not None:
                    return deeper
            return InnerNode(
                path=path,
                node=graph.nodes[node],
                traced=option or comparison.nearest.get(node),
                gap=comparison.gaps.get(node, 0.0),
                confirmed=option is not None,
            )
        return None

    def _compare(self, run: _Run) -> tuple[Graph, Comparison]:
        """One run of a subgraph as a graph of its own."""
        evaluator = run.evaluator
        graph = Graph.of_nodes(
            evaluator.nodes_,
            static=evaluator.rt_inits_,
            inputs=evaluator.input_names,
            outputs=evaluator.output_names,
        )
        matches = self._experiment.match(run.seen)
        return graph, compare(graph, matches, self._experiment.tolerance)

    def _find_guilty(
        self,
        outer: _Outer,
        run: _Run,
        graph: Graph,
        comparison: Comparison,
    ) -> tuple[int, TracedValue | None]:
        """The first origin that a true value fixes; failing that, the first suspect whose value is informative."""
        suspects = comparison.suspects
        for node in comparison.origins or suspects[:1]:
            option = self._fixing_value(outer, run, graph, node, comparison)
            if option is not None:
                return node, option
        informative = (node for node in suspects if comparison.sketches[node].informative)
        return next(informative, suspects[0]), None

    def _fixing_value(
        self,
        outer: _Outer,
        run: _Run,
        graph: Graph,
        node: int,
        comparison: Comparison,
    ) -> TracedValue | None:
        """The traced value that fixes the answers in place of the node's; in a loop, one that fixes its own run."""
        options = counterparts(graph, node, comparison, self._experiment.traced)
        for option in options[:_MOST_OPTIONS]:
            value = self._experiment.fetch(option.place)
            if value is None:
                continue
            target = (run.path, run.number, comparison.wrong_values[node])
            with _Observer(outer, {target: value}) as observer:
                error = self._experiment.error()
            again = observer.runs(run.path)
            run_is_right = len(again) > run.number and not self._is_wrong(again[run.number])
            if limits.fixes(error, self._error) or run_is_right:
                return option
        return None

    def _is_wrong(self, run: _Run) -> bool:
        """Whether a value of this run is wrong that could have been right: a flag that the reference never computes says nothing."""
        _, comparison = self._compare(run)
        return any(comparison.sketches[node].informative for node in comparison.suspects)


def _has_subgraph(node: onnx.NodeProto) -> bool:
    """Whether a node is a branch or a loop."""
    return any(attribute.type == onnx.AttributeProto.GRAPH for attribute in node.attribute)


def _inner_evaluators(node: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The evaluators of all that is inside a node, each with its path."""
    for word, evaluator in inner_evaluators(node):
        path = f"{name}/{word}"
        yield path, evaluator
        for place, inner in enumerate(evaluator.rt_nodes_):
            proto = evaluator.nodes_[place]
            yield from _inner_evaluators(inner, f"{path}/{proto.name or proto.output[0]}")
