"""Causes, proven by counterfactual: one file a hypothesis, and its docstring is its page in the docs.

A hypothesis is a module with `TITLE`, `PRICE` (cheap ones are tried first) and `test(workbench) -> Tried | str`: what was
tried and what the judge of causes said to it (`workbench.try_counterfactual`), or why it does not apply.
One with `is_likely(workbench)` is tried before all others where that is true. The file's name is the cause's code, with dashes; a hypothesis that
may give other codes, too, lists all of them in `CODES`. Outsiders add one by an entry point of the group `onnxproof.causes`.
"""

import ast
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from onnxproof.diagnosis import isolated_trials
from onnxproof.diagnosis.isolated_trials import Failed, NotStarted
from onnxproof.registry import Registry
from onnxproof.results import Cause, Verdict

if TYPE_CHECKING:
    import onnx

    from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench

NO_TIME = "no time was left to try it"
Verify = Callable[["onnx.ModelProto | None", tuple[str, ...]], Verdict | None]
EXTRA_CODES = {
    "baked-branch": ("baked-dimension", "a branch taken by the example was written into the file"),
    "output-order": ("input-order", "outputs are exchanged"),
    "weight-layout": ("weights", "the right weights stand in another order"),
    "missing-op": ("mutation", "an operation of the module is missing from the file"),
}
"""Codes that have no file of their own: the cause whose page describes them, and their title."""


class Hypothesis(Protocol):
    """What the file of a cause defines."""

    TITLE: str
    PRICE: int
    """Cheap ones are tried first."""

    def test(self, workbench: "Workbench") -> "Tried | str":
        """What was tried and how the error moved, or why it does not apply."""


CAUSES: Registry[Hypothesis] = Registry("cause", __name__, Hypothesis, group="onnxproof.causes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What explaining found: causes, most likely first, what was ruled out, and what was not tried."""

    causes: tuple[Cause, ...] = ()
    skipped: tuple[str, ...] = ()
    untried: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    """Those of the untried ones that raised or ended their process: nobody knows what they would have said."""
    mended: frozenset[str] = frozenset()
    """The nodes that the first cause, proven by a mended file, mends."""


def codes() -> dict[str, Hypothesis]:
    """Every hypothesis by its code, cheapest first."""
    hypotheses = _loaded()
    cheapest_first = sorted(hypotheses, key=lambda code: (hypotheses[code].PRICE, code))
    return {code: hypotheses[code] for code in cheapest_first}


def _loaded() -> dict[str, Hypothesis]:
    """Those that can be imported: one that changes a module of PyTorch has nothing to change where there is no PyTorch."""
    hypotheses = {}
    for code in CAUSES.names():
        try:
            hypotheses[code] = CAUSES.load(code)
        except ImportError as why:
            if (why.name or "").partition(".")[0] != "torch":
                raise
    return hypotheses


def pages() -> dict[str, tuple[str, str]]:
    """Title and page of each cause of this package, read from the files: importing them would import torch."""
    read = {}
    for code in sorted(CAUSES.own_names()):
        file = Path(__file__).with_name(f"{code.replace('-', '_')}.py")
        tree = ast.parse(file.read_text(encoding="utf-8"))
        read[code] = (_title_in(tree), ast.get_docstring(tree) or "")
    return read


def _title_in(tree: ast.Module) -> str:
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "TITLE":
            return str(ast.literal_eval(node.value))
    return ""


def page_code(code: str) -> str:
    """The cause whose page describes a code: its own, or that of another cause for one of `EXTRA_CODES`."""
    home, _ = EXTRA_CODES.get(code, (code, ""))
    return home


def page(code: str) -> str:
    """The documentation of one cause."""
    return (codes()[page_code(code)].__doc__ or "").strip()


def title(code: str) -> str:
    """One line for a code."""
    if code in EXTRA_CODES:
        return EXTRA_CODES[code][1]
    return str(codes()[code].TITLE)


def declared_codes(code: str, hypothesis: Hypothesis) -> tuple[str, ...]:
    """The codes that a hypothesis may give: those that it lists, or its own name."""
    return getattr(hypothesis, "CODES", (code,))


def explain(workbench: "Workbench", verify: Verify | None = None) -> Report:
    """Try the hypotheses in order until one is proven; the rest of the likely ones follow.

    Each is tried, and its remedy verified, in a process that it may end: then it was not tried, and the others are.
    """
    causes: list[_Judged] = []
    skipped: list[str] = []
    untried: list[str] = []
    failed: list[str] = []
    trials = {
        code: partial(_try_and_verify, workbench, code, hypothesis, verify)
        for code, hypothesis in _in_order(workbench).items()
    }
    with closing(
        isolated_trials.run(trials, workbench.deadline, pass_s=workbench.cases.pass_s)
    ) as outcomes:
        for outcome in outcomes:
            if isinstance(outcome, NotStarted):
                untried.append(f"{outcome.name}: {NO_TIME}")
            elif isinstance(outcome, Failed):
                failed.append(f"{outcome.name}: {outcome.reason}")
                untried.append(failed[-1])
            elif isinstance(outcome.value, str):
                skipped.append(f"{outcome.name}: {outcome.value}")
            else:
                causes.append(outcome.value)
                if outcome.value.cause.proven and not outcome.value.elsewhere:
                    break
    settled = _settle(causes)
    return Report(
        causes=tuple(settled),
        mended=_mended_by_first(causes, settled),
        skipped=tuple(skipped),
        untried=tuple(untried),
        failed=tuple(failed),
    )


def _in_order(workbench: "Workbench") -> dict[str, Hypothesis]:
    """Every hypothesis, cheapest first, but those before all others that the located node speaks for."""
    hypotheses = codes()
    likely = {code for code, one in hypotheses.items() if _is_likely(one, workbench)}
    return {code: hypotheses[code] for code in sorted(hypotheses, key=lambda c: c not in likely)}


def _is_likely(hypothesis: Hypothesis, workbench: "Workbench") -> bool:
    """What the optional `is_likely` of a cause says; one that fails says nothing."""
    is_likely = getattr(hypothesis, "is_likely", None)
    if is_likely is None:
        return False
    try:
        return bool(is_likely(workbench))
    except Exception:  # it only orders: the hypothesis itself tells what is wrong
        return False


def _try_and_verify(
    workbench: "Workbench", code: str, hypothesis: Hypothesis, verify: Verify | None
) -> "_Judged | str":
    """The cause with its remedy verified, or why it does not apply."""
    tried = _try(workbench, code, hypothesis)
    if isinstance(tried, str):
        return tried
    from onnxproof.diagnosis.counterfactuals.state_nodes import code_of_state

    changed = _changed_by(workbench, tried)
    tried = replace(tried, code=code_of_state(workbench, tried.code or code, changed))
    cause = _verify_remedy(cause_of(workbench, code, tried), tried, verify)
    return _Judged(cause, tried.elsewhere, changed)


def _changed_by(workbench: "Workbench", tried: "Tried") -> frozenset[str]:
    """The nodes that a hypothesis changes: the one that it says, or those in which its mended file is another."""
    if tried.node:
        return frozenset({tried.node})
    if tried.model is None or tried.in_reference:
        return frozenset()
    from onnxproof.diagnosis.mended_nodes import changed_nodes

    return changed_nodes(workbench.model, tried.model)


@dataclass(frozen=True, slots=True)
class _Judged:
    """A cause, whether what it changes was not located, and the nodes that its mended file changes."""

    cause: Cause
    elsewhere: bool
    mended: frozenset[str] = frozenset()


def _mended_by_first(judged: Sequence[_Judged], settled: Sequence[Cause]) -> frozenset[str]:
    """The nodes that the first cause mends, where it is proven."""
    if not settled or not settled[0].proven:
        return frozenset()
    of_first = (one.mended for one in judged if one.cause == settled[0])
    return next(of_first, frozenset())


def _settle(judged: Sequence[_Judged]) -> list[Cause]:
    """The causes, proven ones first. A proven change of what was located wins over one elsewhere; of several elsewhere, none is proven."""
    here = [one for one in judged if one.cause.proven and not one.elsewhere]
    rivals = {one.cause.code for one in judged if one.cause.proven and one.elsewhere}
    causes = []
    for one in judged:
        cause = one.cause
        if cause.proven and one.elsewhere and (here or len(rivals) > 1):
            evidence = f"{cause.evidence}; another change explains as much"
            cause = replace(cause, proven=False, evidence=evidence)
        causes.append(cause)
    return sorted(causes, key=_rank)


def _try(workbench: "Workbench", code: str, hypothesis: Hypothesis) -> "Tried | str":
    """What a hypothesis gives; a code that it does not declare is an error of its author."""
    tried: Tried | str = hypothesis.test(workbench)
    if isinstance(tried, str) or not hasattr(hypothesis, "CODES"):
        return tried
    if (tried.code or code) not in hypothesis.CODES:
        raise ValueError(f"the code `{tried.code or code}` is not among its CODES")
    return tried


def cause_of(workbench: "Workbench", code: str, tried: "Tried") -> Cause:
    """A hypothesis that was tried as a result, with its errors in multiples of the noise and no fix as yet."""
    before = workbench.before if tried.before is None else tried.before
    return Cause(
        code=tried.code or code,
        title=title(tried.code or code),
        proven=tried.proven,
        evidence=tried.evidence,
        before=workbench.noise_ratio(before),
        after=workbench.noise_ratio(tried.error_left),
    )


def _verify_remedy(cause: Cause, tried: "Tried", verify: Verify | None) -> Cause:
    """The cause after its remedy was verified: what mends one case alone is a likeness, not the cause."""
    if not cause.proven or verify is None or (tried.model is None and not tried.options):
        return cause
    verdict = verify(tried.model, tried.options)
    if verdict is None:
        return replace(cause, evidence=f"{cause.evidence}; no time was left to verify the fix")
    if verdict not in (Verdict.FAITHFUL, Verdict.DRIFT):
        return replace(cause, proven=tried.in_reference)
    if tried.fix is None:
        return cause
    return replace(cause, fix=replace(tried.fix, verdict=verdict))


def _rank(cause: Cause) -> tuple[bool, float]:
    """Proven ones first, then by the error that is left; what was observed and not measured comes last."""
    if cause.after is None:
        return not cause.proven, float("inf")
    return not cause.proven, cause.after
