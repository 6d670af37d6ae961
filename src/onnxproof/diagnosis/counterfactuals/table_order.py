"""Columns, classes and categories in another order than the reference has them."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from onnxproof.diagnosis.counterfactuals.workbench import (
    Array,
    Tried,
    Workbench,
    attribute_value,
    node_name,
    set_attribute,
)
from onnxproof.diagnosis.judge import Counterfactual
from onnxproof.diagnosis.trial_cases import TrialCase
from onnxproof.numerics.relative_error import relative_error

_LISTS = (
    "cats_strings",
    "cats_int64s",
    "classlabels_strings",
    "classlabels_int64s",
    "classlabels_ints",
)
"""Attributes that name the columns of what a node gives."""
_MOST_COLUMNS = 512
"""Columns of an output that are paired with others (not measured)."""


def try_sorted_names(workbench: Workbench) -> Tried | str:
    """The categories or classes of a node in sorted order, which is the order of every library."""
    for node in workbench.model.graph.node:
        for name in _LISTS:
            names: Sequence[Any] = attribute_value(node, name, [])
            if len(names) < 2 or list(names) == sorted(names):
                continue
            tried = workbench.try_model(
                workbench.with_node(
                    node,
                    partial(set_attribute, name=name, value=sorted(names)),
                ),
                evidence=f"`{name}` of {node_name(node)} are in another order than the reference's; sorted, the answers are right",
                fix=f"set `{name}` of {node_name(node)} to {_shown(sorted(names))}",
                code="output-order",
                node=node_name(node),
            )
            if tried is not None:
                return tried
    return "the categories and classes of the file are in order"


def try_other_columns(workbench: Workbench) -> Tried | str:
    """The columns of one output in the order in which they are nearest to the reference's."""
    outputs = workbench.candidate_outputs
    if outputs is None:
        return "the file gives no answer"
    for place, (answer, truth) in enumerate(zip(outputs, workbench.scene.truth, strict=True)):
        order = _order(answer, truth)
        if order is None:
            continue

        def error(case: TrialCase, place: int = place, order: Array = order) -> float:
            answers = list(case.outputs or ())
            array = answers[place] if answers else None
            if array is None or array.ndim < 2 or array.shape[-1] != len(order):
                return float("inf")
            answers[place] = array[..., order]
            return case.scene.error(answers)

        name = workbench.scene.signature.outputs[place].name
        tried = workbench.try_counterfactual(
            Counterfactual(error=error, in_reference=False),
            f"the columns of `{name}` are exchanged; in the order {order.tolist()} the answers are right",
            code="output-order",
        )
        if tried is not None:
            return tried
    return "no other order of columns comes right"


def _order(answer: Array | None, truth: Array) -> Array | None:
    """Which column of an answer is which of the truth; None where each is its own, or two would be the same."""
    if answer is None or answer.ndim < 2 or answer.shape != truth.shape:
        return None
    width = truth.shape[-1]
    if not 2 <= width <= _MOST_COLUMNS:
        return None
    columns, wanted = answer.reshape(-1, width).T, truth.reshape(-1, width).T
    order = np.array(
        [int(np.argmin([relative_error(column, one) for column in columns])) for one in wanted]
    )
    is_exchange = len(set(order.tolist())) == width and not np.array_equal(order, np.arange(width))
    return order if is_exchange else None


def _shown(names: Sequence[Any]) -> str:
    words = [name.decode() if isinstance(name, bytes) else str(name) for name in names]
    return ", ".join(words[:6])
