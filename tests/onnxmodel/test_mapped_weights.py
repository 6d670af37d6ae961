"""Large weights stay in the file beside the graph; here every weight is large."""

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper
from torch import nn

import onnxproof
from bench.corpus import export
from onnxproof.onnxmodel import large_models, mapped_weights
from onnxproof.results import Verdict
from onnxproof.runtimes import ort

WEIGHT = np.random.default_rng(1).standard_normal((6, 6)).astype(np.float32)
X = torch.randn(4, 16, generator=torch.Generator().manual_seed(3))


@pytest.fixture(autouse=True)
def every_weight_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped_weights, "LARGE", 0)
    monkeypatch.setattr(mapped_weights, "_SMALL", 64)


def write(path: Path, weight: np.ndarray = WEIGHT) -> Path:
    element = helper.np_dtype_to_tensor_dtype(weight.dtype)
    ports = [helper.make_tensor_value_info(n, element, ["n", 6]) for n in ("x", "y")]
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="product")
    graph = helper.make_graph(
        [node], "g", ports[:1], ports[1:], [numpy_helper.from_array(weight, "w")]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, path, save_as_external_data=True, size_threshold=0, location="weights.bin")
    return path


def outside(path: Path) -> Path:
    """The same file with its weights beside it."""
    onnx.save(
        onnx.load(path),
        path,
        save_as_external_data=True,
        size_threshold=0,
        location=f"{path.name}.data",
    )
    return path


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_a_weight_is_mapped_and_written_whole(dtype: type, tmp_path: Path) -> None:
    weight = WEIGHT.astype(dtype)
    model = mapped_weights.load(write(tmp_path / "m.onnx", weight))
    tensor = model.graph.initializer[0]
    assert mapped_weights.folder_of(model) == tmp_path
    assert not tensor.raw_data
    assert np.array_equal(mapped_weights.to_array(tensor), weight)
    other = tmp_path / "other"
    other.mkdir()
    files = large_models.save(model, other / "copy.onnx")
    assert [file.name for file in files] == ["copy.onnx", "copy.onnx.data"]
    read = onnx.load(files[0]).graph.initializer[0]
    assert np.array_equal(numpy_helper.to_array(read), weight)
    assert not read.metadata_props


def test_a_changed_copy_is_opened_with_the_weights_of_its_folder(tmp_path: Path) -> None:
    model = mapped_weights.load(write(tmp_path / "m.onnx"))
    model.graph.node[0].op_type = "Gemm"
    session = ort.open_model(model, "disabled")
    x = np.ones((2, 6), np.float32)
    np.testing.assert_allclose(session.run({"x": x})[0], x @ WEIGHT, rtol=1e-5)


def test_data_that_is_cut_short_is_refused_as_onnx_refuses_it(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx")
    data = tmp_path / "weights.bin"
    data.write_bytes(data.read_bytes()[:-4])
    with pytest.raises(Exception, match="exceeds available data"):
        mapped_weights.load(path)


def test_less_than_the_limit_is_read_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mapped_weights, "LARGE", 1 << 20)
    path = write(tmp_path / "m.onnx")
    model = mapped_weights.load(path)
    assert mapped_weights.folder_of(model) is None
    assert not mapped_weights.stays_beside(path)
    assert np.array_equal(numpy_helper.to_array(model.graph.initializer[0]), WEIGHT)


@pytest.mark.parametrize("fault", ["attribute", "weights"])
def test_a_fault_is_explained_and_mended_with_mapped_weights(fault: str, tmp_path: Path) -> None:
    torch.manual_seed(5)
    layers = [nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 8)]
    module = nn.Sequential(*layers).eval()
    path = export(module, (X,), tmp_path / "net.onnx", ({0: "batch"},))
    model = onnx.load(path)
    if fault == "attribute":
        norm = next(n for n in model.graph.node if n.op_type == "LayerNormalization")
        next(a for a in norm.attribute if a.name == "epsilon").f = 0.05
        guilty = norm.name
    else:
        tensor = next(t for t in model.graph.initializer if list(t.dims) in ([32, 8], [8, 32]))
        array = numpy_helper.to_array(tensor).copy()
        array[3] *= -1
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
        guilty = next(n.name for n in model.graph.node if tensor.name in n.input)
    onnx.save(model, path)
    outside(path)
    assert mapped_weights.stays_beside(path)
    proof = onnxproof.verify(module, path, (X,), dynamic_shapes=({0: "batch"},), budget_s=60)
    assert proof.verdict is Verdict.DIVERGED
    assert proof.location is not None and guilty in proof.location.nodes
    assert proof.causes[0].code == fault and proof.causes[0].proven
    assert proof.causes[0].fix is not None and proof.causes[0].fix.verdict is Verdict.FAITHFUL
    proof.write_repro(tmp_path / "repro")
    cut = onnx.load(next((tmp_path / "repro").rglob("*.onnx")), load_external_data=False)
    assert guilty in {node.name for node in cut.graph.node}
    assert not any(tensor.external_data for tensor in cut.graph.initializer)
    mended = tmp_path / "mended.onnx"
    onnxproof.mend(module, path, mended, (X,), dynamic_shapes=({0: "batch"},), budget_s=60)
    assert mended.exists()
    whole = onnxproof.verify(module, mended, (X,), dynamic_shapes=({0: "batch"},), explain=False)
    assert whole.verdict is Verdict.FAITHFUL


def test_a_repro_has_its_weights_in_itself(tmp_path: Path) -> None:
    model = mapped_weights.load(write(tmp_path / "m.onnx"))
    assert mapped_weights.with_weights_inside(model, 1) is model
    whole = mapped_weights.with_weights_inside(model, 1 << 20)
    assert np.array_equal(numpy_helper.to_array(whole.graph.initializer[0]), WEIGHT)
    assert mapped_weights.folder_of(whole) is None and mapped_weights.folder_of(model) == tmp_path
