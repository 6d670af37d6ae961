"""A repro is small, needs numpy and onnxruntime alone, fails while the fault exists and passes once it is gone."""

import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from safetensors.numpy import load_file
from support.planted_faults import FAULTS, examine, exported, nodes
from support.planted_models import MODELS
from torch import Tensor, nn

import onnxproof
from onnxproof import api
from onnxproof.errors import OnnxproofError, UsageError
from onnxproof.report.writers import json as json_writer
from onnxproof.results.proof import Proof

ALONE = {
    "conv-leaky-slope": "LeakyRelu",
    "encoder-layernorm-epsilon": "LayerNormalization",
    "mlp-bias-dropped": "Gemm",
    "mlp-relu6-to-relu": "Relu",
    "integer-remainder-in-double": "Mod",
    "far-group-norm": "GroupNormalization",
    "image-resize-truncates": "Resize",
}


def run(script: Path) -> subprocess.CompletedProcess[str]:
    """In a Python that knows neither this source tree nor any start-up hook of ours."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        [sys.executable, "-P", str(script)],
        capture_output=True,
        text=True,
        cwd=script.parent,
        env=clean,
        timeout=120,
        check=False,
    )


def test_the_environment_of_these_tests_has_no_onnxproof(tmp_path: Path) -> None:
    script = tmp_path / "probe.py"
    script.write_text("try:\n    import onnxproof\nexcept ImportError:\n    raise SystemExit(7)\n")
    if run(script).returncode != 7:
        pytest.skip(
            "onnxproof is installed in this environment; the scripts' text is still checked"
        )


OTHERS = (
    "mlp-weight-transposed",
    "limits-floor",
    "quantized-pool-fused",
    "double-quantization-merged",
    "batch-statistics-shared",
    "mlp-in-half",
    "encoder-in-bfloat16",
    "towers-inputs-exchanged",
    "sums-length-baked",
    "alias-write-lost",
    "hashed-in-int32",
)


@pytest.mark.parametrize("name", [*ALONE, *OTHERS])
def test_the_script_fails_while_the_fault_exists(name: str, tmp_path: Path) -> None:
    found = examine(name)
    script = found.proof.write_repro(tmp_path / "repro")
    done = run(script)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "WRONG" in done.stdout
    assert set(re.findall(r"^(?:import|from) (\w+)", script.read_text(), re.MULTILINE)) == {
        "json",
        "sys",
        "pathlib",
        "numpy",
        "onnxruntime",
    }
    cut = onnx.load(script.parent / "model.onnx")
    onnx.checker.check_model(cut)
    kept = [node.op_type for node in cut.graph.node if node.op_type != "Constant"]
    assert (
        len(kept) < len(onnx.load(found.path).graph.node)
        or len(kept) <= 2
        or FAULTS[name].stage.value == "signature"
    )
    if name in ALONE:
        assert kept == [ALONE[name]]


@pytest.mark.parametrize(
    ("name", "op_type"),
    [("conv-leaky-slope", "LeakyRelu"), ("encoder-layernorm-epsilon", "LayerNormalization")],
)
def test_the_script_passes_once_the_node_is_right(name: str, op_type: str, tmp_path: Path) -> None:
    script = examine(name).proof.write_repro(tmp_path / "repro")
    cut = onnx.load(script.parent / "model.onnx")
    right = next(
        n
        for n in nodes(onnx.load(exported(FAULTS[name].model, "dynamo")).graph, op_type)
        if n.output[0] == cut.graph.node[-1].output[0]
    )
    cut.graph.node[-1].CopyFrom(right)
    onnx.save(cut, script.parent / "model.onnx")
    done = run(script)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "right" in done.stdout and "WRONG" not in done.stdout


def test_an_optimizer_is_right_without_itself(tmp_path: Path) -> None:
    script = examine("quantized-pool-fused").proof.write_repro(tmp_path / "repro")
    text = script.read_text()
    assert "ORT_ENABLE_ALL" in text
    script.write_text(text.replace("ORT_ENABLE_ALL", "ORT_DISABLE_ALL"))
    assert run(script).returncode == 0


def test_the_tensors_are_the_nodes_own(tmp_path: Path) -> None:
    found = examine("conv-leaky-slope")
    script = found.proof.write_repro(tmp_path / "repro")
    given, truth = (
        load_file(script.parent / "inputs.safetensors"),
        load_file(script.parent / "outputs.safetensors"),
    )
    (x,), (y,) = given.values(), truth.values()
    assert list(given) == list(onnx.load(script.parent / "model.onnx").graph.node[0].input)
    np.testing.assert_allclose(
        y, torch.nn.functional.leaky_relu(torch.from_numpy(x), 0.2).numpy(), rtol=1e-4, atol=1e-5
    )


def test_the_report_can_be_pasted(tmp_path: Path) -> None:
    found = examine("conv-leaky-slope")
    text = (found.proof.write_repro(tmp_path / "repro").parent / "report.md").read_text()
    wanted = (
        "# LeakyRelu",
        found.guilty,
        "F.leaky_relu(x, 0.2)",
        "Cause (proven): attribute",
        "Remedy: set `alpha`",
        "onnxruntime ",
        "torch ",
    )
    for part in (*wanted, "python repro.py", found.proof.hashes["candidate"]):
        assert part in text, part


class Branch(nn.Module):
    def forward(self, x: Tensor, flag: Tensor) -> Tensor:
        return torch.where(flag, x * 2, x + 1) * 3


def _with_if(path: Path) -> None:
    """The same as `Branch`, but for the 4 that should be a 3, with an If whose branches take `doubled` from outside."""

    def branch(name: str, op: str, with_: str) -> onnx.GraphProto:
        return helper.make_graph(
            [helper.make_node(op, ["doubled" if op == "Mul" else "x", with_], [name])],
            name,
            [],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None)],
        )

    graph = helper.make_graph(
        [
            helper.make_node("Add", ["x", "x"], ["doubled"], name="double"),
            helper.make_node(
                "If",
                ["flag"],
                ["chosen"],
                name="branch",
                then_branch=branch("then", "Mul", "wrong"),
                else_branch=branch("else", "Add", "one"),
            ),
            helper.make_node("Mul", ["chosen", "three"], ["y"], name="last"),
        ],
        "main",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4]),
            helper.make_tensor_value_info("flag", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])],
        [
            onnx.numpy_helper.from_array(np.array(value, np.float32), name)
            for name, value in (("one", 1), ("three", 3), ("wrong", 1.5))
        ],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path
    )


def test_what_a_branch_takes_from_outside_becomes_an_input(tmp_path: Path) -> None:
    _with_if(tmp_path / "if.onnx")
    proof = api.verify(
        Branch(),
        tmp_path / "if.onnx",
        (torch.randn(3, 4), torch.tensor(True)),
        dynamic_shapes=({0: "n"}, None),
        budget_s=5,
    )
    assert proof.location is not None and proof.location.nodes[0] == "branch/then_branch/then"
    script = proof.write_repro(tmp_path / "repro")
    cut = onnx.load(script.parent / "model.onnx")
    assert [n.op_type for n in cut.graph.node] == ["If"] and "doubled" in {
        i.name for i in cut.graph.input
    }
    assert run(script).returncode == 1


def test_a_refusal_is_reproduced(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [
            helper.make_node("Abs", ["x"], ["a"], name="abs"),
            helper.make_node("Reshape", ["a", "shape"], ["r"], name="baked"),
            helper.make_node("Add", ["r", "r"], ["y"], name="sum"),
        ],
        "main",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(np.array([3, 4]), "shape")],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9),
        tmp_path / "m.onnx",
    )

    class Doubled(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.abs() * 2

    proof = api.verify(
        Doubled(), tmp_path / "m.onnx", (torch.randn(3, 4),), dynamic_shapes=({0: "n"},), budget_s=5
    )
    script = proof.write_repro(tmp_path / "repro")
    done = run(script)
    assert done.returncode == 1 and "refuses" in done.stderr
    assert [n.op_type for n in onnx.load(script.parent / "model.onnx").graph.node] == [
        "Reshape",
        "Add",
    ]


def test_a_stored_proof_has_nothing_to_cut_from(tmp_path: Path) -> None:
    examine("mlp-bias-dropped").proof.to_json(tmp_path / "p.json")
    assert "scene" not in json.loads((tmp_path / "p.json").read_text())
    stored = json_writer.read(tmp_path / "p.json")
    with pytest.raises(UsageError, match="a stored proof holds no tensors"):
        stored.write_repro(tmp_path / "repro")


def test_without_a_location_there_is_nothing_to_reproduce(tmp_path: Path) -> None:
    proof: Proof = dataclasses.replace(examine("mlp-bias-dropped").proof, location=None)
    with pytest.raises(UsageError, match="there is nothing to reproduce"):
        proof.write_repro(tmp_path / "repro")


def test_a_fault_that_onnxruntime_does_not_show_is_refused(tmp_path: Path) -> None:
    from onnxproof.testing import adds_noise, fake_backend

    right = MODELS["mlp"]()
    with fake_backend("liar", adds_noise(0.05)):
        proof = onnxproof.verify(
            right.module,
            exported("mlp", "dynamo"),
            right.example,
            dynamic_shapes=right.shapes,
            backends=("liar",),
            budget_s=3,
        )
        with pytest.raises(OnnxproofError, match="shows the fault on onnxruntime alone"):
            proof.write_repro(tmp_path / "repro")
    assert not (tmp_path / "repro").exists()
