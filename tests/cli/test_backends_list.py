"""What `onnxproof backends` says: every way to install that it names exists, and the page's whole backend works."""

import re
import stat
import sys
import tomllib
from pathlib import Path

import pytest

from onnxproof import runtimes, testing
from onnxproof.cli import main
from onnxproof.errors import BackendMissing, UsageError
from onnxproof.runtimes import ort_at
from onnxproof.runtimes.javascript import node
from onnxproof.runtimes.session import download_cache

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "backends.md").read_text(encoding="utf-8")
OURS = (
    "opencv",
    "openvino",
    "ort",
    "ort-at",
    "ort-node",
    "ort-web",
    "reference",
    "torch",
    "torch64",
    "tract",
)


def test_every_backend_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["backends"]) == 0
    rows = {
        line.split()[0]
        for line in capsys.readouterr().out.splitlines()
        if line and not line.startswith(" ")
    }
    assert {name.replace("ort-at", "ort@VERSION") for name in OURS} <= rows


def test_of_a_missing_one_it_is_told_what_it_is_what_it_lacks_and_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also on a narrow terminal: the command is in one piece, to be copied."""
    monkeypatch.setattr("onnxproof.runtimes.tract.installed_version", lambda package: "")
    monkeypatch.setenv("COLUMNS", "50")
    assert main(["backends"]) == 0
    lines = capsys.readouterr().out.splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith("tract "))
    assert lines[start].split(maxsplit=1)[1] == "not installed"
    assert (
        lines[start + 1] == "  a runtime in Rust, for small devices"
        and "one thread" in lines[start + 2]
    )
    assert "  = help: pip install 'onnxproof[tract]'" in lines[start:]


def test_a_name_that_is_nearly_right() -> None:
    with pytest.raises(UsageError, match=r"there is no backend `trct`[\s\S]*did you mean `tract`"):
        runtimes.load("trct")


@pytest.mark.parametrize("name", OURS)
def test_each_has_an_extra_of_its_name_and_the_command_is_right(name: str) -> None:
    """BackendMissing tells `pip install 'onnxproof[name]'`, so that the extra must be there."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    assert name in extras
    install = runtimes.load(name).describe().install
    for extra in re.findall(r"onnxproof\[([^]]+)\]", install):
        assert extra in extras
    if extras[name]:
        assert install.startswith("pip install 'onnxproof[")


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxproof.runtimes.torch64", None)
    with pytest.raises(BackendMissing, match=r"pip install 'onnxproof\[torch64\]'"):
        runtimes.load("torch64")


def test_npm_packages_are_found_where_the_command_puts_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONNXPROOF_CACHE", str(tmp_path))
    monkeypatch.delenv("ONNXPROOF_NODE_MODULES", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(node, "global_packages", lambda: None)
    assert (
        node.install("onnxruntime-web")
        == f"npm install --ignore-scripts --prefix {tmp_path / 'npm'} onnxruntime-web"
    )
    with pytest.raises(BackendMissing, match="needs the npm package onnxruntime-web"):
        node.require_package("onnxruntime-web", "ort-web")
    package = tmp_path / "npm" / "node_modules" / "onnxruntime-web"
    package.mkdir(parents=True)
    (package / "package.json").write_text('{"version": "9.8.7"}')
    assert (
        node.version("onnxruntime-web") == "9.8.7"
        and node.require_package("onnxruntime-web", "ort-web") == package
    )


def test_the_cache_is_the_users_unless_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ONNXPROOF_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert download_cache.folder("ort").parts[-2:] == ("onnxproof", "ort")


@pytest.mark.parametrize(
    "version", ["latest", "numpy==2.0", "1.23.2; rm -rf", "--index-url=x", "../x"]
)
def test_only_versions_and_builds_of_onnxruntime_are_installed(version: str) -> None:
    with pytest.raises(UsageError, match="neither a version of onnxruntime nor a build of it"):
        ort_at.requirement(version)


def test_an_outsider_that_breaks_does_not_hide_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with testing.outsider(tmp_path, "raise RuntimeError('no driver')", "broken-one"):
        assert main(["backends"]) == 0
    out = capsys.readouterr().out
    assert "RuntimeError: no driver" in out and "ONNX Runtime, the runtime that most" in out


PROGRAM = """#!{python}
import sys
import numpy as np, onnxruntime
model, inputs = sys.argv[1], sys.argv[2:]
try:
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    found = session.run(None, {{name.removesuffix(".npy"): np.load(name) for name in inputs}})
except Exception as why:
    sys.exit(str(why))
for k, array in enumerate(found):
    np.save(f"out{{k}}.npy", array)
"""


def test_the_whole_backend_of_the_page_is_short_and_passes_the_kit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = next(
        block for block in re.findall(r"```python\n(.*?)```", PAGE, re.S) if "def describe" in block
    )
    assert len(source.splitlines()) < 40
    program = tmp_path / "bin" / "mine"
    program.parent.mkdir()
    program.write_text(PROGRAM.format(python=sys.executable))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    with testing.outsider(tmp_path, source, "mine"):
        assert testing.conformance("mine", tmp_path) == []


def test_the_page_names_every_finding_that_the_code_can_make() -> None:
    source = "".join(
        path.read_text()
        for path in (
            ROOT / "src/onnxproof/verification/runtime_checks.py",
            ROOT / "src/onnxproof/runtimes/isolation/child.py",
        )
    )
    codes = set(re.findall(r'_finding\(\s*"([a-z0-9-]+)"', source)) | set(
        re.findall(r'_Dead\(\s*"([a-z-]+)"', source)
    )
    assert codes >= {"nan-dropped", "int64-truncated", "hung", "out-of-memory"}
    assert all(f"`{code}`" in PAGE for code in codes)
