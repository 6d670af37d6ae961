"""A value of the example was written into the file.

What it is: a number that depends on the input became a constant while tracing.

Why it happens: `.item()`, `float(x.max())`, `x.tolist()`, a Python branch on a value.

How to see it: the node is right again when its constant is replaced by what the module computes for this input.

How to fix it: stay in tensors (`x / x.abs().max()`), use `torch.where` for a branch, or `torch.cond`.

Example: normalising by `x.abs().max().item()`.
"""

import numpy as np

from onnxproof.causes._workbench import Tried, Workbench

TITLE = "a value of the example was written into the file"
PRICE = 12


def test(bench: Workbench) -> Tried | str:
    """Put the module's own number for the witness in the place of the constant."""
    scalars = [e for e in bench.scene.entries if e.sketch.count == 1]
    for node in bench.nodes[:2]:
        for place, _, value in bench.constants(node):
            if value.size != 1:
                continue
            for entry in scalars[:40]:
                true = bench.scene.fetch(entry.place)
                if true is None or float(np.asarray(true).reshape(-1)[0]) == float(value.reshape(-1)[0]):
                    continue
                number = float(np.asarray(true).reshape(-1)[0])
                after = bench.distance(bench.with_constant(node, place, np.full(value.shape, number, value.dtype)))
                if bench.cured(after):
                    where = f" at {entry.source.file}:{entry.source.line}: `{entry.source.text}`" if entry.source else ""
                    return Tried(proven=True, after=after, evidence=f"{node.name or node.output[0]} holds {float(value.reshape(-1)[0]):g}; "
                                 f"for this input the module computes {number:g} ({entry.op}{where})")
    return "no constant of the named nodes is a value the module computes"
