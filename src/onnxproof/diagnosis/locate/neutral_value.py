"""A value that the module never computes, such as a mask where it has none: the sum or product that reads it is right without it."""

import numpy as np

from onnxproof.diagnosis import limits
from onnxproof.diagnosis.locate.experiment import Confirmation, Experiment, Round

_NEUTRAL = {"Add": 0.0, "Sub": 0.0, "Mul": 1.0, "Div": 1.0}
"""What changes nothing as the second operand, or for a sum and a product as either."""


def confirm_neutral_value(experiment: Experiment, first: Round, node: int) -> Confirmation | None:
    """The producer of an operand which none of the module's values is, where the answers are right with the operation doing nothing."""
    graph = experiment.graph
    proto = graph.nodes[node]
    neutral = _NEUTRAL.get(proto.op_type)
    if neutral is None:
        return None
    for name in proto.input:
        match = first.matches.get(name)
        producer = graph.producers.get(name)
        if match is None or producer is None or match.is_right(experiment.tolerance):
            continue
        nothing = np.full(match.sketch.shape, neutral)
        error = experiment.error({name: nothing})
        if limits.fixes(error, first.error):
            return Confirmation(node=producer, true_value=None, error=error)
    return None
