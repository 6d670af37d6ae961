"""The marker `onnxproof_suite`: one test for each model, and a mistake of the manifest before any of them."""

import subprocess
import sys
from pathlib import Path

from support.suites import make_folder

SUITE = """
[suite]
cases = ["ordinary-0"]
explain = false

[[model]]
name = "{file}"
subject = "model.py:build"
file = "{file}.onnx"
file_ = 1
tags = ["{file}"]
"""
TEST = """
import pytest


@pytest.mark.onnxproof_suite("suite.toml"%s)
def test_model(suite_model):
    assert suite_model.check().verdict == "faithful"
"""


def run(folder: Path, marker: str = "") -> subprocess.CompletedProcess[str]:
    (folder / "test_suite.py").write_text(TEST % marker)
    words = ("-q", "-p", "onnxproof_pytest", "-p", "no:cacheprovider", "test_suite.py")
    return subprocess.run(
        [sys.executable, "-m", "pytest", *words], cwd=folder, capture_output=True, text=True
    )


def models(folder: Path, names: str) -> None:
    text = SUITE.replace("file_ = 1\n", f"name_ = {names}\n").replace("{file}", "{name_}")
    (folder / "suite.toml").write_text(text)


def test_each_model_is_a_test_and_a_fault_fails_its_own(tmp_path):
    make_folder(tmp_path)
    models(tmp_path, '["good", "bad"]')
    done = run(tmp_path)
    assert done.returncode == 1, done.stdout
    assert "1 failed, 1 passed" in done.stdout
    assert "test_model[bad]" in done.stdout and "bad.onnx differs from build" in done.stdout


def test_a_mistake_of_the_manifest_is_told_when_tests_are_collected(tmp_path):
    make_folder(tmp_path)
    (tmp_path / "suite.toml").write_text(SUITE)
    done = run(tmp_path)
    assert "`file_` is no key here" in done.stdout + done.stderr
    models(tmp_path, '["good"]')
    done = run(tmp_path, ', tags="none"')
    assert "no model has the tag `none`" in done.stdout + done.stderr
