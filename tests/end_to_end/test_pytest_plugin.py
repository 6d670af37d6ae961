"""The plug-in in real runs of pytest: what a failure says, what the marker makes, the report, and what it costs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.linear_files import candidates, reference

pytest_plugins = ["pytester"]
SOURCE = Path(__file__).parents[2] / "src"
ARGUMENTS = ("-p", "onnxproof_pytest", "-p", "no:cacheprovider", "-p", "no:xdist")


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:

    monkeypatch.setenv("PYTHONPATH", str(SOURCE))
    monkeypatch.syspath_prepend(SOURCE)
    reference(pytester.path)
    candidates(pytester.path)
    (pytester.path / "scratch").mkdir()
    monkeypatch.setenv("TMPDIR", str(pytester.path / "scratch"))
    return pytester


def left_behind(run: pytest.Pytester) -> list[Path]:
    """What the plug-in kept and did not remove."""
    return list((run.path / "scratch").glob("onnxproof-*"))


def test_a_proof_in_one_line_and_a_failure_that_reads_well(run: pytest.Pytester) -> None:
    run.makepyfile("""
        from onnxproof_pytest import assert_faithful

        def test_good():
            assert assert_faithful("model.py:build", "good.onnx", budget_s=2).verdict == "faithful"

        def test_bad():
            assert_faithful("model.py:build", "bad.onnx", budget_s=60)
    """)
    result = run.runpytest_subprocess(*ARGUMENTS)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "error?verdict-diverged?: bad.onnx differs from build: output `*",
            "  --> bad.onnx",
            "  = note: stage export, node *",
            "  = help: replay: onnxproof verify model.py:build bad.onnx --case '*' --backend ort --seed 0",
        ]
    )
    assert "prove.py" not in result.stdout.str()
    assert "Traceback" not in result.stdout.str()


def test_drift_fails_only_when_it_is_strict(run: pytest.Pytester) -> None:
    run.makepyfile("""
        from onnxproof_pytest import assert_faithful

        def test_drift():
            assert assert_faithful("good.onnx", "drift.onnx", budget_s=1, explain=False).verdict == "drift"

        def test_lenient(onnxproof):
            onnxproof.assert_faithful("good.onnx", "drift.onnx", budget_s=1, explain=False, strict=False)
    """)
    run.runpytest_subprocess(*ARGUMENTS).assert_outcomes(passed=2)
    strict = run.runpytest_subprocess(*ARGUMENTS, "--onnxproof-strict")
    strict.assert_outcomes(passed=1, failed=1)
    strict.stdout.fnmatch_lines(["error?verdict-drift?: drift.onnx drifts from good.onnx*"])


def test_the_marker_makes_a_test_for_each_backend_and_opset(run: pytest.Pytester) -> None:
    run.makepyfile("""
        import pytest

        @pytest.mark.onnxproof(backends=("ort", "ort:disabled"), opsets=(18, 20), budget_s=0.5)
        def test_export(onnxproof):
            import onnx
            import torch

            proof = onnxproof.assert_exports(torch.nn.Linear(4, 2), (torch.randn(3, 4),))
            assert proof.backends == (onnxproof.backend,)
            assert proof.budget_s == 0.5
            assert onnx.load(onnxproof.folder / "model.onnx").opset_import[0].version == onnxproof.opset
    """)
    listed = run.runpytest_subprocess(*ARGUMENTS, "--collect-only", "-q")
    listed.stdout.fnmatch_lines(
        [
            f"*test_export?{name}?"
            for name in (
                "ort-opset18",
                "ort-opset20",
                "ort:disabled-opset18",
                "ort:disabled-opset20",
            )
        ]
    )
    run.runpytest_subprocess(
        *ARGUMENTS, "-k", "disabled and opset20 or not disabled and opset18"
    ).assert_outcomes(passed=2, deselected=2)


def test_a_wrong_word_in_the_marker_is_told(run: pytest.Pytester) -> None:
    run.makepyfile("""
        import pytest

        @pytest.mark.onnxproof(backend="ort")
        def test_it(onnxproof):
            pass
    """)
    result = run.runpytest_subprocess(*ARGUMENTS, "--strict-markers")
    assert result.ret != 0
    result.stdout.fnmatch_lines(
        ["*the marker `onnxproof` has no `backend`; it is onnxproof(backends=*"]
    )


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_one_report_of_the_whole_run(run: pytest.Pytester, workers: tuple[str, ...]) -> None:
    run.makepyfile("""
        from onnxproof_pytest import assert_faithful

        def test_good():
            assert_faithful("good.onnx", "good.onnx", budget_s=1)

        def test_bad():
            assert_faithful("good.onnx", "bad.onnx", budget_s=1, explain=False)
    """)
    arguments = ARGUMENTS[:4] + workers if workers else ARGUMENTS
    result = run.runpytest_subprocess(*arguments, "--onnxproof-html", "report.html")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["onnxproof: 2 proofs in report.html"])
    assert left_behind(run) == []
    page = (run.path / "report.html").read_text(encoding="utf-8")
    assert "2 proofs" in page
    assert page.count("<article ") == 2


def test_no_proof_is_no_report(run: pytest.Pytester) -> None:
    run.makepyfile("def test_nothing(): pass")
    result = run.runpytest_subprocess(*ARGUMENTS, "--onnxproof-html", "report.html")
    result.stdout.fnmatch_lines(["onnxproof: no test made a proof, so there is no report"])
    assert not (run.path / "report.html").exists()
    assert left_behind(run) == []


def test_a_report_that_cannot_be_written_is_told_before_the_run(run: pytest.Pytester) -> None:
    run.makepyfile("def test_nothing(): pass")
    result = run.runpytest_subprocess(*ARGUMENTS, "--onnxproof-html", "nowhere/report.html")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*there is no folder `nowhere`*"])


def test_the_plug_in_loads_nothing_but_pytest(tmp_path: Path) -> None:
    script = "import sys, pytest\nbefore = set(sys.modules)\nimport onnxproof_pytest\nprint(*sorted(set(sys.modules) - before))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
    )
    assert done.stdout.split() == ["onnxproof_pytest"]


def test_the_help_tells_the_options(run: pytest.Pytester) -> None:
    result = run.runpytest_subprocess(*ARGUMENTS, "--help")
    result.stdout.fnmatch_lines(["  --onnxproof-html=PATH*", "  --onnxproof-strict*"])
