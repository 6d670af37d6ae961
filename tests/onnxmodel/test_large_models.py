"""What a protobuf can't hold is written with its weights beside it; here the limit is small."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

import onnxproof
from bench.corpus import export
from onnxproof.onnxmodel import large_models
from onnxproof.results import Verdict
from onnxproof.runtimes import ort

WEIGHT = np.random.default_rng(1).standard_normal((6, 6)).astype(np.float32)
X = torch.randn(4, 16, generator=torch.Generator().manual_seed(3))


@pytest.fixture(autouse=True)
def every_model_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_models, "MOST_INLINE", 0)
    monkeypatch.setattr(large_models, "_SMALL", 64)


def model(weight: np.ndarray = WEIGHT) -> onnx.ModelProto:
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 6]) for n in ("x", "y")]
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="product")
    initializers = [numpy_helper.from_array(weight, "w")]
    graph = helper.make_graph([node], "g", ports[:1], ports[1:], initializers)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    made.metadata_props.add(key="author", value="test")
    return made


def test_weights_go_beside_the_file_and_the_model_stays_as_it_is(tmp_path: Path) -> None:
    before, whole = model().SerializeToString(), model()
    files = large_models.save(whole, tmp_path / "m.onnx")
    assert [file.name for file in files] == ["m.onnx", "m.onnx.data"]
    assert whole.SerializeToString() == before
    assert files[1].stat().st_size == WEIGHT.nbytes
    onnx.checker.check_model(str(files[0]))
    read = onnx.load(files[0])
    assert np.array_equal(numpy_helper.to_array(read.graph.initializer[0]), WEIGHT)
    assert read.graph.node == whole.graph.node and read.metadata_props == whole.metadata_props


def test_a_digest_sees_every_part() -> None:
    other, renamed = model(WEIGHT + 1), model()
    renamed.graph.node[0].name = "another"
    digests = {large_models.digest(m) for m in (model(), other, renamed)}
    assert len(digests) == 3


def test_a_changed_graph_is_opened_by_way_of_a_file() -> None:
    session = ort.open_model(model(), "disabled")
    x = np.ones((2, 6), np.float32)
    np.testing.assert_allclose(session.run({"x": x})[0], x @ WEIGHT, rtol=1e-5)
    assert session.folder is not None and session.folder.path.exists()


def test_a_fault_is_explained_and_mended_beside_its_weights(tmp_path: Path) -> None:
    torch.manual_seed(5)
    module = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 8)).eval()
    path = export(module, (X,), tmp_path / "net.onnx", ({0: "batch"},))
    wrong = onnx.load(path)
    (norm,) = [node for node in wrong.graph.node if node.op_type == "LayerNormalization"]
    next(a for a in norm.attribute if a.name == "epsilon").f = 3e-3
    large_models.save(wrong, path)
    assert path.with_name("net.onnx.data").exists()
    (tmp_path / "out").mkdir()
    mended = onnxproof.mend(
        module, path, tmp_path / "out" / "mended.onnx", (X,), dynamic_shapes=({0: "batch"},)
    )
    assert mended.verdict is Verdict.FAITHFUL
    assert [cause.code for cause in mended.causes if cause.proven] == ["attribute"]
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == [
        "mended.onnx",
        "mended.onnx.data",
    ]
