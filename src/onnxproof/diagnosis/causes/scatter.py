"""Writes to the same place are combined otherwise.

What it is: two updates of one row are added on one side, and the last (or any) of them wins on the other; or a mean, a
maximum or the row's own value is left out.

Why it happens: the standard's scatter operators leave the order of duplicates open and know fewer reductions, and
exporters drop the attribute.

How to see it: the module's own scatter with another reduction gives what the candidate gives; without duplicate
indices the two agree.

How to fix it: export with a newer opset, or write the reduction out (`index_add`, a sum divided by counts).

Example: `index_put(..., accumulate=True)` with an index that repeats.
"""

from collections.abc import Iterator
from functools import partial

import torch

from onnxproof.diagnosis import limits
from onnxproof.diagnosis.counterfactuals.changed_reference import (
    Variant,
    call_instead,
    skip_call,
    with_arguments,
)
from onnxproof.diagnosis.counterfactuals.workbench import (
    Tried,
    Workbench,
    node_name,
    set_attribute,
)
from onnxproof.reference.traced_value import TracedValue

TITLE = "writes to the same place are combined otherwise"
PRICE = 19
CODES = ("scatter", "mutation")
_CALL_REDUCTIONS = ("sum", "prod", "amax", "amin", "mean")
_NODE_REDUCTIONS = ("add", "none", "mul", "max", "min")
_WRITES = (
    "index_copy",
    "index_put",
    "index_put_",
    "masked_scatter",
    "index_fill",
    "slice_scatter",
    "select_scatter",
)


def test(workbench: Workbench) -> Tried | str:
    """Every other reduction in the module's own scatter, and in the located scatter nodes."""
    return workbench.try_in_reference(_variants, remedy=lambda: _try_reductions(workbench))


def _try_reductions(workbench: Workbench) -> Tried | str:
    """Every other reduction in the located scatter nodes."""
    for node in workbench.nodes[: limits.SUSPECTS_EDITED]:
        if node.op_type not in ("ScatterElements", "ScatterND"):
            continue
        name = node_name(node)
        for reduction in _NODE_REDUCTIONS:
            change = partial(set_attribute, name="reduction", value=reduction)
            tried = workbench.try_model(
                workbench.with_node(node, change),
                evidence=f"with reduction `{reduction}` at {name} the answers are right",
                fix=f"set `reduction` of {name} to `{reduction}`",
            )
            if tried is not None:
                return tried
    return "no other reduction of a named node mends it"


def _variants(entry: TracedValue) -> Iterator[Variant]:
    if "accumulate" in entry.arguments:
        accumulate = not entry.arguments["accumulate"]
        yield Variant(
            what=f"with accumulate={accumulate}", change=with_arguments(accumulate=accumulate)
        )
    if "include_self" in entry.arguments:
        yield from _other_reductions(entry)
    yield from _other_writes(entry)
    if entry.op in _WRITES:
        yield Variant(what="left out", change=skip_call(), code="mutation")


def _other_reductions(entry: TracedValue) -> Iterator[Variant]:
    present = (entry.arguments.get("reduce"), entry.arguments["include_self"])
    for include_self in (True, False):
        for reduce in _CALL_REDUCTIONS:
            if (reduce, include_self) == present:
                continue
            what = f"reduced by `{reduce}`"
            if not include_self:
                what += " without the value that was there"
            yield Variant(
                what=what, change=with_arguments(reduce=reduce, include_self=include_self)
            )


def _other_writes(entry: TracedValue) -> Iterator[Variant]:
    """The last write kept instead of a sum, and the reverse."""
    if entry.op in ("scatter_add", "scatter_reduce", "scatter_add_", "scatter_reduce_"):
        yield Variant(
            what="with the last write kept",
            change=call_instead(lambda x, dim, index, source, *rest: x.scatter(dim, index, source)),
        )
    if entry.op == "scatter":
        yield Variant(
            what="with the writes added",
            change=call_instead(
                lambda x, dim, index, source, *rest: x.scatter_add(dim, index, source)
            ),
        )
    if entry.op in ("index_add", "index_add_"):
        yield Variant(
            what="with the last write kept",
            change=call_instead(
                lambda x, dim, index, source, *rest: torch.index_copy(x, dim, index, source)
            ),
        )
