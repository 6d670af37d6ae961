"""Imports go one way, and start-up loads nothing heavy."""

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "onnxproof"
HEAVY = ("torch", "onnx", "numpy", "onnxruntime", "rich", "typer")


def files() -> Iterator[tuple[str, Path]]:
    for path in sorted(SOURCE.rglob("*.py")):
        words = path.relative_to(SOURCE).with_suffix("").parts
        if words != ("__init__",):
            yield words[0], path


def test_the_layers_of_pyproject_hold() -> None:
    done = subprocess.run(
        [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(SOURCE.parent)},
    )
    assert done.returncode == 0, done.stdout


def test_an_import_that_points_up_is_seen(tmp_path: Path) -> None:
    """The contract is no decoration: a copy of the source with one arrow back breaks it."""
    shutil.copytree(SOURCE, tmp_path / "src" / "onnxproof")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "src/onnxproof/numerics/planted.py").write_text(
        "import onnxproof.report.terminal\n"
    )
    done = subprocess.run(
        [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(tmp_path / "src")},
    )
    assert done.returncode == 1
    assert "onnxproof.numerics.planted -> onnxproof.report.terminal" in done.stdout


@pytest.mark.parametrize(
    ("name", "path"),
    list(files()),
    ids=lambda value: str(value.relative_to(SOURCE)) if isinstance(value, Path) else "",
)
def test_no_private_module_is_imported_from_another_package(name: str, path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if (
            isinstance(node, ast.ImportFrom)
            and node.module is not None
            and node.module.startswith("onnxproof")
        ):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import hides where it points"
            for module in [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]:
                package, _, last = module.rpartition(".")
                private = last.startswith("_") and not last.startswith("__")
                home = SOURCE.parent.joinpath(*package.split("."))
                assert not private or not home.is_dir() or path.is_relative_to(home), (
                    f"{path}:{node.lineno} imports {module}"
                )


PROGRAMS = ("replay_script.py",)
"""Files that are copied out and run by themselves; nothing of the package calls them."""


def test_only_cli_and_report_print() -> None:
    for name, path in files():
        if name not in ("cli", "report") and path.name not in PROGRAMS:
            calls = [
                node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)
            ]
            prints = [
                call.lineno
                for call in calls
                if isinstance(call.func, ast.Name) and call.func.id == "print"
            ]
            assert not prints, f"{path}:{prints[0]} prints"


def loaded(code: str) -> set[str]:
    script = f"import sys\n{code}\nsys.stderr.write(' '.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(SOURCE.parent)},
    )
    return {name.partition(".")[0] for name in done.stderr.split()}


def test_importing_onnxproof_loads_nothing_heavy() -> None:
    assert not loaded("import onnxproof") & set(HEAVY)


def test_the_help_loads_nothing_heavy() -> None:
    assert not loaded("from onnxproof.cli import main\nassert main(['--help']) == 0") & set(HEAVY)


def test_the_help_of_a_command_loads_neither_torch_nor_onnx() -> None:
    assert not loaded("from onnxproof.cli import main\nassert main(['verify', '--help']) == 0") & {
        "torch",
        "onnx",
        "numpy",
        "onnxruntime",
    }


def test_judging_a_stored_proof_loads_neither_torch_nor_onnx(tmp_path: Path) -> None:
    from support.made_proofs import full

    full().to_json(tmp_path / "p.json")
    assert not loaded(
        f"from onnxproof.cli import main\nmain(['verify', '-q', '--from', {str(tmp_path / 'p.json')!r}])"
    ) & {"torch", "onnx", "onnxruntime"}


def test_every_public_name_is_there() -> None:
    import onnxproof

    assert [name for name in onnxproof.__all__ if not hasattr(onnxproof, name)] == []
    assert set(onnxproof.__all__) <= set(dir(onnxproof))
    with pytest.raises(AttributeError, match="module 'onnxproof' has no attribute 'verfy'"):
        onnxproof.verfy  # noqa: B018
