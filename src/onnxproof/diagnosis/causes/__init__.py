"""Causes, proven by counterfactual: one file a hypothesis, and its docstring is its page in the docs.

A hypothesis is a module with `TITLE`, `PRICE` (cheap ones are tried first) and `test(bench) -> Tried | str`: what was tried
and how the error moved, or why it does not apply. The file's name is the cause's code, with dashes. Outsiders add one
by an entry point of the group `onnxproof.causes`.
"""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import onnx

from onnxproof import registry
from onnxproof.diagnosis.counterfactuals.workbench import Workbench
from onnxproof.errors import OnnxproofError
from onnxproof.results import Cause, Fix, Location, Verdict

ENTRY_POINTS = "onnxproof.causes"
KIN = {
    "baked-branch": ("baked-dimension", "a branch taken by the example was written into the file"),
    "output-order": ("input-order", "outputs are exchanged"),
    "weight-layout": ("weights", "the right weights stand in another order"),
    "cache": ("axis-order", "past and present are joined or counted otherwise"),
    "missing-op": ("mutation", "an operation of the module is missing from the file"),
}
"""Codes that are found on the way to another: where their page is, and their title."""
NO_TIME = "no time was left to try it"
Verify = Callable[[onnx.ModelProto | None, tuple[str, ...]], Verdict | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What explaining found: causes, most likely first, what was ruled out, and what was not tried."""

    causes: tuple[Cause, ...] = ()
    skipped: tuple[str, ...] = ()
    untried: tuple[str, ...] = ()


def codes() -> dict[str, ModuleType]:
    """Every hypothesis by its code, cheapest first."""
    found = {
        info.name.replace("_", "-"): importlib.import_module(f"{__name__}.{info.name}")
        for info in pkgutil.iter_modules(__path__)
        if not info.name.startswith("_")
    }
    for point in registry.points(ENTRY_POINTS):
        found[point.name] = point.load()
    return dict(sorted(found.items(), key=lambda pair: (pair[1].PRICE, pair[0])))


def page(code: str) -> str:
    """The documentation of one cause."""
    return (codes()[KIN[code][0] if code in KIN else code].__doc__ or "").strip()


def title(code: str) -> str:
    """One line for a code."""
    return KIN[code][1] if code in KIN else str(codes()[code].TITLE)


def explain(bench: Workbench, where: Location, verify: Verify | None = None) -> Report:
    """Try the hypotheses in order until one is proven; the rest of the likely ones follow."""
    found: list[Cause] = []
    skipped: list[str] = []
    untried: list[str] = []
    for code, hypothesis in codes().items():
        if bench.late:
            untried.append(f"{code}: {NO_TIME}")
            continue
        try:
            tried = hypothesis.test(bench)
        except (
            OnnxproofError,
            ValueError,
            KeyError,
            TypeError,
            IndexError,
        ) as why:  # one that stumbles takes no other with it
            untried.append(f"{code}: could not be tried: {type(why).__name__}: {why}")
            continue
        if isinstance(tried, str):
            skipped.append(f"{code}: {tried}")
            continue
        proven, fix = tried.proven, None
        evidence = tried.evidence
        if proven and verify is not None and (tried.model is not None or tried.options):
            verdict = verify(tried.model, tried.options)
            evidence += (
                "" if verdict is not None else "; no time was left to verify the mended file"
            )
            mended = verdict in (Verdict.FAITHFUL, Verdict.DRIFT)
            proven = (
                mended or tried.by_reference
            )  # what mends one case alone is a likeness, not the cause
            fix = (
                Fix(kind=tried.fix.kind, what=tried.fix.what, verdict=verdict)
                if mended and tried.fix is not None
                else None
            )
        found.append(
            Cause(
                code=tried.code or code,
                title=title(tried.code or code),
                proven=proven,
                evidence=evidence,
                before=(bench.before if tried.before is None else tried.before) / bench.noise,
                after=tried.after / bench.noise,
                fix=fix,
            )
        )
        if proven:
            break
    return Report(
        causes=tuple(sorted(found, key=lambda cause: (not cause.proven, cause.after))),
        skipped=tuple(skipped),
        untried=tuple(untried),
    )
