"""Every report from the command line: what is written, where, and what happens when it can't be."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as xml

import pytest
from support.linear_files import BIAS, linear
from support.made_proofs import large

from onnxproof.cli import main

SOURCE = Path(__file__).parents[2] / "src"
QUICK = ("--budget", "2", "--no-explain")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    linear(tmp_path / "a.onnx")
    linear(tmp_path / "b.onnx", bias=BIAS + 0.5)
    return tmp_path


def test_all_reports_of_one_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "--json",
        "p.json",
        "--html",
        "r.html",
        "--junit",
        "r.xml",
        "--markdown",
        "r.md",
        "--sarif",
        "r.sarif",
    ]
    assert main(["diff", "a.onnx", "b.onnx", *QUICK, *words]) == 1
    assert json.loads((folder / "p.json").read_text())["verdict"] == "diverged"
    page = (folder / "r.html").read_text(encoding="utf-8")
    assert "DIVERGED" in page
    assert 'data-chart="profile"' in page, "a report asks for the noise along the graph"
    assert int(xml.parse(folder / "r.xml").getroot().get("failures", 0)) > 0
    assert (folder / "r.md").read_text(encoding="utf-8").startswith("### ❌ DIVERGED: b.onnx")
    assert json.loads((folder / "r.sarif").read_text())["runs"][0]["results"][0]["level"] == "error"
    assert "DIVERGED" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("option", "start"),
    [
        ("--markdown", "### ✅"),
        ("--junit", "<?xml"),
        ("--sarif", "{"),
        ("--html", "<!doctype html>"),
    ],
)
def test_any_report_may_have_standard_output_alone(
    option: str, start: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diff", "a.onnx", "a.onnx", *QUICK, option, "-"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith(start)
    assert "FAITHFUL" in said.err


def test_two_reports_cannot_share_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", "a.onnx", "b.onnx", "--json", "-", "--junit", "-"]) == 2
    assert "error[usage]: only one report can go to standard output" in capsys.readouterr().err


def test_a_folder_that_is_not_there_is_told_before_the_work(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["diff", "a.onnx", "b.onnx", "--html", "nowhere/r.html"]) == 2
    assert "error[cannot-write]: there is no folder `nowhere`" in capsys.readouterr().err


def test_a_run_that_fails_leaves_no_report_that_says_otherwise(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "broken.onnx").write_text("no onnx")
    files = {
        "--html": "r.html",
        "--junit": "r.xml",
        "--markdown": "r.md",
        "--sarif": "r.sarif",
        "--json": "p.json",
    }
    for name in files.values():
        (folder / name).write_text("faithful, once")
    assert (
        main(["diff", "a.onnx", "broken.onnx", *[word for pair in files.items() for word in pair]])
        == 2
    )
    for name in files.values():
        text = (folder / name).read_text(encoding="utf-8")
        assert "faithful, once" not in text
        assert "not-onnx" in text, name


def test_in_a_workflow_the_line_is_annotated_and_the_summary_is_added(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(folder / "summary.md"))
    assert main(["diff", "a.onnx", "b.onnx", *QUICK, "--github"]) == 1
    assert "::error title=onnxproof%3A diverged,file=b.onnx::" in capsys.readouterr().out
    assert "DIVERGED" in (folder / "summary.md").read_text(encoding="utf-8")


def test_report_makes_one_page_of_stored_proofs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "proofs").mkdir()
    large(20, ("ort",), 10).to_json(folder / "proofs/one.json")
    assert main(["diff", "a.onnx", "a.onnx", *QUICK, "--json", "proofs/two.json"]) == 0
    capsys.readouterr()
    assert (
        main(
            ["report", "proofs", "proofs/one.json", "-o", "r.html", "--title", "Friday's <models>"]
        )
        == 1
    )
    page = (folder / "r.html").read_text(encoding="utf-8")
    assert page.count("<article ") == 3
    assert "<title>Friday&#39;s &lt;models&gt;</title>" in page
    said = capsys.readouterr().out
    assert said.count("DIVERGED") == 2
    assert said.endswith("report: r.html\n")
    for name in ("r.md", "r.xml", "r.sarif"):
        assert main(["report", "proofs/two.json", "-o", name]) == 0
        assert (folder / name).stat().st_size > 200


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nothing.json", "-o", "r.html"], "error[no-such-file]: there is no proof `nothing.json`"),
        (["a.onnx", "-o", "r.html"], "error["),
        (
            ["empty", "-o", "r.html"],
            "error[nothing-there]: there is no .json in the folder `empty`",
        ),
        (
            ["p.json", "-o", "r.pdf"],
            "error[unknown-kind]: what `r.pdf` should be can't be told from its ending",
        ),
        (["p.json", "-o", "nowhere/r.html"], "error[cannot-write]: there is no folder `nowhere`"),
    ],
)
def test_what_report_cannot_read_or_write_is_told(
    folder: Path, words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "empty").mkdir()
    assert main(["report", *words]) == 2
    assert told in capsys.readouterr().err
    assert not (folder / "r.html").exists()


def shell(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "onnxproof.cli", *words],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(SOURCE)} | environment,
    )


def test_piped_there_is_no_control_character() -> None:
    done = shell("diff", "a.onnx", "b.onnx", *QUICK, "--verbose")
    assert all(c == "\n" or c.isprintable() for c in done.stdout + done.stderr)


def on_a_terminal(*words: str, **environment: str) -> str:
    """What a terminal of 60 columns receives."""
    parent, child = pty.openpty()
    done = subprocess.Popen(
        [sys.executable, "-m", "onnxproof.cli", *words],
        stdout=child,
        stderr=child,
        stdin=child,
        close_fds=True,
        env=os.environ
        | {"PYTHONPATH": str(SOURCE), "TERM": "xterm-256color", "COLUMNS": "60", "LINES": "24"}
        | environment,
    )
    os.close(child)
    received = b""
    while True:
        try:
            piece = os.read(parent, 65536)
        except OSError:
            break
        if not piece:
            break
        received += piece
    done.wait()
    os.close(parent)
    return received.decode()


def test_a_terminal_has_colours_and_a_bar_and_no_color_takes_the_colours_away() -> None:
    shown = on_a_terminal("diff", "a.onnx", "b.onnx", *QUICK)
    assert "\x1b[1;31mDIVERGED" in shown
    assert "s left, now" in shown
    plain = on_a_terminal("diff", "a.onnx", "b.onnx", *QUICK, NO_COLOR="1")
    assert "DIVERGED" in plain
    assert "31m" not in plain
    quiet = on_a_terminal("diff", "a.onnx", "a.onnx", *QUICK, "--quiet")
    assert "s left" not in quiet
    assert len(quiet.strip().splitlines()) <= 3


def test_a_stored_proof_is_reported_without_running_anything(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    large(20, ("ort",), 10).to_json(folder / "p.json")
    assert (
        main(
            [
                "verify",
                "--from",
                "p.json",
                "--html",
                "r.html",
                "--junit",
                "-",
                "--noise-limit",
                "1e6",
            ]
        )
        == 0
    )
    assert capsys.readouterr().out.startswith("<?xml")
    assert 'data-chart="profile"' in (folder / "r.html").read_text(encoding="utf-8")
    assert main(["explain", "p.json", "--markdown", "-"]) == 1
    said = capsys.readouterr()
    assert said.out.startswith("### ❌ DIVERGED")
    assert "proven cause masking" in said.err
