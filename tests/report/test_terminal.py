"""What people see: the sentence first, the worst group first, and everything on one screen."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from support.made_proofs import full

from onnxproof.options import Policy
from onnxproof.report import terminal
from onnxproof.report.plain import percent, share
from onnxproof.results import Finding, Gap, NoiseKind, Status, Verdict
from onnxproof.results.proof import Proof


def gap(case: str, group: str, ratio: float, **other: object) -> Gap:
    values: dict[str, object] = {
        "backend": "ort",
        "output": "y",
        "status": Status.COMPARED,
        "compared": 12,
        "noise_kind": NoiseKind.DOUBLE,
        "noise_ratio": ratio,
        "worst_ratio": ratio,
        "max_abs": ratio * 1e-8,
        "allowance": ratio * 1e-4,
    }
    return Gap(case=case, group=group, **(values | other))  # type: ignore[arg-type]


def proof(verdict: Verdict, *gaps: Gap, **other: object) -> Proof:
    base = replace(
        full(),
        verdict=verdict,
        gaps=gaps,
        location=None,
        causes=(),
        notes=(),
        findings=(),
        dropped=(),
        error="",
        policy=Policy(),
        complete=True,
        half="",
        tried=(),
        untried=(),
        backends=("ort",),
        cross=None,
    )
    return replace(base, **other)  # type: ignore[arg-type]


def printed(made: Proof, *, width: int = 100, verbose: bool = False, colour: bool = False) -> str:
    stream = io.StringIO()
    terminal.show(
        made,
        Console(
            file=stream,
            width=width,
            highlight=False,
            force_terminal=colour,
            color_system="standard" if colour else None,
        ),
        verbose=verbose,
    )
    return stream.getvalue()


HEALTHY = (
    gap("example", "ordinary", 1.0),
    gap("ordinary-1", "ordinary", 1.5),
    gap("batch=1", "shapes", 2.0),
    gap("mask-x", "masks", 0.5),
)


def test_the_verdict_is_one_sentence_on_the_first_line() -> None:
    first = printed(proof(Verdict.FAITHFUL, *HEALTHY)).splitlines()[0]
    assert (
        first == "FAITHFUL  model.onnx matches build: 4 cases, at most 2.0 times the rounding noise"
    )


def test_one_row_a_group_and_the_worst_first() -> None:
    rows = terminal.rows(proof(Verdict.FAITHFUL, *HEALTHY))
    assert [(row.group, row.cases, row.worst.case) for row in rows] == [
        ("shapes", 1, "batch=1"),
        ("ordinary", 2, "ordinary-1"),
        ("masks", 1, "mask-x"),
    ]


def test_a_wrong_group_stands_above_the_healthy_ones() -> None:
    text = printed(
        proof(Verdict.DIVERGED, *HEALTHY, gap("float-x-zeros", "floats", 5000.0, allowance=3.0))
    )
    lines = text.splitlines()
    header = next(k for k, line in enumerate(lines) if line.startswith("group"))
    assert lines[header + 1].split() == [
        "floats",
        "1",
        "float-x-zeros",
        "5,000",
        "5,000",
        "5e-05",
        "300%",
        "diverged",
    ]


def test_backends_get_rows_of_their_own() -> None:
    text = printed(
        proof(
            Verdict.FAITHFUL,
            *HEALTHY,
            gap("example", "ordinary", 1.0, backend="reference"),
            backends=("ort", "reference"),
        )
    )
    assert "backend" in text
    assert len([line for line in text.splitlines() if line.startswith("ordinary")]) == 2


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"status": Status.SHAPE, "detail": "(3, 4) against (3, 5)"}, "shape"),
        ({"status": Status.REFUSED, "detail": "onnxruntime refuses this input"}, "refused"),
        ({"lost": 5}, "5 not finite"),
        ({"mismatches": 3, "noise_kind": NoiseKind.EXACT}, "3 differ"),
    ],
)
def test_words_where_there_is_no_number(other: dict[str, object], words: str) -> None:
    assert words in printed(proof(Verdict.DIVERGED, gap("c", "g", 1000.0, **other)))


def test_drift_is_a_loud_warning() -> None:
    drift = gap("c", "g", 300.0)
    assert "it passes, but it is a real defect: `--strict` makes it fail" in printed(
        proof(Verdict.DRIFT, drift), width=200
    )
    assert "it fails, since the policy is strict" in printed(
        proof(Verdict.DRIFT, drift, policy=Policy(strict=True)), width=200
    )


def test_nothing_compared_is_said_and_shows_no_table() -> None:
    text = printed(proof(Verdict.VACUOUS))
    assert text.startswith("VACUOUS  nothing was compared, so nothing is proven")
    assert "group" not in text


def test_a_budget_that_ended_first_is_said() -> None:
    assert "not all cases were run, since the budget of 10 s ended" in printed(
        proof(Verdict.FAITHFUL, *HEALTHY, complete=False), width=200
    ).replace("\n", " ")
    assert "the budget of 10 s ended first" in printed(
        proof(Verdict.DRIFT, gap("c", "g", 300.0), complete=False), width=200
    )
    assert "not all cases were run: the verdict was clear" in printed(
        proof(Verdict.DIVERGED, gap("c", "g", 3e5), complete=False), width=200
    )
    assert "ended" not in printed(proof(Verdict.FAITHFUL, *HEALTHY), width=200)


def test_chosen_cases_are_told_in_the_headline_and_in_the_summary() -> None:
    assert (
        "only chosen cases were run"
        in terminal.headline(proof(Verdict.FAITHFUL, *HEALTHY, chosen=("example",))).plain
    )
    assert "chosen" not in terminal.headline(proof(Verdict.FAITHFUL, *HEALTHY)).plain


def test_a_finding_that_voids_is_the_sentence() -> None:
    thin = Finding(
        code="not-enough-compared",
        what="not enough was compared: the example is missing",
        voids=True,
    )
    assert printed(proof(Verdict.VACUOUS, *HEALTHY, findings=(thin,))).startswith(
        "VACUOUS  not enough was compared: the example is missing"
    )
    random = Finding(
        code="nondeterministic-reference", what="the reference draws random numbers", voids=True
    )
    assert printed(proof(Verdict.VACUOUS, *HEALTHY, findings=(random,))).startswith(
        "VACUOUS  nothing is proven: the reference draws random numbers"
    )


@pytest.mark.parametrize(
    ("level", "word"), [(3.0, "diverged"), (20.0, "drift"), (40.0, "faithful")]
)
def test_rows_of_a_quantized_candidate_are_judged_by_quality_and_show_it(
    level: float, word: str
) -> None:
    """The runtime may do exactly what a bad graph says: `x noise 0.0, allclose fails, faithful` would stand below DIVERGED."""
    one = gap(
        "example",
        "ordinary",
        0.0,
        noise_kind=NoiseKind.SIMULATED,
        sqnr_db=level,
        ordinary=True,
        allowance=900.0,
        scale=1.0,
    )
    text = printed(proof(Verdict(word), one))
    line = next(line for line in text.splitlines() if line.startswith("ordinary"))
    assert line.split()[-3:] == [f"{level:.1f}", "dB", word]
    assert "fails" not in line


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_has_no_number_is_no_percentage(value: float) -> None:
    assert (percent(value), share(float("nan"))) == ("unknown", "unknown")
    assert percent(0.25, 0) == "25%"


def test_notes_show_both_outputs_and_only_a_few() -> None:
    notes = tuple(
        replace(full().notes[0], case=f"c{k}", reference=f"[{k}]=nan", candidate="0.0")
        for k in range(9)
    )
    text = printed(proof(Verdict.FAITHFUL, *HEALTHY, notes=notes))
    assert (
        "notes (*): 9 differences where runtimes differ by nature; they do not change the verdict"
        in text
    )
    assert "reference [0]=nan" in text
    assert "candidate 0.0" in text
    assert "... and 5 more" in text


def test_findings_place_causes_and_fix_are_shown() -> None:
    text = printed(
        proof(
            Verdict.DRIFT,
            gap("c", "g", 300.0),
            findings=(
                Finding(code="dim-fixed", what="dim 0 of `x` is fixed at 3", help="export again"),
            ),
            location=full().location,
            causes=full().causes,
        ),
        width=160,
    )
    assert "dim-fixed: dim 0 of `x` is fixed at 3" in text
    assert "where: stage export (GeluFusion), node_norm" in text
    assert "--> model.py:13" in text
    assert "proven cause attribute: another epsilon" in text
    assert "= help: set epsilon to 1e-5 (tried: faithful)" in text


def test_the_replay_line_is_never_broken() -> None:
    command = "onnxproof verify " + "x" * 200 + " --case 'a b'"
    assert command in printed(proof(Verdict.FAITHFUL, *HEALTHY, replay=command), width=60)


def test_words_in_brackets_are_not_taken_for_markup() -> None:
    text = printed(
        proof(Verdict.FAITHFUL, gap("x[/bold]", "g", 1.0), replay="onnxproof verify --case '[red]'")
    )
    assert "x[/bold]" in text
    assert "'[red]'" in text


def test_verbose_tells_pairing_dims_versions_and_what_was_dropped() -> None:
    text = printed(
        replace(proof(Verdict.FAITHFUL, *HEALTHY), dropped=full().dropped), verbose=True, width=140
    )
    assert "input x" in text
    assert "float32[batch, 8]" in text
    assert "dim batch: 3 in the example" in text
    assert "python 3.11" in text
    assert "dropped batch=0: RuntimeError" in text


def test_the_table_fits_80_columns_and_one_screen() -> None:
    groups = ("ordinary", "shapes", "floats", "nonfinite", "thresholds", "distinct", "masks")
    gaps = tuple(gap(f"{name}-a rather long name of a case", name, 1234.5) for name in groups)
    table = [
        line
        for line in printed(proof(Verdict.DIVERGED, *gaps), width=80).splitlines()
        if line.rstrip().endswith(("faithful", "drift", "diverged"))
    ]
    assert len(table) == 7
    assert all(len(line) <= 80 for line in table)


def test_colours_only_on_a_terminal() -> None:
    assert "\x1b[" in printed(proof(Verdict.FAITHFUL, *HEALTHY), colour=True)
    assert "\x1b[" not in printed(proof(Verdict.FAITHFUL, *HEALTHY))


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert terminal.console().no_color


HOSTILE_NAME = "\x1b[31mred\x1b]0;owned\x07\u202e\r"


def test_names_cannot_command_the_terminal() -> None:
    from support.made_proofs import hostile

    text = printed(hostile(), verbose=True, width=100) + printed(
        proof(Verdict.FAITHFUL, gap(HOSTILE_NAME, "g", 1.0), replay=HOSTILE_NAME)
    )
    assert all(c == "\n" or c.isprintable() for c in text)
    assert "<U+001B>[31mred" in text


@pytest.mark.parametrize("width", [30, 45, 60, 80, 120, 200])
def test_every_width_has_a_table_that_fits_and_keeps_what_matters(width: int) -> None:
    from support.made_proofs import large

    lines = printed(replace(large(), replay="", causes=(), location=None), width=width).splitlines()
    table = lines[next(i for i, line in enumerate(lines) if line.startswith("group")) :]
    assert all(len(line) <= width for line in table), max(table, key=len)
    if width >= 45:
        assert "x noise" in table[0]
        assert "verdict" in table[0]
        assert any(line.rstrip().endswith("diverged") for line in table)


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_backends_beside_each_other_fit_any_width(width: int) -> None:
    from support.made_proofs import crossed

    lines = printed(
        replace(crossed(), replay="", causes=(), location=None), width=width
    ).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("backend"))
    table = lines[start : next(i for i, line in enumerate(lines) if line.startswith("  on case"))]
    assert all(len(line.rstrip()) <= width for line in table)
    assert sum("diverged" in line for line in table) == 2
    assert "  ort and gone disagree: only one of them answers" in lines


def test_numbers_of_notes_are_short_and_files_are_seen_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    location = full().location
    assert location is not None and location.source is not None
    near = replace(
        location, source=replace(location.source, file=str(tmp_path / "models" / "net.py"))
    )
    note = replace(full().notes[0], reference="[0,0]=-0.04864858463406563", candidate="[0,0]=1.5")
    text = printed(proof(Verdict.DRIFT, gap("c", "g", 300.0), location=near, notes=(note,)))
    assert "--> models/net.py:13" in text
    assert "reference [0,0]=-0.0486486\n    candidate [0,0]=1.5" in text


def test_a_bad_verdict_with_everything_is_one_screen() -> None:
    from support.made_proofs import large

    shown = printed(large(), width=100).splitlines()
    assert len(shown) <= 30, len(shown)
    assert len(printed(large(), width=100, verbose=True).splitlines()) > len(shown)
    assert any("... and 10 more" in line for line in shown)


def test_progress_says_what_is_running_and_the_time_left() -> None:
    from onnxproof.report import progress
    from onnxproof.verification.progress import Progress

    assert (
        progress.words(Progress(case="float-x-zeros", done=12, elapsed=20.4, budget=60.0))
        == "12 cases, at most 40 s left, now float-x-zeros"
    )
    assert (
        progress.words(
            Progress(case="", done=12, elapsed=70.0, budget=60.0, step="looking for the node")
        )
        == "12 cases done, now looking for the node"
    )
    said: list[str] = []
    report = progress.throttle(lambda state: said.append(state.step), 1000.0, at_once=False)
    for step in ("cases", "cases", "nodes", "nodes"):
        report(Progress(case="", done=1, elapsed=1.0, budget=2.0, step=step))
    assert said == ["nodes"]


def test_what_fails_although_the_verdict_stands_is_said_first() -> None:
    left = replace(
        proof(Verdict.FAITHFUL, *HEALTHY),
        findings=(
            Finding(code="baseline-grew", what="output `y` grew", help="torch 1 -> 2", fails=True),
        ),
    )
    lines = printed(left).splitlines()
    assert lines[1].strip() == "fails baseline-grew: output `y` grew"
    assert lines[2].strip() == "= help: torch 1 -> 2"


def test_several_backends_stand_in_one_table_with_who_is_right() -> None:
    said = printed(full(), width=140)
    assert (
        "from truth" in said
        and "from arbiter" in said
        and "3.5 (c)" in said
        and "1.0e-07" in said
        and "no answer" in said
    )
    assert (
        "on case `c`: ort is right" in said
        and "ort and tract disagree: only one of them answers" in said
    )
    assert "allclose" not in said and "allclose" in printed(full(), width=140, verbose=True), (
        "the groups come with --verbose"
    )
