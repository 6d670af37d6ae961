"""Numbers are rounded by another rule.

What it is: half away from zero instead of half to even, truncation instead of floor, for negative numbers or exact
halves.

Why it happens: integer division and rounding have as many rules as there are frameworks.

How to see it: with the other rounding operator in the node's place the answers are right.

How to fix it: write the rule out in the module (`torch.div(a, b, rounding_mode="floor")`), or take the mended file.

Example: `x // 3` of negative integers.
"""

from onnxproof.causes._swap import other_operator
from onnxproof.causes._workbench import Tried, Workbench

TITLE = "numbers are rounded by another rule"
PRICE = 15


def test(bench: Workbench) -> Tried | str:
    """Each other rounding operator in the place of a located one."""
    return other_operator(bench, [("Round", "Floor", "Ceil"), ("ReduceMax", "ReduceMin", "ReduceMean", "ReduceSum")])
