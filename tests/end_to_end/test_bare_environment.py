"""The built wheel, installed: once without torch (the core alone), once beside everything that the tests have."""

import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from support.linear_files import BIAS, linear, reference

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def run(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )


def done(*words: str | Path, cwd: Path) -> str:
    finished = run(*words, cwd=cwd)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    done(
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        folder,
        ROOT,
        cwd=folder,
    )
    return next(folder.glob("onnxproof-*.whl"))


@pytest.fixture(scope="session")
def bare(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """The folder of a virtual environment with the wheel and its core dependencies."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder / "venv", with_pip=False)
    done(
        sys.executable,
        "-m",
        "pip",
        "--python",
        folder / "venv/bin/python",
        "install",
        "--quiet",
        "--no-compile",  # what is imported is compiled then; the rest never is
        "--constraint",
        ROOT / "constraints.txt",
        wheel,
        cwd=folder,
    )
    linear(folder / "a.onnx")
    linear(folder / "b.onnx", bias=BIAS + 0.5)
    return folder


@pytest.fixture(scope="session")
def beside(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """The wheel alone in its own environment, with the packages of this one behind it."""
    folder = tmp_path_factory.mktemp("beside")
    venv.create(folder / "venv", with_pip=False)
    site = next((folder / "venv/lib").glob("python3*")) / "site-packages"
    done(
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--target",
        site,
        wheel,
        cwd=folder,
    )
    (site / "behind.pth").write_text(sysconfig.get_path("purelib") + "\n")

    reference(folder)
    linear(folder / "a.onnx")
    return folder


def test_there_is_no_torch_in_the_bare_environment(bare: Path) -> None:
    assert run(bare / "venv/bin/python", "-c", "import torch", cwd=bare).returncode != 0


def test_the_core_imports_and_helps(bare: Path) -> None:
    assert "site-packages" in done(
        bare / "venv/bin/python", "-c", "import onnxproof; print(onnxproof.__file__)", cwd=bare
    )
    assert "usage: onnxproof COMMAND" in done(bare / "venv/bin/onnxproof", "--help", cwd=bare)
    assert done(bare / "venv/bin/onnxproof", "--version", cwd=bare).startswith("onnxproof 0.")


def test_every_module_of_the_core_imports(bare: Path) -> None:
    script = (
        "import importlib, pkgutil, onnxproof\n"
        "for info in pkgutil.walk_packages(onnxproof.__path__, 'onnxproof.'):\n"
        "    if info.name.endswith('__main__'): continue\n"
        "    try: importlib.import_module(info.name)\n"
        "    except ModuleNotFoundError as why: print(info.name, why.name)\n"
    )
    lines = [
        line.split() for line in done(bare / "venv/bin/python", "-c", script, cwd=bare).splitlines()
    ]
    assert {missing for _, missing in lines} <= {"torch", "altair"}, lines
    assert {name for name, _ in lines}.isdisjoint(
        {
            "onnxproof.verification.run",
            "onnxproof.exporter",
            "onnxproof.cli._demo_model",
            "onnxproof.diagnosis.diagnose",
            "onnxproof.verification.case_runner",
        }
    )


def test_backends_says_how_to_install_what_is_missing(bare: Path) -> None:
    listed = done(bare / "venv/bin/onnxproof", "backends", cwd=bare)
    assert "ONNX Runtime" in listed
    told = listed[listed.index("\ntorch ") + 1 : listed.index("\ntorch64 ")]
    assert "not installed" in told
    assert "  = help: pip install 'onnxproof[torch]'\n" in told + "\n"


def test_diff_works_without_torch(bare: Path) -> None:
    same = run(
        bare / "venv/bin/onnxproof",
        "diff",
        "a.onnx",
        "a.onnx",
        "--budget",
        "5",
        "--json",
        "same.json",
        cwd=bare,
    )
    assert same.returncode == 0, same.stdout + same.stderr
    assert json.loads((bare / "same.json").read_text())["verdict"] == "faithful"
    other = run(bare / "venv/bin/onnxproof", "diff", "a.onnx", "b.onnx", "--budget", "5", cwd=bare)
    assert other.returncode == 1, other.stdout + other.stderr
    assert "DIVERGED" in other.stdout


def test_a_bundle_is_replayed_without_torch(bare: Path) -> None:
    onnxproof = bare / "venv/bin/onnxproof"
    done(onnxproof, "diff", "a.onnx", "a.onnx", "--budget", "5", "--bundle", "a.proof", cwd=bare)
    assert "FAITHFUL" in done(onnxproof, "replay", "a.proof", "--json", "r.json", cwd=bare)
    assert json.loads((bare / "r.json").read_text())["verdict"] == "faithful"
    words = (onnxproof, "replay", "a.proof", "--model", "b.onnx")
    other = run(*words, cwd=bare)
    assert other.returncode == 2 and "error[other-model]" in other.stderr
    wrong = run(*words, "--allow-other-model", cwd=bare)
    assert wrong.returncode == 1 and "DIVERGED" in wrong.stdout


def test_a_module_without_torch_is_an_error_with_words(bare: Path) -> None:
    (bare / "model.py").write_text("import torch\n")
    told = run(bare / "venv/bin/onnxproof", "verify", "model.py:build", "a.onnx", cwd=bare)
    assert told.returncode == 2
    assert "No module named 'torch'" in told.stderr
    assert "Traceback" not in told.stderr


def test_the_wheel_with_everything_verifies_a_module(beside: Path) -> None:
    python = beside / "venv/bin/python"
    assert str(beside) in done(
        python, "-c", "import onnxproof, torch; print(onnxproof.__file__)", cwd=beside
    )
    told = run(
        python,
        "-m",
        "onnxproof.cli",
        "verify",
        "model.py:build",
        "a.onnx",
        "--budget",
        "4",
        cwd=beside,
    )
    assert told.returncode == 0, told.stdout + told.stderr
    assert "FAITHFUL" in told.stdout


def test_the_wheel_brings_its_page_and_its_pytest_plug_in(beside: Path) -> None:
    python = beside / "venv/bin/python"
    done(
        python,
        "-m",
        "onnxproof.cli",
        "diff",
        "a.onnx",
        "a.onnx",
        "--budget",
        "1",
        "--json",
        "p.json",
        cwd=beside,
    )
    done(python, "-m", "onnxproof.cli", "report", "p.json", "-o", "r.html", cwd=beside)
    assert "FAITHFUL" in (beside / "r.html").read_text(encoding="utf-8")
    assert "--onnxproof-strict" in done(python, "-m", "pytest", "--help", cwd=beside), (
        "the entry point is found without -p"
    )


def test_the_report_says_what_to_install(bare: Path) -> None:
    told = run(
        bare / "venv/bin/onnxproof", "diff", "a.onnx", "a.onnx", "--html", "r.html", cwd=bare
    )
    assert told.returncode == 2
    assert "error[html-missing]" in told.stderr
    assert "pip install 'onnxproof[html]'" in told.stderr


def test_the_wheel_holds_the_package_and_its_licence_only(wheel: Path) -> None:
    import zipfile

    names = zipfile.ZipFile(wheel).namelist()
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert all(name.startswith(("onnxproof/", "onnxproof-", "onnxproof_pytest")) for name in names)
    assert not any("__pycache__" in name for name in names)
