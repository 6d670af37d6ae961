"""Confirm a suspect by counterfactual, then ask whether the fault lies in what it reads: a wrong value may look right.

A transposition that does nothing gives its input; a frozen index gives another step's value; a mask that is moved by one
is computed from sizes alone. Each is one of the module's values, or none that is compared, and the next node is the first
that is plainly wrong. So true values are tried for the producers of what the suspect reads, too.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onnxproof.diagnosis import limits
from onnxproof.diagnosis.locate.comparison import Comparison, compare, content
from onnxproof.diagnosis.locate.experiment import Confirmation, Experiment, Round, first_fix
from onnxproof.diagnosis.locate.match import Match
from onnxproof.numerics.sketch import Sketch, distance, sketch
from onnxproof.onnxmodel.graph import Graph, consumed_names
from onnxproof.reference.traced_value import TracedValue

Array = np.ndarray[Any, Any]
# How many trials each step may make; none of these numbers was measured. Each trial is an evaluation of the file.
_MOST_ORIGINS = 6
_OPTIONS_OF_ORIGIN = 12
_MOST_DOWNSTREAM = 10
_OPTIONS_DOWNSTREAM = 2
_MOST_STEPS_UP = 6
_OPTIONS_OF_IDLE = 10
_OPTIONS_BROADCAST = 4
_OPTIONS_OF_SIZES = 4
_OPTIONS_READ = 2
_OPTIONS_SAME_CALL = 4
_MOST_HIDDEN = 10
_MOST_EXCHANGED = 3
"""Outputs of one node of which all orders are tried: a projection to query, key and value has three."""
_MOST_READ = 16
_LAYOUT = frozenset({"Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Cast"})
_SELECTING = _LAYOUT.union(
    ("Gather", "GatherND", "GatherElements", "Slice", "Split", "Concat", "Where", "Clip", "Mod"),
    ("Pad", "Expand", "Tile", "Compress", "Max", "Min", "SequenceAt"),
)
"""Their output is a part of their input, and the wrong part is one of the module's values, too."""
_EQUIVALENTS = {
    "Clip": ("clamp", "clamp_min", "clamp_max", "hardtanh"),
    "Where": ("where", "masked_fill"),
    "Concat": ("cat", "stack"),
    "Mod": ("remainder", "fmod"),
    "Max": ("maximum", "clamp_min"),
    "Min": ("minimum", "clamp_max"),
    "Pad": ("constant_pad_nd", "pad"),
    "Expand": ("expand",),
    "Gather": ("embedding", "index", "index_select"),
}
"""The module's operations that such a node stands for."""


def confirm_origin(experiment: Experiment, current: Round) -> Confirmation | None:
    """The first origin whose true output fixes the answers; failing that, the first suspect, unconfirmed.

    A node behind the guilty one is fixed, too, when its true output is put in place. So the origins are asked first,
    with every traced value that could stand there.
    """
    comparison = current.comparison
    origins = [node for node in comparison.origins if node not in current.guilty]
    fix = first_fix(experiment, current, origins[:_MOST_ORIGINS], _OPTIONS_OF_ORIGIN)
    if fix is not None:
        return fix
    suspects = origins or [node for node in comparison.downstream if node not in current.guilty]
    if not suspects:
        return None
    return Confirmation(
        node=suspects[0],
        true_value=None,
        error=current.error,
    )


def confirm_downstream(experiment: Experiment, current: Round) -> Confirmation | None:
    """The first of the nodes behind the origins whose true output fixes the answers.

    Those that read wrong integers only are asked like origins: lengths or positions that the module never computes, such as
    those that a fused attention takes, are no fault.
    """
    downstream = [node for node in current.comparison.downstream if node not in current.guilty]
    nearly = [node for node in downstream if _reads_wrong_integers_only(experiment, current, node)]
    return first_fix(experiment, current, nearly[:_MOST_ORIGINS], _OPTIONS_OF_ORIGIN) or first_fix(
        experiment, current, downstream[:_MOST_DOWNSTREAM], _OPTIONS_DOWNSTREAM
    )


def _reads_wrong_integers_only(experiment: Experiment, current: Round, node: int) -> bool:
    """Whether everything else that a node reads is right."""
    names = consumed_names(experiment.graph.nodes[node])
    matches = [current.matches[name] for name in names if name in current.matches]
    return all(m.sketch.exact or m.is_right(experiment.tolerance) for m in matches)


def are_one_operation(
    graph: Graph,
    comparison: Comparison,
    node: int,
    later: int,
    true_value: TracedValue,
) -> bool:
    """Whether an origin and the node that was confirmed behind it compute one operation of the module: then the origin is guilty."""
    mine = comparison.nearest.get(node)
    value = comparison.sketches.get(node)
    if mine is not None and (value is None or value.informative):
        related = {true_value.place, true_value.outer, *true_value.inputs} - {None}
        if {mine.place, mine.outer} & related:
            return True
    here: int | None = later
    while here is not None and here != node and graph.nodes[here].op_type in _LAYOUT:
        here = graph.producers.get(graph.nodes[here].input[0])
    return here == node


@dataclass(frozen=True, slots=True)
class Upstream:
    """The way from a suspect to the producers of what it reads."""

    experiment: Experiment
    current: Round

    @property
    def _graph(self) -> Graph:
        """The main graph."""
        return self.experiment.graph

    @property
    def _matches(self) -> Mapping[str, Match]:
        """The matches of this round."""
        return self.current.matches

    def earliest_fixing_producer(self, node: int) -> Confirmation | None:
        """The earliest producer whose true value fixes the answers as well as the suspect's does."""
        best: Confirmation | None = None
        for _ in range(_MOST_STEPS_UP):
            step = self._fixing_producer(node)
            if step is None:
                break
            best = step
            node = step.node
        if best is None:
            return None
        return replace(best, node=self._before_layout(best.node))

    def hidden_fault(self) -> Confirmation | None:
        """A value that is slightly wrong, and was excused by a right value behind it: a sum with a large mask, or a softmax of equals, hides it."""
        strict = compare(self._graph, self._matches, self.experiment.tolerance, excuse=False)
        near = [
            node
            for node in strict.origins
            if node in strict.nearest and strict.gaps[node] < limits.NEAR
        ]
        for node in near[:_MOST_HIDDEN]:
            option = strict.nearest[node]
            name = strict.wrong_values[node]
            error = self.experiment.error_with(option, name, self.current.replacements)
            if limits.fixes(error, self.current.error):
                self.current.truths[node] = option
                self.current.comparison.note_value(node, name, strict.sketches[node])
                return Confirmation(
                    node=node,
                    true_value=option,
                    error=error,
                )
        return None

    def exchanged_outputs(self, node: int) -> Confirmation | None:
        """A node before this one whose outputs are the module's values in a wrong order: no single true value fixes that."""
        producers = (self._split_before(name) for name in consumed_names(self._graph.nodes[node]))
        for producer in dict.fromkeys(producers):
            if producer is None:
                continue
            names = self._graph.nodes[producer].output
            for order in self._other_orders(names):
                replacements = dict(zip(names, order, strict=True))
                error = self.experiment.error({**self.current.replacements, **replacements})
                if limits.fixes(error, self.current.error):
                    return Confirmation(node=producer, true_value=None, error=error)
        return None

    def _other_orders(self, names: Sequence[str]) -> Iterator[tuple[Array, ...]]:
        """The module's values that these are, in every other order; nothing where one is not the module's, or of another size."""
        values: list[Array] = []
        for name in names:
            match = self._matches.get(name)
            if match is None or match.traced is None:
                return
            value = self.experiment.fetch(match.traced.place)
            if value is None or not match.is_right(self.experiment.tolerance):
                return
            values.append(value)
        if len({value.size for value in values}) == 1:
            yield from itertools.islice(itertools.permutations(values), 1, None)

    def _split_before(self, name: str) -> int | None:
        """The node with a few outputs that computed what was only moved since."""
        producer = self._graph.producers.get(name)
        while producer is not None and self._graph.nodes[producer].op_type in _LAYOUT:
            producer = self._graph.producers.get(self._graph.nodes[producer].input[0])
        if producer is None:
            return None
        outputs = self._graph.nodes[producer].output
        if not 2 <= len(outputs) <= _MOST_EXCHANGED:
            return None
        return producer

    def _before_layout(self, node: int) -> int:
        """The node that computed what the given one only moves or casts: such a node has no values of its own to get wrong.

        An Identity stays, since it may stand where an operation was removed.
        """
        while self._moves_wrong_content(node):
            node = self._graph.producers[self._graph.nodes[node].input[0]]
        return node

    def _moves_wrong_content(self, node: int) -> bool:
        """Whether a node moves or casts values that are not the module's because of its input."""
        proto = self._graph.nodes[node]
        if node not in self.current.truths or proto.op_type not in _LAYOUT - {"Identity"}:
            return False
        output = self._matches.get(proto.output[0])
        source = self._matches.get(proto.input[0])
        producer = self._graph.producers.get(proto.input[0])
        if output is None or source is None or producer is None:
            return False
        true_sketch = self.current.truths[node].sketch
        tolerance = self.experiment.tolerance
        if distance(output.sketch, true_sketch, any_order=True) <= tolerance:
            return False
        if source.gap > tolerance or source.traced is None or source.traced.outer is not None:
            return True
        # the input is a whole result of the module: it is right, unless its producer passes its own input on
        return self._passes_input_on(producer, source.sketch)

    def _fixing_producer(self, node: int) -> Confirmation | None:
        """The first producer of what a node reads whose true value fixes the answers."""
        for name in consumed_names(self._graph.nodes[node]):
            producer = self._graph.producers.get(name)
            match = self._matches.get(name)
            if producer is None or match is None:
                continue
            if self._graph.nodes[producer].op_type == "Constant":
                continue  # a constant is right or wrong for whoever reads it
            self.current.comparison.note_value(producer, name, match.sketch)
            for option in self._alternatives(node, producer, name, match):
                error = self.experiment.error_with(option, name, self.current.replacements)
                if limits.fixes(error, self.current.error):
                    self.current.truths[producer] = option
                    fix = Confirmation(
                        node=producer,
                        true_value=option,
                        error=error,
                    )
                    return self._earlier_unexcused(producer, name) or fix
        return None

    def _alternatives(
        self,
        node: int,
        producer: int,
        name: str,
        match: Match,
    ) -> list[TracedValue]:
        """The traced values that a producer may have had to compute instead.

        1. The traced value itself, where the file's is near but not the same: what follows may amplify the difference, as a
           logarithm does with a bound of 1e-5 for 1e-10.
        2. Anything of its shape, for a node that does nothing or depends on sizes alone. One that does nothing may stand where
           its value was to be broadcast: what the module computes from that value, too. Not so for one that only moves or
           casts: it does what it should, and a larger value in its place would hide that its neighbour is wrong.
        3. The traced value itself, where the file has its elements in another order: that may be a transposed copy, or not.
        4. Else, for a node that selects, what the suspect's own operation reads, or another part of the same split.
        """
        options = [
            option
            for option in self.experiment.counterparts(producer, self.current.comparison)
            if distance(option.sketch, match.sketch) > self.experiment.tolerance
        ]
        near: list[TracedValue] = []
        if match.traced is not None and 0.0 < match.gap <= limits.NEAR:  # step 1
            near = [match.traced]
        op_type = self._graph.nodes[producer].op_type
        moves = op_type in _LAYOUT - {"Identity"}
        if self._is_idle(producer, match.sketch):  # step 2
            larger = [] if moves else self._broadcast_results(match.traced)
            return near + options[:_OPTIONS_OF_IDLE] + larger
        if self._depends_on_sizes(name, match):
            return options[:_OPTIONS_OF_SIZES]
        if not match.same_layout and match.traced is not None:  # step 3
            return [match.traced]
        true_value = self.current.truths.get(node)
        if true_value is None or op_type not in _SELECTING:
            return near
        return near + self._other_selections(op_type, match.traced, true_value, options)  # step 4

    def _broadcast_results(self, passed: TracedValue | None) -> list[TracedValue]:
        """The first larger values that the module computes from this one, or from a view of it."""
        if passed is None:
            return []
        traced = self.experiment.traced
        key = content(passed.sketch)
        larger = [
            value
            for value in traced
            if value.sketch.count > passed.sketch.count
            and any(content(traced[place].sketch) == key for place in value.inputs)
        ]
        return larger[:_OPTIONS_BROADCAST]

    def _other_selections(
        self,
        op_type: str,
        selected: TracedValue | None,
        true_value: TracedValue,
        options: Sequence[TracedValue],
    ) -> list[TracedValue]:
        """What the operation of the true value reads, then other results of the call that gave the selected one."""
        if selected is None:
            return self._among_read(true_value, options)
        alternatives: list[TracedValue] = []
        if selected.op not in _EQUIVALENTS.get(op_type, ()):
            # otherwise the node does what it should, and what follows is missing
            alternatives = self._among_read(true_value, options)
        if selected.call >= 0:
            same_call = [option for option in options if option.call == selected.call]
            alternatives += same_call[:_OPTIONS_SAME_CALL]
        return alternatives

    def _among_read(
        self, true_value: TracedValue, options: Sequence[TracedValue]
    ) -> list[TracedValue]:
        """The first options that the operation of the true value reads."""
        read = set(self._read_by(true_value))
        return [option for option in options if option.place in read][:_OPTIONS_READ]

    def _depends_on_sizes(self, name: str, match: Match) -> bool:
        """Whether a value is none of the module's, and is an integer or depends on weights and shapes alone."""
        if match.sketch.count <= 1 or match.is_right(self.experiment.tolerance):
            return False
        return match.sketch.exact or name in self._graph.static

    def _read_by(self, value: TracedValue) -> Iterator[int]:
        """What an operation reads, and what that is a view of."""
        traced = self.experiment.traced
        waiting = list(value.inputs)
        for _ in range(_MOST_READ):
            if not waiting:
                return
            place = waiting.pop(0)
            yield place
            source = traced[place]
            if source.sketch.count == value.sketch.count or len(source.inputs) == 1:
                waiting += source.inputs

    def _earlier_unexcused(self, producer: int, name: str) -> Confirmation | None:
        """An origin before the producer that the producer's value had excused."""
        comparison = compare(self._graph, self._matches, self.experiment.tolerance, {name})
        earlier = [node for node in comparison.origins if node < producer]
        fix = first_fix(
            self.experiment,
            replace(
                self.current,
                comparison=comparison,
                guilty=(),
            ),
            earlier[:_MOST_ORIGINS],
            _OPTIONS_OF_ORIGIN,
        )
        if fix is None:
            return None
        known = self.current.comparison
        known.sketches.setdefault(fix.node, comparison.sketches[fix.node])
        known.wrong_values.setdefault(fix.node, comparison.wrong_values[fix.node])
        return fix

    def _is_idle(self, node: int, output: Sketch) -> bool:
        """Whether a node passes its input on, and that is no accident of a few numbers."""
        if self._graph.nodes[node].op_type == "Identity":
            return True
        enough = output.informative or (output.exact and output.count >= 8)
        return enough and self._passes_input_on(node, output)

    def _passes_input_on(self, node: int, output: Sketch) -> bool:
        """Whether an output equals one of the inputs of its node."""
        names = list(consumed_names(self._graph.nodes[node]))
        feeds = self.experiment.feeds
        inputs = [self._matches[name].sketch for name in names if name in self._matches]
        inputs += [sketch(feeds[name]) for name in names if name in feeds]
        return any(distance(output, source) <= self.experiment.tolerance for source in inputs)
