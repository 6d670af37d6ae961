"""A comparison has its boundary on the other side.

What it is: `>` where the module has `>=`, or the comparison turned round. Only values exactly on the boundary show it.

Why it happens: rewrites such as `not (a < b)`, operators that a standard lacks, hand-made graphs.

How to see it: with the other comparison in the node's place the answers are right.

How to fix it: take the mended file, or export again.

Example: an age limit that is inclusive in the module and exclusive in the file.
"""

from onnxproof.causes._swap import other_operator
from onnxproof.causes._workbench import Tried, Workbench

TITLE = "a comparison has its boundary on the other side"
PRICE = 14


def test(bench: Workbench) -> Tried | str:
    """Each other comparison in the place of a located one."""
    return other_operator(bench, [("Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal")])
