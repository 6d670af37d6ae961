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
from typing import TYPE_CHECKING

from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench, set_attribute
from onnxproof.results import Fix

if TYPE_CHECKING:
    from onnxproof.diagnosis.counterfactuals.changed_reference import Variant
    from onnxproof.reference.traced_value import TracedValue

TITLE = "writes to the same place are combined otherwise"
PRICE = 19
_REDUCTIONS = ("sum", "prod", "amax", "amin", "mean")


def test(bench: Workbench) -> Tried | str:
    """Every other reduction in the module's own scatter."""
    return bench.whatif(_variants, cure=lambda: _reduced(bench))


def _reduced(bench: Workbench) -> Tried | str:
    """Every other reduction in the located scatter nodes."""
    for node in bench.nodes[:3]:
        for reduction in (
            ("add", "none", "mul", "max", "min")
            if node.op_type in ("ScatterElements", "ScatterND")
            else ()
        ):
            model = bench.with_node(node, partial(set_attribute, name="reduction", value=reduction))
            after = bench.distance(model)
            if bench.cured(after):
                name = node.name or node.output[0]
                return Tried(
                    proven=True,
                    after=after,
                    model=model,
                    evidence=f"with reduction `{reduction}` at {name} the answers are right",
                    fix=Fix(kind="graph", what=f"set `reduction` of {name} to `{reduction}`"),
                )
    return "no other reduction of a named node mends it"


def _variants(entry: "TracedValue") -> "Iterator[Variant]":
    import torch

    from onnxproof.diagnosis.counterfactuals.changed_reference import (
        Variant,
        instead,
        skipped,
        with_arguments,
    )

    if "accumulate" in entry.arguments:
        yield Variant(
            what=f"with accumulate={not entry.arguments['accumulate']}",
            change=with_arguments(accumulate=not entry.arguments["accumulate"]),
        )
    if "include_self" in entry.arguments:
        for keep in (True, False):
            for reduce in _REDUCTIONS:
                if (reduce, keep) != (
                    entry.arguments.get("reduce"),
                    entry.arguments["include_self"],
                ):
                    yield Variant(
                        what=f"reduced by `{reduce}`"
                        + ("" if keep else " without the value that was there"),
                        change=with_arguments(reduce=reduce, include_self=keep),
                    )
    if entry.op in ("scatter_add", "scatter_reduce", "scatter_add_", "scatter_reduce_"):
        yield Variant(
            what="with the last write kept",
            change=instead(lambda x, dim, index, source, *rest: x.scatter(dim, index, source)),
        )
    if entry.op == "scatter":
        yield Variant(
            what="with the writes added",
            change=instead(lambda x, dim, index, source, *rest: x.scatter_add(dim, index, source)),
        )
    if entry.op in ("index_add", "index_add_"):
        yield Variant(
            what="with the last write kept",
            change=instead(
                lambda x, dim, index, source, *rest: torch.index_copy(x, dim, index, source)
            ),
        )
    if entry.op in (
        "index_copy",
        "index_put",
        "index_put_",
        "masked_scatter",
        "index_fill",
        "slice_scatter",
        "select_scatter",
    ):
        yield Variant(what="left out", change=skipped(), code="mutation")
