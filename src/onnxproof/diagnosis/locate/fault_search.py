"""Looks for one faulty node after the other: each that is found is replaced by the true value, and the rest compared again."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from onnxproof.diagnosis import limits
from onnxproof.diagnosis.locate.common_producer import confirm_common_producer
from onnxproof.diagnosis.locate.comparison import Comparison
from onnxproof.diagnosis.locate.experiment import Confirmation, Experiment, Round, observe
from onnxproof.diagnosis.locate.neutral_value import confirm_neutral_value
from onnxproof.diagnosis.locate.upstream import (
    Upstream,
    are_one_operation,
    confirm_downstream,
    confirm_origin,
)
from onnxproof.errors import OnnxproofError
from onnxproof.numerics.sketch import Sketch
from onnxproof.reference.traced_value import TracedValue

Array = np.ndarray[Any, Any]
_MOST_FAULTS = 4
"""Faults that are looked for, one behind the other. Not measured."""
_MOST_ASKED = 4
"""Unconfirmed origins whose inputs are looked into. Not measured."""
_OPTIONS_IN_A_ROW = 8
"""Traced values that are tried for the first of several faults. Not measured."""


@dataclass(slots=True, kw_only=True)
class FaultSearch:
    """The search, and what it has found so far."""

    experiment: Experiment
    initial_error: float
    error: float
    """Of the outputs, with the replacements."""
    guilty: list[int] = field(default_factory=list)
    replacements: dict[str, Array] = field(default_factory=dict)
    truths: dict[int, TracedValue] = field(default_factory=dict)
    """For each confirmed node the traced value that belongs in its place."""
    first: Round | None = None
    matched: frozenset[int] = frozenset()
    """The places of the traced values that are in the file."""

    @property
    def fixed(self) -> bool:
        """Whether the answers are right with the replacements."""
        return limits.fixes(self.error, self.initial_error)

    def run(self, sketches: Mapping[str, Sketch]) -> Comparison:
        """Look for faults until the answers are right, or no further node can be replaced; gives the first comparison.

        1. Compare the values of the file, those of earlier rounds replaced.
        2. Find the guilty node of this round.
        3. Put the true value in its place, if there is one and something is still wrong.
        """
        for _ in range(_MOST_FAULTS):
            current = self._compare(sketches)  # step 1
            self.first = self.first or current
            fault = self._find_fault(current)  # step 2
            if fault is None:
                break
            self.guilty.append(fault.node)
            self.error = fault.error
            if not self._replace(fault, current.comparison):  # step 3
                break
        assert self.first is not None
        self._blame_what_decides(self.first)
        return self.first.comparison

    def _blame_what_decides(self, first: Round) -> None:
        """One node comes first whose value alone decides: what fixes all where one true value did not, or what a first one reads and should not."""
        common: Confirmation | None = None
        if self.guilty[1:] and self.replacements:  # else one true value fixed all
            common = self._fixes_alone(first) or confirm_common_producer(
                self.experiment, first, self.guilty
            )
        elif self.guilty and not self.fixed:
            common = confirm_neutral_value(self.experiment, first, self.guilty[0])
        if common is not None:
            others = [node for node in self.guilty if node != common.node]
            self.guilty[:] = [common.node, *others]
            self.error = min(self.error, common.error)

    def _fixes_alone(self, first: Round) -> Confirmation | None:
        """A node that was found after the first, stands before it, and whose true value makes it right, too."""
        for node in self.guilty[1:]:
            option = self.truths.get(node)
            if option is None or node > self.guilty[0]:
                continue
            output = self.experiment.graph.nodes[node].output[0]
            name = first.comparison.wrong_values.get(node, output)
            error = self.experiment.error_with(option, name, {})
            if limits.fixes(error, first.error):
                return Confirmation(node=node, true_value=option, error=error)
        return None

    def _compare(self, sketches: Mapping[str, Sketch]) -> Round:
        """Evaluate with the replacements so far, and compare with the traced values."""
        experiment = self.experiment
        if self.replacements:
            sketches, _ = observe(experiment.session, experiment.feeds, self.replacements)
        matches = experiment.match(sketches)
        self.matched = self.matched or frozenset(
            m.traced.place
            for m in matches.values()
            if m.traced is not None and m.gap <= experiment.tolerance
        )
        return Round(
            matches=matches,
            comparison=experiment.compare(matches),
            replacements=self.replacements,
            error=self.error,
            guilty=self.guilty,
            truths=self.truths,
        )

    def _find_fault(self, current: Round) -> Confirmation | None:
        """The guilty node of one round, with its true value where one was shown to fix something.

        1. The first origin that a true value fixes, else the first suspect. A node that stops inside an operation of the
           module may leave the rest to the node behind it, such as a bias: then it is right, and that one is asked first.
        2. A producer of what it reads that a true value fixes as well, or whose outputs are exchanged.
        3. A small error that a right value behind it had excused.
        4. One value that several origins read, such as the angles of rotary positions.
        5. With several faults in a row no value fixes the outputs: one that fixes what follows at once.
        6. The origin may be a step that the module never computed: a node behind it that a true value fixes.
        """
        fault = confirm_origin(self.experiment, current)  # step 1
        if self._may_continue_behind(current, fault):
            fault = self._confirm_behind_stops(current) or fault
        upstream = Upstream(self.experiment, current)
        fault = self._earlier_fault(upstream, current, fault) or fault  # step 2
        if not _is_confirmed(fault, current):
            fault = upstream.hidden_fault() or fault  # step 3
        if fault is None or _is_confirmed(fault, current):
            return fault
        return self._search_behind(current, fault)

    def _search_behind(self, current: Round, fault: Confirmation) -> Confirmation:
        """Steps 4 to 6 of the search, for an origin that no true value confirms."""
        shared = self._shared_fault(current)  # step 4
        if shared is not None:
            return shared
        option = self._fixes_what_follows(current, fault.node)  # step 5
        if option is not None:
            return replace(fault, true_value=option)
        behind = confirm_downstream(self.experiment, current)  # step 6
        if behind is None or behind.true_value is None:
            return fault
        if are_one_operation(
            self.experiment.graph, current.comparison, fault.node, behind.node, behind.true_value
        ):
            self.guilty.append(fault.node)
        return behind

    def _shared_fault(self, current: Round) -> Confirmation | None:
        """The producer of what several origins read, where its true value fixes them all."""
        origins = [node for node in current.comparison.origins if node not in self.guilty]
        if len(origins) < 2:
            return None
        shared = confirm_common_producer(self.experiment, current, origins[:_MOST_ASKED])
        if shared is None:
            return None
        return Upstream(self.experiment, current).earliest_fixing_producer(shared.node) or shared

    def _earlier_fault(
        self, upstream: Upstream, current: Round, fault: Confirmation | None
    ) -> Confirmation | None:
        """An earlier node to blame: by one true value in its place, or by its outputs in another order."""
        earlier = self._earliest_producer(upstream, current, fault)
        if earlier is not None or fault is None:
            return earlier
        return upstream.exchanged_outputs(fault.node)

    def _may_continue_behind(self, current: Round, fault: Confirmation | None) -> bool:
        """Whether an operation that stops at a node may go on behind it: nothing is confirmed, or a fused operator follows."""
        stopped = current.comparison.stopped
        if fault is None or fault.true_value is None:
            return bool(stopped)
        graph = self.experiment.graph
        consumers = graph.consumers(current.comparison.wrong_values[fault.node])
        return fault.node in stopped and any(graph.nodes[node].domain for node in consumers)

    def _confirm_behind_stops(self, current: Round) -> Confirmation | None:
        """The first origin that a true value fixes, where a value counts as right that is a step inside an operation."""
        comparison = self.experiment.compare(current.matches, stops=False)
        fix = confirm_origin(self.experiment, replace(current, comparison=comparison))
        if fix is None or fix.true_value is None:
            return None
        return fix

    def _earliest_producer(
        self,
        upstream: Upstream,
        current: Round,
        fault: Confirmation | None,
    ) -> Confirmation | None:
        """For the confirmed node, or for each of the first origins, an earlier node to blame."""
        if fault is not None and fault.true_value is not None:
            nodes = [fault.node]
        else:
            unknown = [node for node in current.comparison.origins if node not in self.guilty]
            nodes = unknown[:_MOST_ASKED]
        for node in nodes:
            producer = upstream.earliest_fixing_producer(node)
            if producer is not None:
                return producer
        return None

    def _fixes_what_follows(self, current: Round, node: int) -> TracedValue | None:
        """The traced value with which this node and a good part of the suspects are right, even if the outputs are not."""
        experiment = self.experiment
        comparison = current.comparison
        for option in experiment.counterparts(node, comparison)[:_OPTIONS_IN_A_ROW]:
            value = experiment.fetch(option.place)
            if value is None:
                continue
            replacements = {**self.replacements, comparison.wrong_values[node]: value}
            try:
                sketches, _ = observe(experiment.session, experiment.feeds, replacements)
            except OnnxproofError:
                continue
            suspects = experiment.compare(experiment.match(sketches)).suspects
            most = limits.FEWER_SUSPECTS * len(comparison.suspects)
            if len(suspects) < most and node not in suspects:
                return option
        return None

    def _replace(self, fault: Confirmation, comparison: Comparison) -> bool:
        """Put the true value in place for the next round; False where there is none, or nothing is wrong any more."""
        remaining = max(
            self.experiment.tolerance * limits.REMAINING_TOLERANCES,
            self.initial_error / limits.REMAINING_FACTOR,
        )
        if fault.true_value is None or fault.error <= remaining:
            return False
        name = comparison.wrong_values.get(fault.node)
        value = self.experiment.fetch(fault.true_value.place)
        if value is None or name is None:
            return False
        self.replacements[name] = value
        return True


def _is_confirmed(fault: Confirmation | None, current: Round) -> bool:
    """Whether true values were shown to fix something."""
    if fault is None:
        return False
    return fault.true_value is not None or limits.fixes(fault.error, current.error)
