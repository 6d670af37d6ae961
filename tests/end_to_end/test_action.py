"""The GitHub action: its script is run as a workflow would run it, and no input can become a command; and our own workflow."""

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support.linear_files import BIAS, linear

ROOT = Path(__file__).parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
STEPS = {step["name"]: step for step in ACTION["runs"]["steps"]}


def run(folder: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    """The step `Verify` in bash, with the inputs that a workflow gives and the defaults of those that it does not."""
    given = {
        name: inputs.get(name, about.get("default", "")) for name, about in ACTION["inputs"].items()
    }
    environment = {
        name: given[value.removeprefix("${{ inputs.").removesuffix(" }}")]
        for name, value in STEPS["Verify"]["env"].items()
    }
    program = folder / "bin" / "onnxproof"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m onnxproof.cli "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IEXEC)
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", STEPS["Verify"]["run"]],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ
        | environment
        | {
            "PYTHONPATH": str(ROOT / "src"),
            "GITHUB_OUTPUT": str(folder / "output"),
            "GITHUB_STEP_SUMMARY": str(folder / "summary"),
            "PATH": f"{program.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        },
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    linear(tmp_path / "a.onnx")
    linear(tmp_path / "b.onnx", bias=BIAS + 0.5)
    return tmp_path


def test_a_bad_file_fails_the_job_and_leaves_every_report(folder: Path) -> None:
    done = run(
        folder,
        subject="a.onnx",
        model="b.onnx",
        budget="2",
        backends="ort ort:disabled",
        reports="out put",
    )
    assert done.returncode == 1, done.stderr
    assert "::error title=onnxproof%3A diverged,file=b.onnx" in done.stdout
    assert (folder / "output").read_text() == "verdict=diverged\n"
    assert "DIVERGED" in (folder / "summary").read_text(encoding="utf-8")
    assert {path.name for path in (folder / "out put").iterdir()} == {
        "proof.json",
        "report.html",
        "junit.xml",
        "results.sarif",
        "summary.md",
    }


def test_an_error_is_an_output_too(folder: Path) -> None:
    done = run(folder, subject="a.onnx", model="missing.onnx", budget="2")
    assert done.returncode == 2
    assert (folder / "output").read_text() == "verdict=error\n"


def test_an_input_stays_a_word(folder: Path) -> None:
    done = run(folder, subject="a.onnx", model='b.onnx"; touch owned; "$(touch owned)', budget="2")
    assert done.returncode == 2
    assert not (folder / "owned").exists()


def test_no_input_is_written_into_a_script() -> None:
    for step in STEPS.values():
        assert "${{" not in step.get("run", "")
    assert not any(about.get("required") for about in ACTION["inputs"].values())


def test_several_packages_are_installed_and_none_becomes_a_command(folder: Path) -> None:
    program = folder / "bin" / "python"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IEXEC)
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", STEPS["Install"]["run"]],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={
            "INSTALL": "onnxproof[html,openvino] $(touch owned)",
            "PATH": f"{program.parent}:/usr/bin:/bin",
        },
    )
    assert done.stdout == "-m|pip|install|onnxproof[html,openvino]|$(touch|owned)|", done.stderr
    assert not (folder / "owned").exists()


def test_without_a_subject_or_a_bundle_it_says_what_to_give(folder: Path) -> None:
    done = run(folder, model="a.onnx")
    assert done.returncode == 2
    assert "give `subject` and `model`, or `replay`" in done.stderr
    assert (folder / "output").read_text() == "verdict=error\n"


def test_one_job_bundles_and_another_replays(folder: Path) -> None:
    made = run(folder, subject="a.onnx", model="a.onnx", budget="2", bundle="a b.proof")
    assert made.returncode == 0, made.stderr
    replayed = run(
        folder, replay="a b.proof", model="a.onnx", reports="there", backends="ort:basic"
    )
    assert replayed.returncode == 0, replayed.stderr
    assert (folder / "output").read_text() == "verdict=faithful\n" * 2
    proof = json.loads((folder / "there" / "proof.json").read_text())
    assert proof["backends"] == ["ort:basic"] and "bundle" in proof["hashes"]
    other = run(folder, replay="a b.proof", model="b.onnx", reports="other")
    assert other.returncode == 2 and "error[other-model]" in other.stderr


def test_our_own_workflow_runs_every_target_that_tests() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"].values()
    commands = {step["run"] for job in jobs for step in job["steps"] if "run" in step}
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M)
    tests = {f"make {target}" for target in targets if re.match("test(-|$)", target)}
    assert commands == tests | {"make docs"}
