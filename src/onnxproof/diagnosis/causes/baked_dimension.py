"""A size of the example was written into the file.

What it is: the file accepts other sizes of a dim, and is right only at the one it was traced with (or, for a branch on
a size, only on one side of it).

Why it happens: `int(x.shape[1])`, `len(x)`, a loop over a length, a Python `if` on a shape: tracing sees a number.

How to see it: the cases of one size agree, those of the others don't.

How to fix it: keep sizes symbolic (`x.shape[1]` without `int`, `x.mean(1)` for `x.sum(1) / n`), export with
`dynamic_shapes`, and let `onnxproof export` test both sides of every guard.

Example: mean pooling that divides by the example's sequence length.
"""

from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench
from onnxproof.results import Status

TITLE = "a size of the example was written into the file"
PRICE = 5


def test(bench: Workbench) -> Tried | str:
    """Sort the compared cases by the size of each dim: who agrees, who doesn't?"""
    if bench.scene.gap is not None and bench.scene.gap.status is Status.REFUSED:
        return _refused(bench)
    for dim in bench.scene.signature.dims:
        if dim.derived:
            continue
        good = {
            s[dim.name]
            for c, s in bench.sizes.items()
            if dim.name in s and bench.bad_cases.get(c) is False and bench.telling.get(c)
        }
        bad = {
            s[dim.name]
            for c, s in bench.sizes.items()
            if dim.name in s and bench.bad_cases.get(c) is True and bench.telling.get(c)
        }
        if len(bad) < 2 or good & bad or dim.example in bad:
            continue
        if good == {dim.example}:
            cached = all(
                "past" in i.name or "cache" in i.name
                for i in bench.scene.signature.inputs
                if dim.name in i.dims
            )
            return Tried(
                proven=True,
                after=0.0,
                code="cache" if cached else "",
                evidence=f"right at {dim.name}={dim.example}, wrong at {_list(bad)}: every case of those sizes",
            )
        if good and (max(good) < min(bad) or max(bad) < min(good)):
            return Tried(
                proven=_takes_another_way(bench),
                after=0.0,
                code="baked-branch",
                evidence=f"right at {dim.name}={_list(good)}, wrong at {_list(bad)}, and the module takes another way there than for its example: a branch on the size was frozen",
            )
    return "no dim separates the cases that agree from those that don't"


def _refused(bench: Workbench) -> Tried | str:
    """Sizes that the file refuses and the module takes, where every size that the file takes is another."""
    told = [
        (tuple(sorted(sizes.items())), bench.bad_cases[case])
        for case, sizes in bench.sizes.items()
        if case in bench.bad_cases and bench.telling.get(case) and sizes
    ]
    good, bad = (
        {sizes for sizes, beyond in told if not beyond},
        {sizes for sizes, beyond in told if beyond},
    )
    if not bad or good & bad or not good:
        return "the file refuses, and sizes alone don't say when"
    shown = ", ".join("x".join(str(size) for _, size in sizes) for sizes in sorted(bad)[:4])
    return Tried(
        proven=True,
        after=0.0,
        evidence=f"the file refuses sizes that the module takes ({', '.join(name for name, _ in min(bad))}: {shown}) and takes others: sizes of the example stand in it",
    )


def _takes_another_way(bench: Workbench) -> bool:
    """True when the module calls other operations for the witness than for its example."""
    if bench.located.module_session is None:
        return False
    from onnxproof.diagnosis.counterfactuals import changed_reference

    return changed_reference.ways_differ(bench)


def _list(sizes: set[int]) -> str:
    return ", ".join(str(size) for size in sorted(sizes)[:6])
