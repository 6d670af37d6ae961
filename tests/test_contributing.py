"""The examples of CONTRIBUTING.md are plug-ins that work: each is loaded through its registry and used."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from onnx import helper
from support.linear_files import linear
from support.made_proofs import full
from support.workbenches import graph_model, workbench

from onnxproof import testing
from onnxproof.diagnosis.causes import CAUSES
from onnxproof.exporter.attempts import ATTEMPTS
from onnxproof.inputs.generators import GENERATORS
from onnxproof.inputs.inference import make_space
from onnxproof.inspection import CHECKS, View
from onnxproof.inspection.view import open_view
from onnxproof.onnxmodel import onnx_file
from onnxproof.quantization.recipes import RECIPES
from onnxproof.reference import loaders
from onnxproof.registry import Registry
from onnxproof.results import InputInfo, OutputInfo, Signature
from onnxproof.results.proof import Writer
from onnxproof.runtimes import RUNTIMES, open_session

PAGE = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## Adding (.*?):.*?\n(.*?)(?=^## )", PAGE, re.M | re.S))
WRITERS: Registry[Writer] = Registry("writer", "onnxproof.report.writers", Writer)
X = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)


def example(section: str) -> ModuleType:
    """The section's example as a module."""
    source = re.search(r"```python\n(.*?)```", SECTIONS[section], re.S)
    assert source is not None
    module = ModuleType(f"example_{section.split()[-1]}")
    exec(compile(source.group(1), section, "exec"), vars(module))
    return module


@pytest.fixture
def install(tmp_path: Path) -> Iterator[Any]:
    """Registers a module as an entry point of another package, and loads it through the registry."""
    sys.path.insert(0, str(tmp_path))

    def install(registry: Registry[Any], section: str) -> Any:
        group = registry.group or "onnxproof.tests"
        source = re.search(r"```python\n(.*?)```", SECTIONS[section], re.S)
        assert source is not None
        (tmp_path / "example_plugin.py").write_text(source.group(1))
        info = tmp_path / "example_plugin-1.0.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text(
            "Metadata-Version: 2.1\nName: example-plugin\nVersion: 1.0\n"
        )
        (info / "entry_points.txt").write_text(f"[{group}]\nmine = example_plugin\n")
        sys.path.insert(0, str(tmp_path))
        return registry.load("mine")

    yield install
    while str(tmp_path) in sys.path:
        sys.path.remove(str(tmp_path))
    sys.modules.pop("example_plugin", None)


def test_every_kind_has_an_example() -> None:
    shown = {section for section, text in SECTIONS.items() if "```python" in text}
    assert shown >= {
        "a case generator",
        "a kind of reference",
        "a runtime",
        "a cause",
        "a way to export",
        "a check",
        "a recipe or a scheme of quantization",
        "a writer",
    }


def test_the_generator_gives_cases(install: Any, tmp_path: Path) -> None:
    file = onnx_file.read(linear(tmp_path / "m.onnx"))
    port = InputInfo(
        name="x", dtype="float32", shape=X.shape, dims=X.shape, onnx_name="x", onnx_dtype="float32"
    )
    output = OutputInfo(name="y", dtype="float32", shape=(3, 4), onnx_name="y")
    space = make_space(
        Signature(inputs=(port,), outputs=(output,)), {"x": X}, file, seed=0, data=()
    )
    cases = list(install(GENERATORS, "a case generator").generate(space))
    assert [case.name for case in cases] == ["signs-x"]
    assert set(np.unique(cases[0].inputs["x"])) == {-1.0, 1.0}


def test_the_kind_of_reference_answers(install: Any) -> None:
    class Table:
        rows = X

    loader = install(loaders.LOADERS, "a kind of reference")
    assert loader.matches(Table()) and not loader.matches(X)
    assert loaders.find(Table()) is not None
    answer = loader.open(Table()).call({"ids": np.array([2, 0])})
    assert np.array_equal(answer["rows"], X[[2, 0]])


def test_the_runtime_passes_the_conformance_kit(install: Any, tmp_path: Path) -> None:
    assert install(RUNTIMES, "a runtime").describe().name == "mine"
    path = linear(tmp_path / "m.onnx")
    session = open_session("mine", path)
    assert session.run({session.input_names[0]: X})[0] is not None
    assert testing.conformance("mine", tmp_path) == []


def test_the_cause_finds_a_factor(install: Any, tmp_path: Path) -> None:
    nodes = [helper.make_node("Mul", ["x", "factor"], ["y"], name="scale")]
    wrong = graph_model(nodes, {"x": X}, {"factor": np.float32(3.0)})
    right = graph_model([helper.make_node("Identity", ["x"], ["y"])], {"x": X})
    trial = workbench(tmp_path, wrong, right, {"x": X}, nodes=["scale"])
    tried = install(CAUSES, "a cause").test(trial)
    assert tried.proven
    assert tried.evidence.startswith("without the factor `factor` the answers are right on ")


def test_the_attempt_exports(tmp_path: Path) -> None:
    module = example("a way to export")
    assert ATTEMPTS._checked("mine", module) is module
    assert module.KINDS == ("operator",)


def test_the_check_rates_a_file(install: Any, tmp_path: Path) -> None:
    view: View = open_view(linear(tmp_path / "m.onnx"), None)
    results = list(install(CHECKS, "a check").check(view))
    assert results[0].name == "length" and results[0].rating.value == "good"


def test_the_recipe_rounds_ranges(install: Any) -> None:
    trials = SimpleNamespace(ranges={"x": (-3.0, 5.0), "zero": (0.0, 0.3)})
    applied = install(RECIPES, "a recipe or a scheme of quantization").apply(trials)
    assert applied.ranges == {"x": (-4.0, 8.0), "zero": (0.0, 0.5)}


def test_the_writer_writes_a_line(tmp_path: Path) -> None:
    module = WRITERS._checked("line", example("a writer"))
    module.write(full(), tmp_path / "line.txt")
    assert (tmp_path / "line.txt").read_text() == f"{full().verdict.value}: {full().sentence()}\n"


def test_the_hops_name_what_is_there() -> None:
    """Every file that the paths of three commands name exists, and so does every function."""
    hops = PAGE[PAGE.index("## Three commands") : PAGE.index("## Words")]
    source = Path(__file__).parents[1] / "src" / "onnxproof"
    for name in re.findall(r"`([\w/]+\.py)`", hops):
        assert list(source.rglob(name)), name
    for path, function in re.findall(r"`(\w+/\w+)\.(\w+)", hops):
        if function != "py" and (source / f"{path}.py").exists():
            assert f"def {function}(" in (source / f"{path}.py").read_text(), f"{path}.{function}"
