"""An operation of the module is missing from the file; often an in-place write that was lost.

What it is: what the module does between two values has no counterpart in the graph.

Why it happens: tracing does not see a write through a view (`b = a.t(); b[0] = 9`), and optimisers remove what they
take for a no-op.

How to see it: the node that reads the unchanged value is right as soon as it is given what the module gives its own
operation.

How to fix it: write out of place (`torch.where`, `index_put`), or export with `dynamo=True`.

Example: a write through a transposed view.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench

if TYPE_CHECKING:
    from onnxproof.diagnosis.counterfactuals.changed_reference import Variant
    from onnxproof.reference.traced_value import TracedValue

TITLE = "what the module writes in place is lost in the file"
PRICE = 40
_WRITES = frozenset(
    {
        "copy_",
        "copy",
        "index_put",
        "index_put_",
        "slice_scatter",
        "select_scatter",
        "fill_",
        "zero_",
        "index_fill_",
        "masked_fill_",
        "scatter_",
    }
)


def test(bench: Workbench) -> Tried | str:
    """Leave each suspected call out of the module: what was written stays unwritten, what was combined stays single."""
    return _unwritten(bench) or bench.whatif(_variants)


def _unwritten(bench: Workbench) -> Tried | None:
    """The module with none of its writes in place, or with those of one line left out."""
    from onnxproof.diagnosis.counterfactuals import changed_reference

    writes = [
        e
        for e in bench.located.traced_values
        if e.call >= 0 and (e.op in _WRITES or e.op.endswith("_"))
    ]
    for line in (
        [None, *dict.fromkeys(e.source for e in writes)]
        if writes and bench.located.module_session is not None
        else ()
    ):
        group = [e for e in writes if line is None or e.source == line]
        after = changed_reference.distance(
            bench, {e.call: changed_reference.skipped() for e in group}
        )
        if after <= bench.limit and after < bench.before / 5:
            return Tried(
                proven=True,
                by_reference=True,
                after=after,
                evidence=f"the module with {changed_reference.told(group[0])} left out, and what else it writes in place, gives what the candidate gives",
            )
    return None


def _variants(entry: "TracedValue") -> "Iterator[Variant]":
    from onnxproof.diagnosis.counterfactuals.changed_reference import Variant, skipped

    code = "mutation" if entry.op in _WRITES or entry.op.endswith("_") else "missing-op"
    for place in range(max(1, min(len(entry.inputs), 2))):
        yield Variant(
            what="left out" if place == 0 else "left out (its second operand goes through)",
            change=skipped(place),
            code=code,
        )
