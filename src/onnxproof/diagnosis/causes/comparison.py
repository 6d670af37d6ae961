"""A comparison has its boundary on the other side.

What it is: `>` where the module has `>=`, or the comparison turned round. Only values exactly on the boundary show it.

Why it happens: rewrites such as `not (a < b)`, operators that a standard lacks, hand-made graphs.

How to see it: with the other comparison in the node's place the answers are right.

How to fix it: take the mended file, or export again.

Example: an age limit that is inclusive in the module and exclusive in the file.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnxproof.diagnosis.counterfactuals.swapped_operator import other_operator
from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench

if TYPE_CHECKING:
    from onnxproof.diagnosis.counterfactuals.changed_reference import Variant
    from onnxproof.reference.traced_value import TracedValue

TITLE = "a comparison has its boundary on the other side"
PRICE = 14
_COMPARISONS = ("gt", "ge", "lt", "le", "eq", "ne")


def test(bench: Workbench) -> Tried | str:
    """Each other comparison in the place of the module's own, and of a located one."""
    return bench.whatif(
        _variants,
        cure=lambda: other_operator(
            bench, [("Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal")]
        ),
    )


def _variants(entry: "TracedValue") -> "Iterator[Variant]":
    import torch

    from onnxproof.diagnosis.counterfactuals.changed_reference import Variant, instead

    for other in _COMPARISONS if entry.op in _COMPARISONS else ():
        if other != entry.op:
            yield Variant(what=f"as `{other}`", change=instead(getattr(torch, other)))
    if entry.op in ("any", "all", "nonzero"):
        yield Variant(
            what="of the values cut to integers",
            change=lambda func, args, kwargs: func(
                torch.trunc(args[0].double()).to(torch.int64), *args[1:], **kwargs
            ),
        )
