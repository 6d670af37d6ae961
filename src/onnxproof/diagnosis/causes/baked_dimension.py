"""A size of the example was written into the file.

What it is: the file accepts other sizes of a dim, and is right only at the one it was traced with (or, for a branch on
a size, only on one side of it).

Why it happens: `int(x.shape[1])`, `len(x)`, a loop over a length, a Python `if` on a shape: tracing sees a number.

How to see it: the module traced on its example gives what the file gives, or the file is right with each case's own size
in the place of the example's. That the cases of one size agree and those of the others don't makes it likely, no more.

How to fix it: keep sizes symbolic (`x.shape[1]` without `int`, `x.mean(1)` for `x.sum(1) / n`), export with
`dynamic_shapes`, and let `onnxproof export` test both sides of every guard.

Example: mean pooling that divides by the example's sequence length.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from onnxproof.diagnosis.counterfactuals import example_numbers
from onnxproof.diagnosis.counterfactuals.example_sizes import (
    sizes_in_file,
    traced_on_example,
    with_own_sizes,
)
from onnxproof.diagnosis.counterfactuals.workbench import ComparedCases, Tried, Workbench
from onnxproof.results import DimInfo, Status

TITLE = "a size of the example was written into the file"
PRICE = 5
CODES = ("baked-dimension", "baked-branch", "cache")
_LEAST_BAD_SIZES = 2
"""Sizes at which the file must be wrong. Not measured."""
_SHOWN_SIZES = 6
_SHOWN_CASES = 4


@dataclass(frozen=True, slots=True)
class _Sizes:
    """The sizes of one dim at which the file is right, and those at which it is wrong."""

    right: set[int]
    wrong: set[int]

    @property
    def one_sided(self) -> bool:
        """True when all right sizes are below all wrong ones, or above."""
        if not self.right:
            return False
        return max(self.right) < min(self.wrong) or max(self.wrong) < min(self.right)


def test(workbench: Workbench) -> Tried | str:
    """Which dim separates the cases that agree from those that don't, then what stands in the file instead of its size.

    1. The module as it was traced on its example: its sizes and branches are frozen as a file's are.
    2. The file with the size of each case in the place of the example's: where the trace has another branch, too, that comes first,
       since a file that a size mends keeps no branch.
    3. Neither: that sizes separate the cases is a likeness.
    """
    likeness = _likeness(workbench)
    if likeness is None:
        return "no dim separates the cases that agree from those that don't"
    code = likeness.code
    if _takes_other_path(workbench):
        code = "baked-branch"
    if code == "baked-branch":
        tried = _try_sizes(workbench, likeness.dim) or _try_traced_module(workbench, code)
    else:
        tried = _try_traced_module(workbench, code) or _try_sizes(workbench, likeness.dim)
    return tried or Tried(evidence=likeness.what, code=likeness.code)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Likeness:
    """A dim whose sizes separate the cases that agree from those that don't."""

    what: str
    code: str = ""
    dim: str = ""


def _likeness(workbench: Workbench) -> _Likeness | None:
    """What the sizes of the compared cases say.

    1. A file that refuses: the sizes that it refuses and the module takes.
    2. Right at the example's size alone: that size stands in the file.
    3. Right on one side of a size alone: a branch on the size was frozen.
    """
    scene = workbench.scene
    if scene.gap is not None and scene.gap.status is Status.REFUSED:
        return _refused_sizes(workbench)  # 1
    for dim in scene.signature.dims:
        if dim.derived:
            continue
        sizes = _sizes_of(workbench.cases, dim.name)
        if not _may_separate(sizes, dim):
            continue
        wrong = _list(sizes.wrong)
        if sizes.right == {dim.example}:  # 2
            what = f"right at {dim.name}={dim.example}, wrong at {wrong}: every case of those sizes"
            return _Likeness(what=what, code=_code(workbench, dim), dim=dim.name)
        if sizes.one_sided:  # 3
            what = f"right at {dim.name}={_list(sizes.right)}, wrong at {wrong}"
            return _Likeness(what=what, code="baked-branch", dim=dim.name)
    return None


def _try_traced_module(workbench: Workbench, code: str) -> Tried | None:
    """The module as it was traced on its example."""
    answer = traced_on_example(workbench)
    if answer is None:
        return None
    return workbench.try_counterfactual(
        answer,
        "the module traced on its example, whose sizes and branches it then keeps, gives what the candidate gives",
        code=code,
    )


def _try_sizes(workbench: Workbench, dim: str) -> Tried | None:
    """The file with each case's own size in the place of the example's, in one constant after the other, then in all."""
    for constants in sizes_in_file(workbench, dim):
        names = ", ".join(constant.node for constant in constants[:_SHOWN_CASES])
        tried = workbench.try_counterfactual(
            with_own_sizes(workbench, constants),
            f"{names} holds a size of the example; with each case's own size in its place the answers are right",
        )
        if tried is not None:
            return tried
    return None


def _sizes_of(cases: ComparedCases, dim: str) -> _Sizes:
    sizes = _Sizes(set(), set())
    for case, by_dim in cases.sizes.items():
        if dim not in by_dim or not cases.ordinary.get(case):
            continue
        beyond_noise = cases.beyond_noise.get(case)
        if beyond_noise is True:
            sizes.wrong.add(by_dim[dim])
        elif beyond_noise is False:
            sizes.right.add(by_dim[dim])
    return sizes


def _may_separate(sizes: _Sizes, dim: DimInfo) -> bool:
    """True when this dim alone may separate right cases from wrong ones."""
    if len(sizes.wrong) < _LEAST_BAD_SIZES or dim.example in sizes.wrong:
        return False
    return sizes.right.isdisjoint(sizes.wrong)


def _code(workbench: Workbench, dim: DimInfo) -> str:
    """The length of a cache, where only caches have this dim."""
    inputs = [info for info in workbench.scene.signature.inputs if dim.name in info.dims]
    if all("past" in info.name or "cache" in info.name for info in inputs):
        return "cache"
    return ""


def _refused_sizes(workbench: Workbench) -> _Likeness | None:
    """Sizes that the file refuses and the module takes, where every size that the file takes is another."""
    accepted: set[tuple[tuple[str, int], ...]] = set()
    refused: set[tuple[tuple[str, int], ...]] = set()
    cases = workbench.cases
    for case, by_dim in cases.sizes.items():
        if case not in cases.beyond_noise or not cases.ordinary.get(case) or not by_dim:
            continue
        if cases.beyond_noise[case]:
            refused.add(_sorted_sizes(by_dim))
        else:
            accepted.add(_sorted_sizes(by_dim))
    if not refused or not accepted or not accepted.isdisjoint(refused):
        return None
    names = ", ".join(name for name, _ in min(refused))
    shown = ", ".join(
        "x".join(str(size) for _, size in sizes) for sizes in sorted(refused)[:_SHOWN_CASES]
    )
    what = f"the file refuses sizes that the module takes ({names}: {shown}) and takes others"
    return _Likeness(what=what)


def _sorted_sizes(by_dim: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(by_dim.items()))


def _takes_other_path(workbench: Workbench) -> bool:
    """True when the module calls other operations for the witness than for its example."""
    if workbench.located.module_session is None:
        return False
    return example_numbers.takes_other_path(workbench)


def _list(sizes: set[int]) -> str:
    return ", ".join(str(size) for size in sorted(sizes)[:_SHOWN_SIZES])
