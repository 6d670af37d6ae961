"""What CI reads: JUnit, SARIF, Markdown and annotations; each well formed whatever the names are."""

import json
import re
import tempfile
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as xml

import pytest
import torch
import xmlschema
from sarif_pydantic import Sarif
from support.made_proofs import HOSTILE, crossed, full, gap, hostile, large, quantized
from torch import nn

from onnxproof import api
from onnxproof.options import Policy
from onnxproof.report import github, plain
from onnxproof.report.writers import html as html_writer
from onnxproof.report.writers import junit, markdown, sarif
from onnxproof.results import Finding, NoiseKind, Source, Verdict
from onnxproof.results.proof import Proof

JUNIT = xmlschema.XMLSchema(Path(__file__).parents[1] / "support" / "junit.xsd")
HEALTHY = replace(
    large(12, ("ort", "reference"), 2),
    verdict=Verdict.FAITHFUL,
    location=None,
    causes=(),
    profile=None,
    gaps=tuple(
        gap(f"c{i}", f"g{i % 2}", backend, 1.0)
        for i in range(4)
        for backend in ("ort", "reference")
    ),
)
VACUOUS = replace(HEALTHY, verdict=Verdict.VACUOUS, gaps=())
BROKEN = replace(
    HEALTHY, verdict=Verdict.ERROR, error="error[crashed]: the runtime died\n  --> m.onnx"
)
ALL = {
    "healthy": HEALTHY,
    "large": large(),
    "hostile": hostile(),
    "full": full(),
    "vacuous": VACUOUS,
    "broken": BROKEN,
}


def strict(proof: Proof) -> Proof:
    return replace(proof, policy=Policy(strict=True))


@pytest.mark.parametrize("proof", ALL.values(), ids=ALL)
def test_junit_fits_its_schema_and_counts_right(proof: Proof) -> None:
    text = junit.dumps(proof)
    JUNIT.validate(xml.ElementTree(xml.fromstring(text)))
    root = xml.fromstring(text)
    for path, name in (
        ("testcase", "tests"),
        ("testcase/failure", "failures"),
        ("testcase/error", "errors"),
    ):
        assert int(root.get(name, -1)) == len(root.findall(f"testsuite/{path}"))


def test_junit_has_a_case_for_each_group_and_backend_and_says_where() -> None:
    root = xml.fromstring(junit.dumps(large()))
    names = {case.get("name") for case in root.iter("testcase")}
    assert {"masks [ort]", "masks [reference]", "search [ort:disabled]"} <= names
    failed = {
        case.get("name"): case for case in root.iter("testcase") if case.find("failure") is not None
    }
    assert failed.keys() == {"masks [ort]", "masks [ort:disabled]"}
    case = failed["masks [ort]"]
    assert (case.get("file"), case.get("line")) == ("/project/model.py", "60")
    told = case.findtext("failure", "")
    assert "where: stage export, /model/layers.25/attention/node_500" in told
    assert "proven cause masking" in told
    assert "replay: onnxproof verify" in told


def test_junit_has_the_seconds_that_each_group_took() -> None:
    """Of a real run: they are not the same for every group, and together no more than the whole."""
    x = torch.randn(3, 4)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "m.onnx")
        module = nn.Linear(4, 2).eval()
        torch.onnx.export(module, (x,), path, dynamo=False)
        proof = api.verify(module, path, (x,), budget_s=5, explain=False)
    suite = xml.fromstring(junit.dumps(proof))[0]
    cases = {case.get("name"): float(case.get("time", -1)) for case in suite.iter("testcase")}
    for name, seconds in cases.items():
        group, _, backend = str(name).removesuffix("]").partition(" [")
        assert seconds == pytest.approx(proof.group_seconds[group][backend], abs=1e-3)
    assert len({proof.group_seconds[group]["ort"] for group in proof.group_seconds}) > 1
    assert sum(cases.values()) <= float(suite.get("time", 0)) + 0.01


def test_junit_never_passes_where_nothing_was_compared() -> None:
    for proof in (VACUOUS, BROKEN):
        assert xml.fromstring(junit.dumps(replace(proof, gaps=()))).get("errors") == "1"
    root = xml.fromstring(junit.failure("error[x]: y"))
    JUNIT.validate(xml.ElementTree(root))
    assert root.findtext("testsuite/testcase/error") == "error[x]: y"


def test_junit_fails_on_drift_only_where_the_policy_is_strict() -> None:
    drift = replace(
        HEALTHY, verdict=Verdict.DRIFT, gaps=(gap("c", "g", "ort", 30.0, allowance=0.1),)
    )
    assert xml.fromstring(junit.dumps(drift)).get("failures") == "0"
    assert xml.fromstring(junit.dumps(strict(drift))).get("failures") == "1"


def test_junit_shows_a_baseline_that_was_left() -> None:
    left = replace(
        HEALTHY, findings=(Finding(code="baseline", what="output `y` on ort grew", fails=True),)
    )
    assert [
        case.get("name")
        for case in xml.fromstring(junit.dumps(left)).iter("testcase")
        if case.find("failure") is not None
    ] == ["finding baseline"]


@pytest.mark.parametrize("proof", ALL.values(), ids=ALL)
def test_sarif_is_sarif(proof: Proof) -> None:
    text = sarif.dumps(proof)
    Sarif.model_validate_json(text)
    run = json.loads(text)["runs"][0]
    assert {result["ruleId"] for result in run["results"]} == {
        rule["id"] for rule in run["tool"]["driver"]["rules"]
    }
    assert all(
        re.fullmatch(
            r"[\w\-.~%/:@!$&'()*+,;=]+",
            result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"],
        )
        for result in run["results"]
    )


def test_sarif_points_at_the_line_and_names_the_proven_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    proof = large()
    assert proof.location is not None
    proof = replace(
        proof,
        location=replace(
            proof.location, source=Source(file=str(tmp_path / "nets/model.py"), line=60, text="x")
        ),
    )
    (result,) = json.loads(sarif.dumps(proof))["runs"][0]["results"]
    assert (result["ruleId"], result["level"]) == ("masking", "error")
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "nets/model.py"
    assert result["locations"][0]["physicalLocation"]["region"]["startLine"] == 60
    assert json.loads(sarif.dumps(HEALTHY))["runs"][0]["results"] == []


def test_sarif_says_that_a_run_failed() -> None:
    for text in (sarif.dumps(BROKEN), sarif.failure("error[x]: y")):
        Sarif.model_validate_json(text)
        assert json.loads(text)["runs"][0]["invocations"][0]["executionSuccessful"] is False


def test_markdown_tells_the_verdict_the_place_the_cause_and_the_replay() -> None:
    text = markdown.dumps(large())
    assert text.startswith("### ❌ DIVERGED: model.onnx\n")
    assert "| masks | ort:disabled | 83 |" in text
    assert "```python\nscores = query @ key.transpose(2, 0)\n```" in text
    assert "- **Proven cause** masking: the mask is too weak" in text
    assert "Fix (tried: faithful): write -inf" in text
    assert "```console\nonnxproof verify ...\n```" in text
    assert len(text.splitlines()) < 60


def test_markdown_of_hostile_names_renders_as_text() -> None:
    from markdown_it import MarkdownIt

    text = markdown.dumps(hostile())
    html = MarkdownIt("gfm-like", {"html": True, "linkify": False}).render(text)
    allowed = {
        "h1",
        "h2",
        "h3",
        "h4",
        "p",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "strong",
        "em",
        "code",
        "pre",
        "ul",
        "ol",
        "li",
        "hr",
        "sub",
        "s",
    }
    assert set(re.findall(r"<([a-zA-Z][\w-]*)", html)) <= allowed
    assert "<h1" not in html
    assert "@everyone" not in text


def test_markdown_says_when_nothing_was_measured() -> None:
    assert markdown.failure("error[x]: ```y```").splitlines()[2:] == [
        "````text",
        "error[x]: ```y```",
        "````",
    ]


def test_annotations_point_at_the_line_and_cannot_begin_another_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (line,) = github.annotations(large()).splitlines()
    assert line.startswith(
        "::error title=onnxproof%3A diverged,file=/project/model.py,line=60::model.onnx differs from"
    )
    assert "%0Aproven cause masking: the mask is too weak" in line
    assert github.annotations(HEALTHY) == ""
    drift = replace(large(), verdict=Verdict.DRIFT)
    assert github.annotations(drift).startswith("::warning ")
    assert all(
        line.startswith("::") and line.count("\n") == 0
        for line in github.annotations(hostile()).splitlines()
    )
    assert len(github.annotations(hostile()).splitlines()) == 1 + len(hostile().findings)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    github.add_summary(large())
    github.add_summary(HEALTHY)
    assert (tmp_path / "summary.md").read_text(encoding="utf-8") == markdown.dumps(
        large()
    ) + markdown.dumps(HEALTHY)


def test_visible_leaves_nothing_that_acts() -> None:
    for name in HOSTILE:
        shown = plain.short(name)
        assert all(c.isprintable() for c in shown), shown
        assert len(shown) <= plain.LONGEST + 3
    assert plain.visible("grüße 数") == "grüße 数"
    assert (
        plain.visible("a\n::error::b\t##[error]c") == "a<U+000A>::error::b<U+0009>##<U+005B>error]c"
    )
    assert plain.block("grüße 数\n  ::error::b") == "grüße 数\n  <U+003A>:error::b"


def test_the_html_report_says_which_packages_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html_writer, "NEEDED", ("altair", "no_such_package"))
    with pytest.raises(
        Exception,
        match=r"error\[html-missing\]: the HTML report needs packages that are not installed: no_such_package",
    ) as told:
        html_writer.check()
    assert "pip install 'onnxproof[html]'" in str(told.value)


def test_every_proof_method_writes_its_form(tmp_path: Path) -> None:
    proof = HEALTHY
    proof.to_junit(tmp_path / "a.xml")
    proof.to_markdown(tmp_path / "a.md")
    proof.to_sarif(tmp_path / "a.sarif")
    assert (tmp_path / "a.xml").read_text(encoding="utf-8") == junit.dumps(proof)
    assert (tmp_path / "a.md").read_text(encoding="utf-8").startswith("### ✅ FAITHFUL")
    assert json.loads((tmp_path / "a.sarif").read_text())["version"] == "2.1.0"


def test_every_kind_of_proof_has_a_page() -> None:
    text = html_writer.page(list(ALL.values()))
    assert text.count("<article ") == len(ALL)
    for proof in ALL.values():
        assert f">{proof.verdict.value}<" in text
    assert "the runtime died" in text
    assert html_writer.dumps(VACUOUS).count('class="chart"') == 0


def test_backends_stand_beside_each_other_in_every_form() -> None:
    """Who is right, who is wrong and who gave no answer: on the page, in the summary and on the terminal."""
    page, summary = html_writer.dumps(crossed()), markdown.dumps(crossed())
    table = page[page.index('class="sortable cross"') :]
    table = table[: table.index("</table>")]
    assert [
        word
        for word in ("1.5 (example)", "812 (batch=2)", "not compared", "2.5e-01", "no answer")
        if word not in table
    ] == []
    assert (
        '<p class="facts"><bdi>on case <code>batch=2</code>: ort agrees with the standard; the others are wrong'
        in page
    )
    assert r"| wrong\|one | 812 (batch=2) | 2.5e-01 | 2.5e-01 | diverged |" in summary
    assert "- ort and gone disagree: only one of them answers" in summary


def test_the_index_has_decibels_for_a_quantized_model() -> None:
    proof = quantized()
    made = replace(
        proof,
        gaps=tuple(
            replace(gap, group="data", noise_kind=NoiseKind.SIMULATED, sqnr_db=31.5, ordinary=True)
            for gap in proof.gaps
        ),
    )
    page = html_writer.page([made, large(20, ("ort",), 10)])
    assert ">31.5 dB</td>" in page and " × noise</td>" in page


def test_names_in_backticks_are_code_and_nothing_else_is() -> None:
    from onnxproof.report.writers.html import _mark_code

    assert (
        _mark_code("node `<b>` of `x`, <i>")
        == "node <code>&lt;b&gt;</code> of <code>x</code>, &lt;i&gt;"
    )
    assert _mark_code("`</code><script>`") == "<code>&lt;/code&gt;&lt;script&gt;</code>"
