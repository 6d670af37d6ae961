"""A value of the example was written into the file.

What it is: a number that depends on the input became a constant while tracing.

Why it happens: `.item()`, `float(x.max())`, `x.tolist()`, a Python branch on a value.

How to see it: the node is right again when its constant is replaced by what the module computes for this input.

How to fix it: stay in tensors (`x / x.abs().max()`), use `torch.where` for a branch, or `torch.cond`.

Example: normalising by `x.abs().max().item()`.
"""

import numpy as np

from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench

TITLE = "a value of the example was written into the file"
PRICE = 12
_MOST = 24


def test(bench: Workbench) -> Tried | str:
    """Give the module the example's numbers; then give the file the module's own number for the witness."""
    return _of_example(bench) or _of_witness(bench)


def _of_example(bench: Workbench) -> Tried | None:
    """The module with the numbers of its example at some calls: does it then say what the candidate says?"""
    if bench.located.module_session is None:
        return None
    from onnxproof.diagnosis.counterfactuals import changed_reference

    frozen = list(changed_reference.numbers_of_example(bench))
    read = [item for item in frozen if item[1] == "_local_scalar_dense"]
    for group in [read, *([item] for item in frozen[:_MOST]), frozen]:
        after = (
            changed_reference.distance(bench, {call: change for call, _, _, change in group})
            if group
            else float("inf")
        )
        if after <= bench.limit and after < bench.before / 5:
            branch = isinstance(group[0][2], bool)
            code = (
                "baked-branch"
                if branch
                else "baked-value"
                if group[0][1] == "_local_scalar_dense"
                else "baked-dimension"
            )
            entry = next((e for e in bench.located.traced_values if e.call == group[0][0]), None)
            where = (
                f" at {entry.source.file}:{entry.source.line}: `{entry.source.text}`"
                if entry is not None and entry.source
                else ""
            )
            return Tried(
                proven=True,
                by_reference=True,
                after=after,
                code=code,
                evidence=f"the module with the example's {'answer' if branch else 'number'} {group[0][2]} in `{group[0][1]}`{where} gives what the candidate gives",
            )
    return None


def _of_witness(bench: Workbench) -> Tried | str:
    """Put the module's own number for the witness in the place of the constant."""
    scalars = [e for e in bench.located.traced_values if e.sketch.count == 1]
    for node in bench.nodes[:2]:
        for place, name, value in bench.constants(node):
            if value.size != 1 or bench.scene.reference.parameter(name) is not None:
                continue
            for entry in scalars[:40]:
                true = bench.located.fetch(entry.place)
                if true is None or float(np.asarray(true).reshape(-1)[0]) == float(
                    value.reshape(-1)[0]
                ):
                    continue
                number = float(np.asarray(true).reshape(-1)[0])
                after = bench.distance(
                    bench.with_constant(node, place, np.full(value.shape, number, value.dtype))
                )
                if bench.cured(after):
                    where = (
                        f" at {entry.source.file}:{entry.source.line}: `{entry.source.text}`"
                        if entry.source
                        else ""
                    )
                    return Tried(
                        proven=True,
                        after=after,
                        code="" if entry.inputs else "weights",
                        evidence=f"{node.name or node.output[0]} holds {float(value.reshape(-1)[0]):g}; "
                        f"for this input the module computes {number:g} ({entry.op}{where})",
                    )
    return "no constant of the named nodes is a value the module computes"
