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

from onnxproof.diagnosis.counterfactuals import changed_reference
from onnxproof.diagnosis.counterfactuals.changed_reference import (
    Variant,
    pass_operand,
    skip_call,
)
from onnxproof.diagnosis.counterfactuals.missing_calls import try_missing_calls
from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench
from onnxproof.reference.traced_value import TracedValue

TITLE = "what the module writes in place is lost in the file"
PRICE = 40
CODES = ("mutation", "missing-op")
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


def test(workbench: Workbench) -> Tried | str:
    """Leave calls out of the module: what was written stays unwritten, what was combined stays single.

    1. All writes in place, and those of each line.
    2. Each suspected call alone.
    3. Several calls in a row.
    """
    tried: Tried | str = _skip_writes(workbench) or workbench.try_in_reference(_variants)  # 1, 2
    if isinstance(tried, str) or not tried.proven:
        return try_missing_calls(workbench) or tried  # 3
    return tried


def _skip_writes(workbench: Workbench) -> Tried | None:
    """The module with none of its writes in place, or with those of one line left out."""
    if workbench.located.module_session is None:
        return None
    for writes in _groups_of_writes(workbench):
        changes = {entry.call: changed_reference.skip_call() for entry in writes}
        call = changed_reference.describe_call(writes[0])
        tried = workbench.try_counterfactual(
            changed_reference.changed_calls(workbench, changes),
            f"the module with {call} left out, and what else it writes in place, gives what the candidate gives",
        )
        if tried is not None:
            return tried
    return None


def _groups_of_writes(workbench: Workbench) -> Iterator[list[TracedValue]]:
    """All writes in place, then those of each line."""
    writes = [
        entry for entry in workbench.located.traced_values if entry.call >= 0 and _is_write(entry)
    ]
    if not writes:
        return
    yield writes
    for line in dict.fromkeys(entry.source for entry in writes):
        yield [entry for entry in writes if line is None or entry.source == line]


def _is_write(entry: TracedValue) -> bool:
    return entry.op in _WRITES or entry.op.endswith("_")


def _variants(entry: TracedValue) -> Iterator[Variant]:
    code = "mutation" if _is_write(entry) else "missing-op"
    yield Variant(what="left out", change=pass_operand(entry), code=code)
    if len(entry.inputs) > 1:
        yield Variant(
            what="left out (its second operand goes through)", change=skip_call(1), code=code
        )
