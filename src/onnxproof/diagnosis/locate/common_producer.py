"""One value that several guilty nodes read, such as a mask of all layers: true, it fixes at once what each of them alone does not."""

from collections.abc import Iterator, Sequence

from onnxproof.diagnosis import limits
from onnxproof.diagnosis.locate.experiment import Confirmation, Experiment, Round
from onnxproof.numerics.sketch import distance
from onnxproof.onnxmodel.graph import Graph, consumed_names

_MOST_STEPS = 6
"""Nodes between a value and a guilty node that reads it: a mask is sliced, expanded and added before a softmax. Not measured."""
_MOST_VALUES = 8
"""Shared values that are tried, the nearest first. Not measured."""
_MOST_OPTIONS = 10
"""Traced values that are tried in the place of one; each is an evaluation of the file. Not measured."""


def confirm_common_producer(
    experiment: Experiment, first: Round, guilty: Sequence[int]
) -> Confirmation | None:
    """The node whose true value fixes the answers at once, where several had to be replaced."""
    shared = list(_shared_values(experiment.graph, guilty))
    for name in shared[:_MOST_VALUES]:
        producer = experiment.graph.producers[name]
        match = first.matches.get(name)
        if match is None:
            continue
        first.comparison.note_value(producer, name, match.sketch)
        options = [
            option
            for option in experiment.counterparts(producer, first.comparison)
            if distance(option.sketch, match.sketch) > experiment.tolerance
        ]
        for option in options[:_MOST_OPTIONS]:
            error = experiment.error_with(option, name, {})
            if limits.fixes(error, first.error):
                first.truths[producer] = option
                return Confirmation(node=producer, true_value=option, error=error)
    return None


def _shared_values(graph: Graph, guilty: Sequence[int]) -> Iterator[str]:
    """Computed values that all of these nodes come from in a few steps, the nearest first."""
    steps = [_steps_to(graph, node) for node in guilty]
    shared = set(steps[0]).intersection(*steps[1:])
    nearest_first = sorted(shared, key=lambda name: sum(known[name] for known in steps))
    for name in nearest_first:
        producer = graph.producers.get(name)
        if producer is not None and graph.nodes[producer].op_type != "Constant":
            yield name


def _steps_to(graph: Graph, node: int) -> dict[str, int]:
    """The values before a node, and how many nodes are between."""
    steps: dict[str, int] = {}
    reached = [node]
    for step in range(_MOST_STEPS):
        names = [
            name
            for place in reached
            for name in consumed_names(graph.nodes[place])
            if name not in steps
        ]
        steps.update(dict.fromkeys(names, step))
        reached = [graph.producers[name] for name in names if name in graph.producers]
    return steps
