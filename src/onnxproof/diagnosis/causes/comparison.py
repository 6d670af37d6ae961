"""A comparison has its boundary on the other side.

What it is: `>` where the module has `>=`, or the comparison turned round. Only values exactly on the boundary show it.

Why it happens: rewrites such as `not (a < b)`, operators that a standard lacks, hand-made graphs.

How to see it: with the other comparison in the node's place the answers are right.

How to fix it: take the mended file, or export again.

Example: an age limit that is inclusive in the module and exclusive in the file. The branches of a tree that go left below a threshold, and
should go left on it, too.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from onnxproof.diagnosis.counterfactuals import tree_splits
from onnxproof.diagnosis.counterfactuals.swapped_operator import try_other_operators
from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench
from onnxproof.reference.traced_value import TracedValue

if TYPE_CHECKING:
    from onnxproof.diagnosis.counterfactuals.changed_reference import Arguments, Keywords, Variant

TITLE = "a comparison has its boundary on the other side"
PRICE = 14
_ORDERS = ("gt", "ge", "lt", "le")
_CALLS = {**dict.fromkeys(_ORDERS, _ORDERS), "eq": ("ne", "ge", "le"), "ne": ("eq", "gt", "lt")}
"""What each comparison may have become. An order never becomes `eq`: of fractions that is false everywhere, and would stand for any branch that is not taken."""
_OPERATORS = ("Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal")


def test(workbench: Workbench) -> Tried | str:
    """Each other comparison in the place of the module's own, and of a located one; in the branches of trees."""
    if tree_splits.has_trees(workbench):
        return tree_splits.try_other_branches(workbench)
    return workbench.try_in_reference(
        _variants, remedy=lambda: try_other_operators(workbench, [_OPERATORS], never=("Equal",))
    )


def _variants(entry: TracedValue) -> "Iterator[Variant]":
    import torch

    from onnxproof.diagnosis.counterfactuals.changed_reference import Variant, call_instead

    for other in _CALLS.get(entry.op, ()):
        if other != entry.op:
            yield Variant(what=f"as `{other}`", change=call_instead(getattr(torch, other)))
    if entry.op in ("any", "all", "nonzero"):
        yield Variant(what="of the values cut to integers", change=_of_integers)


def _of_integers(func: Any, args: "Arguments", kwargs: "Keywords") -> Any:
    import torch

    values = torch.trunc(args[0].double()).to(torch.int64)
    return func(values, *args[1:], **kwargs)
