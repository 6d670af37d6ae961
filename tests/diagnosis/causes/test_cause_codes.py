"""The codes that causes give, their titles and pages, and how a report of causes is put together."""

import ast
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import onnx
import pytest

from onnxproof.cli.explain import _page
from onnxproof.diagnosis import causes
from onnxproof.diagnosis.counterfactuals.tried import ComparedCases
from onnxproof.diagnosis.counterfactuals.workbench import Tried
from onnxproof.diagnosis.judge import Judgement, Standing
from onnxproof.results import Cause, Fix, Verdict
from onnxproof.system.deadline import Deadline

HYPOTHESES = causes.codes()


def literal_codes(file: Path) -> Iterator[str]:
    """Every `code="..."` that a file writes, and every code in a table of them."""
    known = {*HYPOTHESES, *causes.EXTRA_CODES}
    tree = ast.parse(file.read_text(encoding="utf-8"))
    documentation = ast.get_docstring(tree, clean=False)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value in known and node.value != documentation:
            yield str(node.value)


def workbench(**changed: Any) -> Any:
    def noise_ratio(error: float | None) -> float | None:
        if error is None:
            return None
        return error / 0.5

    ordinary = {
        "deadline": Deadline.never(),
        "before": 8.0,
        "noise": 0.5,
        "model": onnx.ModelProto(),
        "noise_ratio": noise_ratio,
        "nodes": [],
    }
    return SimpleNamespace(**{"cases": ComparedCases(), **ordinary, **changed})


def hypothesis(*results: Tried | str, **changed: Any) -> Any:
    answers = iter(results)
    return SimpleNamespace(TITLE="a title", test=lambda bench: next(answers), **changed)


def judged(standing: Standing = Standing.PROVEN, *, in_reference: bool = False) -> Judgement:
    return Judgement(standing=standing, before=8.0, after=2.0, in_reference=in_reference)


@pytest.mark.parametrize("code", sorted(HYPOTHESES))
def test_a_cause_gives_only_codes_that_it_declares(code: str) -> None:
    module: ModuleType = HYPOTHESES[code]
    declared = causes.declared_codes(code, module)
    assert set(declared) <= {*HYPOTHESES, *causes.EXTRA_CODES}
    assert module.__file__ is not None
    assert set(literal_codes(Path(module.__file__))) <= {code, *declared}


def test_every_code_has_a_title_and_a_page() -> None:
    codes = {c for code, module in HYPOTHESES.items() for c in causes.declared_codes(code, module)}
    assert codes >= set(causes.EXTRA_CODES)
    for code in sorted({*codes, *HYPOTHESES}):
        assert causes.title(code)
        assert _page(code) == causes.page(code)


def test_pages_are_read_without_importing_the_causes() -> None:
    pages = causes.pages()
    assert set(pages) == set(HYPOTHESES)
    for code, (title, page) in pages.items():
        assert title == HYPOTHESES[code].TITLE
        assert page == causes.page(code)


def test_a_code_that_is_not_declared_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = Tried(judgement=judged(), evidence="seen", code="clipping")
    monkeypatch.setattr(causes, "codes", lambda: {"one": hypothesis(tried, CODES=("one",))})
    report = causes.explain(workbench())
    assert report.causes == ()
    assert report.untried == (
        "one: could not be tried: ValueError: the code `clipping` is not among its CODES",
    )


def test_a_cause_that_had_no_time_was_not_tried() -> None:
    report = causes.explain(workbench(deadline=Deadline.after(0.0)))
    assert report.skipped == ()
    assert len(report.untried) == len(HYPOTHESES)
    assert all(words.endswith(": no time was left to try it") for words in report.untried)


def test_a_cause_whose_try_failed_was_not_ruled_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(bench: Any) -> str:
        raise KeyError("x")

    hypotheses = {"one": SimpleNamespace(test=fail), "two": hypothesis("it does not apply")}
    monkeypatch.setattr(causes, "codes", lambda: hypotheses)
    report = causes.explain(workbench())
    assert report.skipped == ("two: it does not apply",)
    assert report.untried == ("one: could not be tried: KeyError: 'x'",)


def test_errors_are_measured_in_noise_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    hypotheses = {
        "far": hypothesis(Tried(evidence="", after=4.0)),
        "near": hypothesis(Tried(evidence="", after=1.0, before=2.0)),
        "seen": hypothesis(Tried(evidence="")),
        "sure": hypothesis(Tried(judgement=judged(), evidence="")),
    }
    monkeypatch.setattr(causes, "codes", lambda: hypotheses)
    found = [(c.code, c.before, c.after) for c in causes.explain(workbench()).causes]
    assert found == [
        ("sure", 16.0, 4.0),
        ("near", 4.0, 2.0),
        ("far", 16.0, 8.0),
        ("seen", 16.0, None),
    ]


@pytest.mark.parametrize(
    ("verdict", "judgement", "proven", "fixed"),
    [
        (Verdict.FAITHFUL, judged(), True, True),
        (Verdict.FAITHFUL, judged(Standing.LIKELY), False, False),
        (Verdict.DIVERGED, judged(), False, False),
        (Verdict.DIVERGED, judged(in_reference=True), True, False),
        (Verdict.DIVERGED, judged(Standing.LIKELY, in_reference=True), False, False),
        (None, judged(), True, False),
        (None, judged(in_reference=True), True, False),
    ],
)
def test_a_remedy_is_verified_before_it_is_offered(
    verdict: Verdict | None,
    judgement: Judgement,
    proven: bool,
    fixed: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried = Tried(
        judgement=judgement,
        evidence="seen",
        model=onnx.ModelProto(),
        fix=Fix(kind="graph", what="do it"),
    )
    monkeypatch.setattr(causes, "codes", lambda: {"one": hypothesis(tried)})
    (cause,) = causes.explain(workbench(), lambda model, options: verdict).causes
    assert cause.proven is proven
    assert cause.fix == (Fix(kind="graph", what="do it", verdict=verdict) if fixed else None)
    assert cause.evidence.endswith("verify the fix") is (verdict is None)


def test_a_cause_without_measurement_says_so() -> None:
    cause = Cause(code="kernel", title="", proven=True, evidence="")
    assert (cause.before, cause.after) == (None, None)
