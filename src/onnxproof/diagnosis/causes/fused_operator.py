"""A fused operator does not say what the operations said that it stands for.

What it is: one node of ONNX Runtime's domain (Attention, GroupQueryAttention, RotaryEmbedding, SkipLayerNormalization, FusedMatMul ...) stands for a
dozen of the module's operations. An attribute of it, one of its constants, or which value it reads in which place is wrong.

Why it happens: an optimizer or a model builder that knows another architecture: the number of heads of another size of the model, a scale that the module does not have,
neighbours turned instead of halves, an epsilon by default, a window or a cap that was forgotten, a mask that the fused form does not read.

How to see it: the node is wrong while its inputs are right. The node alone, evaluated in float64 with one thing changed, gives what the module gives there; and so does
the whole file.

What it is called: `attribute`, `masking` (a mask, a window, a causal flag), `position` (no rotation), `weights`, `input-order`, `axis-order`.

How to fix it: the fix writes that one thing. At its source: tell the optimizer the model's type, its heads and its hidden size.

Example: `RotaryEmbedding(interleaved=1)` for a model that turns halves.
"""

from onnxproof.diagnosis.counterfactuals.fused_operators import try_fused_operators
from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench

TITLE = "a fused operator is not what it stands for"
PRICE = -32
CODES = ("attribute", "masking", "position", "weights", "input-order", "axis-order")


def test(workbench: Workbench) -> Tried | str:
    """One thing of a located fused operator changed at a time."""
    return try_fused_operators(workbench)
