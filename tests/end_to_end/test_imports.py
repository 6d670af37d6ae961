"""Imports go one way, and start-up loads nothing heavy."""

import ast
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "onnxproof"
ORDER = (
    {"text"},
    {"types", "errors", "outsiders", "environment"},
    {"scratch", "user_files"},
    {"files"},
    {"archives", "pretrained", "arrayfiles"},
    {"deadline", "guard", "expansion"},
    {"nest"},
    {"filecheck"},
    {"onnxfile"},
    {"compare"},
    {"judge"},
    {"backends"},
    {"cases"},
    {"execute"},
    {"fleet", "probe", "budget"},
    {"decisions"},
    {"preprocessing"},
    {"subject", "signature", "data"},
    {"userdata"},
    {"pipelines"},
    {"oracles"},
    {"trust", "crosscheck", "speed"},
    {"void", "coverage_floor"},
    {"fidelity", "inputstats"},
    {"masked", "notes"},
    {"trial"},
    {"proof"},
    {"prove"},
    {"inspecting"},
    {"exporting"},
    {"exporter"},
    {"quantizing"},
    {"locate"},
    {"causes"},
    {"diagnose"},
    {"remedy"},
    {"report"},
    {"baseline"},
    {"demo"},
    {"testing"},
    {"cli"},
)
"""The flow of DESIGN: a part may import itself and what stands before it. Parts in one set don't know each other, but errors and types do no harm."""
DOORS = {
    ("prove", "diagnose"): "`verify` explains a bad verdict by itself; imported when there is one",
}
"""Arrows that point back on purpose: each is inside a function, and has a reason."""
HEAVY = ("torch", "onnx", "numpy", "onnxruntime", "rich", "typer")


def part(module: str) -> str:
    """`onnxproof.runtimes.ort` is of the part `backends`."""
    return module.split(".")[1] if "." in module else ""


def files() -> Iterator[tuple[str, Path]]:
    for path in sorted(SOURCE.rglob("*.py")):
        words = path.relative_to(SOURCE).with_suffix("").parts
        if words != ("__init__",):
            yield words[0], path


def imports(tree: ast.AST) -> Iterator[tuple[str, int, bool]]:
    """Parts of onnxproof that are imported, with the line, and whether it happens only inside a function."""
    inside = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for child in ast.walk(node)
    }
    only_types = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for child in ast.walk(node)
    }
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            names = (
                [f"onnxproof.{alias.name}" for alias in node.names]
                if node.module == "onnxproof"
                else [node.module]
            )
        elif isinstance(node, ast.ImportFrom):
            pytest.fail(f"line {node.lineno}: a relative import hides where it points")
        for name in names:
            if name.startswith("onnxproof.") and id(node) not in only_types:
                yield part(name), getattr(node, "lineno", 0), id(node) in inside


def rank(name: str) -> int:
    return next((place for place, names in enumerate(ORDER) if name in names), -1)


def test_every_part_has_its_place() -> None:
    known = set().union(*ORDER)
    found = {name for name, _ in files()}
    assert found <= known, f"give {found - known} a place in ORDER"


@pytest.mark.parametrize(
    ("name", "path"),
    list(files()),
    ids=lambda value: str(value.relative_to(SOURCE)) if isinstance(value, Path) else "",
)
def test_no_arrow_points_back(name: str, path: Path) -> None:
    for target, line, inside in imports(ast.parse(path.read_text())):
        if (name, target) in DOORS and inside:
            continue
        forward = target == name or rank(target) < rank(name)
        assert forward or {name, target} <= {"types", "errors"}, (
            f"{path}:{line} imports {target}, which comes after {name}"
        )


def test_the_doors_are_used() -> None:
    used = {
        (name, target)
        for name, path in files()
        for target, _, _ in imports(ast.parse(path.read_text()))
    }
    assert set(DOORS) <= used


def test_only_cli_and_report_print() -> None:
    for name, path in files():
        if name not in ("cli", "report"):
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


def least(*programs: Sequence[str]) -> list[float]:
    """The shortest of many starts of each, taken in turns: whatever else the machine does, it does it to all of them."""
    taken: list[list[float]] = [[] for _ in programs]
    for _ in range(12):
        for words, times in zip(programs, taken, strict=True):
            start = time.perf_counter()
            subprocess.run(
                [sys.executable, *words],
                capture_output=True,
                check=True,
                env=os.environ | {"PYTHONPATH": str(SOURCE.parent)},
            )
            times.append(time.perf_counter() - start)
    return [min(times) for times in taken]


def test_the_help_takes_at_most_five_times_an_empty_python() -> None:
    helped, empty = least(("-m", "onnxproof.cli", "--help"), ("-c", "pass"))
    assert helped <= 5 * empty


def test_every_public_name_is_there() -> None:
    import onnxproof

    assert [name for name in onnxproof.__all__ if not hasattr(onnxproof, name)] == []
    assert set(onnxproof.__all__) <= set(dir(onnxproof))
    with pytest.raises(AttributeError, match="module 'onnxproof' has no attribute 'verfy'"):
        onnxproof.verfy  # noqa: B018
