"""The script of a repro and the text of its bug report."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx
from onnx import helper
from support import made_proofs

from onnxproof.diagnosis.repro.submodel import Repro, SubModel
from onnxproof.diagnosis.repro.texts import report, script
from onnxproof.results import Cause, Location, Source, Stage
from onnxproof.results.proof import Proof

TRUTH = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], np.float32)


def made(**changes: object) -> Repro:
    submodel = SubModel(places=[0], inputs={}, outputs=["y"], model=onnx.ModelProto())
    repro = Repro(
        submodel=submodel,
        level="all",
        truth={"y": TRUTH},
        answers={"y": TRUTH * np.float32(1.5)},
        limits={"y": 2.5e-4},
    )
    return replace(repro, **changes)  # type: ignore[arg-type]


def nodes(*names: str) -> list[onnx.NodeProto]:
    return [helper.make_node("Sin", ["x"], [f"{name}_out"], name) for name in names]


def proof(location: Location, causes: Sequence[Cause] = ()) -> Proof:
    return replace(made_proofs.full(), location=location, causes=tuple(causes))


def located(**changes: object) -> Location:
    return replace(Location(stage=Stage.EXPORT, nodes=("norm",)), **changes)  # type: ignore[arg-type]


def test_the_script_is_python_that_holds_the_limits_and_the_level() -> None:
    text = script(made(level="basic", limits={"a b": 0.5}))
    compile(text, "repro.py", "exec")
    assert "LIMITS = {'a b': 0.5}" in text
    assert "GraphOptimizationLevel.ORT_ENABLE_BASIC" in text
    assert "@LIMITS@" not in text and "@LEVEL@" not in text


def test_each_level_has_its_own_name_and_others_are_all() -> None:
    found = {
        level: script(made(level=level)).split("GraphOptimizationLevel.")[1].split()[0]
        for level in ("disabled", "extended", "all", "cuda")
    }
    assert found == {
        "disabled": "ORT_DISABLE_ALL",
        "extended": "ORT_ENABLE_EXTENDED",
        "all": "ORT_ENABLE_ALL",
        "cuda": "ORT_ENABLE_ALL",
    }


def test_a_hostile_name_stays_a_name_in_the_script() -> None:
    name = "'}; import os  # \u202e\u00e9\n"
    text = script(made(limits={name: 0.5}))
    space: dict[str, object] = {}
    [line] = [line for line in text.splitlines() if line.startswith("LIMITS = ")]
    exec(line, space)
    assert space["LIMITS"] == {name: 0.5}
    assert text.isascii()


def test_the_headline_names_the_operator_of_one_node_or_the_guilty_node_of_several() -> None:
    one = report(proof(located()), nodes("a"), made())
    assert one.splitlines()[0] == "# Sin: wrong values (stage export)"
    two = report(proof(located()), nodes("a", "b"), made())
    assert two.splitlines()[0] == "# norm: wrong values (stage export)"
    none = report(proof(located(nodes=())), nodes("a", "b"), made())
    assert none.splitlines()[0] == "# model: wrong values (stage export)"


def test_the_table_has_error_limit_and_first_elements() -> None:
    text = report(proof(located()), nodes("a"), made())
    [row] = [line for line in text.splitlines() if line.startswith("| `y`")]
    assert row == (
        "| `y` | 0.5 | 0.00025 | float32[2, 3] 1 2 3 4 | float32\\[2, 3\\] 1.5 3 4.5 6 |"
    )


def test_a_refusal_stands_where_the_answer_would() -> None:
    text = report(proof(located()), nodes("a"), made(answers={}, refusal="no such kernel"))
    [row] = [line for line in text.splitlines() if line.startswith("| `y`")]
    assert row.split(" | ")[1] == "inf"
    assert row.endswith("| no such kernel |")


def test_many_nodes_are_counted_and_not_all_named() -> None:
    text = report(proof(located()), nodes(*"abcdefgh"), made())
    assert "has 8 of the model's nodes: `a` (Sin), `b` (Sin)" in text
    assert "`f` (Sin) and 2 more." in text and "`g`" not in text
    unnamed = nodes("a")
    unnamed[0].ClearField("name")
    assert "nodes: `a_out` (Sin)." in report(proof(located()), unnamed, made())


def test_optimizer_line_and_evidence_are_told_where_they_are_known() -> None:
    source = Source(file="m.py", line=7, text="  return y ")
    where = located(optimizer="GeluFusion", source=source, evidence="two of two")
    text = report(proof(where), nodes("a"), made())
    assert "Optimizer: `GeluFusion`." in text
    assert "Python: `m.py:7`: `return y`" in text
    assert "Evidence: two of two." in text
    bare = report(proof(located()), nodes("a"), made())
    assert not any(word in bare for word in ("Optimizer:", "Python:", "Evidence:"))


def test_only_the_first_cause_is_told_with_its_certainty_and_remedy() -> None:
    causes = made_proofs.full().causes
    likely = replace(causes[0], code="second", proven=False)
    text = report(proof(located(), [causes[0], likely]), nodes("a"), made())
    assert "Cause (proven): attribute: another epsilon. 1e-6." in text
    assert "Remedy: set epsilon to 1e-5." in text
    assert "second" not in text
    assert "Cause (likely): second" in report(proof(located(), [likely]), nodes("a"), made())
    bare = report(proof(located()), nodes("a"), made())
    assert "Cause (" not in bare and "Remedy:" not in bare


def test_the_versions_are_listed_without_the_time() -> None:
    dated = replace(
        proof(located()),
        environment={"onnx": "1.2.3", "time": "noon"},
        hashes={"candidate": "abc"},
    )
    lines = report(dated, nodes("a"), made()).splitlines()
    assert "- onnx 1.2.3" in lines
    assert not any("noon" in line for line in lines)
    assert "- SHA-256 of the whole model: abc" in lines
    assert "- SHA-256 of the whole model: unknown" in report(
        replace(dated, hashes={}), nodes("a"), made()
    )
