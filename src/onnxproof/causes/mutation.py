"""An operation of the module is missing from the file; often an in-place write that was lost.

What it is: what the module does between two values has no counterpart in the graph.

Why it happens: tracing does not see a write through a view (`b = a.t(); b[0] = 9`), and optimisers remove what they
take for a no-op.

How to see it: the node that reads the unchanged value is right as soon as it is given what the module gives its own
operation.

How to fix it: write out of place (`torch.where`, `index_put`), or export with `dynamo=True`.

Example: a write through a transposed view.
"""

import numpy as np

from onnxproof.causes._workbench import Tried, Workbench

TITLE = "an operation of the module is missing from the file"
PRICE = 40


def test(bench: Workbench) -> Tried | str:
    """Give the located node what the module gives its own operation."""
    for node in bench.nodes[:1]:
        entry = bench.counterpart(node)
        if entry is None:
            continue
        for source in entry.inputs:
            given = bench.scene.entries[source]
            value = bench.scene.fetch(source)
            if value is None or value.dtype.kind != "f" or source in bench.scene.matched:
                continue
            for place in range(len(node.input)):
                after = bench.distance(bench.with_constant(node, place, np.asarray(value, np.float32)))
                if bench.cured(after):
                    write = given.op.endswith("_") or given.op in ("copy", "slice_scatter", "select_scatter", "index_put")
                    where = f" ({given.source.file}:{given.source.line}: `{given.source.text}`)" if given.source else ""
                    return Tried(proven=True, after=after, code="mutation" if write else "missing-op",
                                 evidence=f"{node.name or node.output[0]} is right when it reads what `{given.op}` made{where}; the file has no such step")
    return "giving the named nodes the module's own inputs does not mend them"
