"""Each stage with planted faults: the stage and the node that are named are the right ones, and no twin is blamed.

The models are in planted_models, the faults in planted_faults; test_causes, test_explain and test_repro work on the same.
"""

from pathlib import Path

import onnx
import pytest
from support import planted_models
from support.planted_faults import (
    BUDGET_S,
    FAULTS,
    attributes,
    constant,
    examine,
    exported,
    model,
    nodes,
    planted,
    told,
)

from onnxproof import api
from onnxproof.results import Stage, Verdict
from onnxproof.runtimes.evaluator import contrib
from onnxproof.testing import adds_noise, fake_backend

STAGE_BUGS = {
    "image-resize-truncates": "engine: onnx's evaluator cuts the fraction off as well, so the file seems to be wrong",
}


@pytest.mark.parametrize("name", planted(STAGE_BUGS))
def test_the_stage_is_named(name: str) -> None:
    proof = examine(name).proof
    assert proof.location is not None and proof.location.stage is FAULTS[name].stage, told(proof)


@pytest.mark.parametrize("name", FAULTS)
def test_the_guilty_node_is_named_first(name: str) -> None:
    found = examine(name)
    assert found.proof.location is not None
    if FAULTS[name].stage is not Stage.SIGNATURE:
        assert found.proof.location.nodes[:1] and found.proof.location.nodes[
            0
        ] in found.guilty.split("|"), told(found.proof)
    else:
        assert found.proof.location.nodes, told(found.proof)


def test_each_stage_has_three_faults() -> None:
    counts = {stage: sum(fault.stage is stage for fault in FAULTS.values()) for stage in Stage}
    assert {stage: n for stage, n in counts.items() if n < 3} == {Stage.GRAPH: 0}, (
        "faults of the stage graph are planted below"
    )


@pytest.mark.parametrize(
    "name", ["conv-batchnorm-epsilon", "encoder-layernorm-epsilon", "mlp-bias-dropped"]
)
def test_between_two_files_the_stage_is_the_graph(name: str) -> None:
    found = examine(name)
    proof = api.diff(
        exported(FAULTS[name].model, "dynamo"), found.path, found.model.example, budget_s=BUDGET_S
    )
    assert proof.verdict is Verdict.DIVERGED
    assert proof.location is not None and proof.location.stage is Stage.GRAPH, told(proof)


@pytest.mark.parametrize(
    "name",
    [
        "conv-batchnorm-epsilon",
        "encoder-layernorm-epsilon",
        "mlp-bias-dropped",
        "conv-leaky-slope",
        "mlp-relu6-to-relu",
    ],
)
def test_between_two_files_the_node_is_named(name: str) -> None:
    found = examine(name)
    proof = api.diff(
        exported(FAULTS[name].model, "dynamo"),
        found.path,
        found.model.example,
        budget_s=BUDGET_S,
        only=("example", "ordinary-0"),
    )
    assert proof.location is not None and proof.location.nodes[:1] == (found.guilty,), told(proof)


@pytest.mark.parametrize("kind", ["Gemm", "LayerNormalization"])
def test_where_the_evaluator_lacks_an_operator_the_runtime_is_probed(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an operator of the runtime's own, the standard has no say; the node is named all the same."""
    monkeypatch.setattr(contrib, "find", lambda op_type: None)
    right, loaded = model("encoder"), onnx.load(exported("encoder", "dynamo"))
    gelu = nodes(loaded.graph, "Gelu")[0]
    gelu.domain = "com.microsoft"
    del gelu.attribute[:]
    loaded.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    guilty = (
        attributes("LayerNormalization", 1, epsilon=1e-2)
        if kind == "LayerNormalization"
        else constant("Add", 1, lambda b: b + 0.5)
    )(loaded.graph)
    del loaded.graph.value_info[:]
    onnx.save(loaded, tmp_path / "model.onnx")
    proof = api.verify(
        right.module,
        tmp_path / "model.onnx",
        right.example,
        dynamic_shapes=right.shapes,
        budget_s=BUDGET_S,
    )
    assert proof.location is not None and proof.location.nodes[:1] == (guilty,), told(proof)
    assert "as the runtime computes them" in proof.location.evidence


@pytest.mark.parametrize("name", ["conv-leaky-slope", "mlp-bias-dropped", "encoder-gelu-form"])
def test_the_line_of_python_is_named(name: str) -> None:
    where = examine(name).proof.location
    assert where is not None and where.source is not None
    wanted = {
        "conv-leaky-slope": "F.leaky_relu(x, 0.2)",
        "mlp-bias-dropped": "self.b(",
        "encoder-gelu-form": "F.gelu(self.up",
    }[name]
    assert where.source.file == planted_models.__file__ and wanted in where.source.text


def test_a_backend_that_lies_is_a_fault_of_the_runtime() -> None:
    right = model("mlp")
    with fake_backend("liar", adds_noise(0.05)):
        proof = api.verify(
            right.module,
            exported("mlp", "dynamo"),
            right.example,
            dynamic_shapes=right.shapes,
            backends=("liar",),
            budget_s=BUDGET_S,
        )
    assert proof.location is not None and proof.location.stage is Stage.RUNTIME, told(proof)


@pytest.mark.parametrize("name", ["conv", "encoder", "mlp", "limits", "folded"])
def test_nothing_is_named_on_a_healthy_twin(name: str) -> None:
    right = model(name)
    proof = api.verify(
        right.module,
        exported(name, "dynamo"),
        right.example,
        dynamic_shapes=right.shapes,
        budget_s=BUDGET_S,
    )
    assert proof.verdict is Verdict.FAITHFUL, told(proof)
    assert proof.location is None and proof.causes == (), told(proof)
