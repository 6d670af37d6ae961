"""Into the subgraphs: which node of a branch, of a loop's body or of a local function is wrong while its inputs are right.

The evaluators of the subgraphs are watched while the model is evaluated. Every run of one (a loop has many) is compared with
the reference's values like a graph of its own, and the first run with a wrong value has the guilty node.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from onnxproof.diagnosis.locate.match import (
    Counterfactual,
    Front,
    counterparts,
    front,
    in_place_of,
    match,
)
from onnxproof.numerics.sketch import Shelf, Sketch, sketch
from onnxproof.onnxmodel.graph import Graph
from onnxproof.reference.traced_value import Entry, Fetch
from onnxproof.runtimes.evaluator.evaluator import inner_evaluators

Array = np.ndarray[Any, Any]
_TRIED = 8
_RUNS = 64
"""Runs of one subgraph that are looked at: a loop that goes wrong does so early."""


@dataclass(slots=True, kw_only=True)
class Found:
    """The guilty node inside."""

    path: str
    """Outer node, subgraph, inner node."""
    node: onnx.NodeProto
    entry: Entry | None
    gap: float
    confirmed: bool


@dataclass(slots=True)
class _Run:
    """One run of one subgraph."""

    label: str
    evaluator: Any
    seen: dict[str, Sketch] = field(default_factory=dict)


class _Watch:
    """Sees the values in every subgraph of one node, and may put others in their place."""

    def __init__(
        self, outer: Any, name: str, replace: Mapping[tuple[str, int, str], Array]
    ) -> None:
        self.runs: list[_Run] = []
        self._replace, self._shelf = replace, Shelf()
        self._evaluators = list(_below(outer, name))

    def __enter__(self) -> "_Watch":
        for label, evaluator in self._evaluators:
            evaluator.observer = lambda node, found, label=label, evaluator=evaluator: self._look(
                label, evaluator, node, found
            )
        return self

    def __exit__(self, *details: object) -> None:
        for _, evaluator in self._evaluators:
            evaluator.observer = None

    def of(self, label: str) -> list[_Run]:
        return [run for run in self.runs if run.label == label]

    def _look(self, label: str, evaluator: Any, node: onnx.NodeProto, found: Any) -> Any:
        own = self.of(label)
        if not own or node.output[0] in own[-1].seen:
            own.append(_Run(label, evaluator))
            self.runs.append(own[-1])
        values = list(found)
        for place, name in enumerate(node.output[: len(values)]):
            new = self._replace.get((label, len(own) - 1, name))
            if new is not None:
                values[place] = in_place_of(np.asarray(values[place]), new)
            if isinstance(values[place], np.ndarray | np.generic):
                own[-1].seen[name] = sketch(np.asarray(values[place]), self._shelf)
        return tuple(values)


class Inside:
    """Looks for the guilty node inside the nodes of the main graph."""

    def __init__(
        self,
        session: Any,
        test: Counterfactual,
        entries: Sequence[Entry],
        fetch: Fetch,
        tolerance: float,
    ) -> None:
        self._session, self._test, self._entries, self._fetch, self._tolerance = (
            session,
            test,
            entries,
            fetch,
            tolerance,
        )
        self.skipped: dict[str, str] = {}

    def find(
        self, graph: Graph, place: int, cured: Mapping[str, Array], before: float
    ) -> Found | None:
        """The guilty node inside a guilty node; None where it has no inside, or nothing in there stands out."""
        if not hasattr(self._session, "node"):
            if any(
                attribute.type == onnx.AttributeProto.GRAPH
                for attribute in graph.nodes[place].attribute
            ):
                self.skipped[graph.name(place)] = "a runtime does not show what is inside"
            return None
        outer = self._session.node(place)
        if not list(_below(outer, "")):
            return None
        name = graph.name(place)
        with _Watch(outer, name, {}) as watch:
            self._test.distance(cured)
        for word, evaluator in inner_evaluators(outer):
            label = f"{name}/{word}"
            runs = watch.of(label)
            if not runs:
                self.skipped[label] = "not run in this case"
            mine = self._call(place, evaluator, len(runs))
            found = self._in_runs(
                outer,
                name,
                watch,
                label,
                range(len(runs)) if mine is None else (mine,),
                cured,
                before,
            )
            if found is not None:
                return found
        self.skipped[name] = (
            "wrong as a whole; no value inside it is one that the reference makes, so no inner node stands out"
        )
        return None

    def _call(self, place: int, evaluator: Any, runs: int) -> int | None:
        """A function is called by several nodes: which of its runs is that of this node; None for a subgraph, which is this node's own."""
        callers = [
            p
            for p in range(len(self._session.nodes))
            if getattr(self._session.node(p), "impl_", None) is evaluator
        ]
        return callers.index(place) if len(callers) > 1 and len(callers) == runs else None

    def _in_runs(
        self,
        outer: Any,
        name: str,
        watch: _Watch,
        label: str,
        numbers: Sequence[int],
        cured: Mapping[str, Array],
        before: float,
    ) -> Found | None:
        for number in list(numbers)[:_RUNS]:
            run = watch.of(label)[number]
            graph, found = self._front(run)
            if not found.suspects:
                continue
            place, entry = self._guilty(outer, name, label, number, graph, found, cured, before)
            path = f"{label}/{graph.name(place)}"
            for word, _ in inner_evaluators(run.evaluator.rt_nodes_[place]):
                deeper = f"{path}/{word}"
                further = self._in_runs(
                    outer, name, watch, deeper, range(len(watch.of(deeper))), cured, before
                )
                if further is not None:
                    return further
            return Found(
                path=path,
                node=graph.nodes[place],
                entry=entry or found.entries.get(place),
                gap=found.gaps.get(place, 0.0),
                confirmed=entry is not None,
            )
        return None

    def _front(self, run: _Run) -> tuple[Graph, Front]:
        evaluator = run.evaluator
        graph = Graph.of_nodes(
            evaluator.nodes_,
            static=evaluator.rt_inits_,
            inputs=evaluator.input_names,
            outputs=evaluator.output_names,
        )
        return graph, front(graph, match(run.seen, self._entries, self._tolerance), self._tolerance)

    def _guilty(
        self,
        outer: Any,
        name: str,
        label: str,
        number: int,
        graph: Graph,
        found: Front,
        cured: Mapping[str, Array],
        before: float,
    ) -> tuple[int, Entry | None]:
        """The first of the front that a true value mends; failing that, the first whose value tells anything."""
        for place in found.suspects[: max(1, found.fronts)]:
            entry = self._confirmed(outer, name, label, number, graph, place, found, cured, before)
            if entry is not None:
                return place, entry
        return next(
            (place for place in found.suspects if found.sketches[place].telling), found.suspects[0]
        ), None

    def _tells(self, run: _Run) -> bool:
        """Whether a value of this run is wrong that could have been right: a flag that the reference never makes says nothing."""
        _, found = self._front(run)
        return any(found.sketches[place].telling for place in found.suspects)

    def _confirmed(
        self,
        outer: Any,
        name: str,
        label: str,
        number: int,
        graph: Graph,
        place: int,
        found: Front,
        cured: Mapping[str, Array],
        before: float,
    ) -> Entry | None:
        """The reference's value that mends the answers when it is put in place; in a loop, one that mends its own run."""
        for entry in counterparts(graph, place, found, self._entries)[:_TRIED]:
            value = self._fetch(entry.place)
            if value is None:
                continue
            with _Watch(outer, name, {(label, number, found.values[place]): value}) as watch:
                after = self._test.distance(cured)
            runs = watch.of(label)
            if after < before / 20 or (len(runs) > number and not self._tells(runs[number])):
                return entry
        return None


def _below(node: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The evaluators of all that is inside a node, each with its path."""
    for word, evaluator in inner_evaluators(node):
        label = f"{name}/{word}"
        yield label, evaluator
        for place, inner in enumerate(evaluator.rt_nodes_):
            proto = evaluator.nodes_[place]
            yield from _below(inner, f"{label}/{proto.name or proto.output[0]}")
