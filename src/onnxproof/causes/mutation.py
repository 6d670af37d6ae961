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

from onnxproof.causes._workbench import Tried, Workbench

if TYPE_CHECKING:
    from onnxproof.causes._whatif import Variant
    from onnxproof.locate._trace import Entry

TITLE = "what the module writes in place is lost in the file"
PRICE = 40
_WRITES = frozenset({"copy_", "copy", "index_put", "index_put_", "slice_scatter", "select_scatter", "fill_", "zero_", "index_fill_", "masked_fill_", "scatter_"})


def test(bench: Workbench) -> Tried | str:
    """Leave each suspected call out of the module: what was written stays unwritten, what was combined stays single."""
    return bench.whatif(_variants)


def _variants(entry: "Entry") -> "Iterator[Variant]":
    from onnxproof.causes._whatif import Variant, skipped

    code = "mutation" if entry.op in _WRITES or entry.op.endswith("_") else "missing-op"
    for place in range(max(1, min(len(entry.inputs), 2))):
        yield Variant(what="left out" if place == 0 else "left out (its second operand goes through)", change=skipped(place), code=code)
