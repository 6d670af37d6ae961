"""A folder in half precision against its model in float32: right by its values, and a fault as small as one scaled head is still caught."""

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper
from support.tiny_transformers import save_tokenizer, tiny_model

import onnxproof
from onnxproof.options import ExportOptions
from onnxproof.packages.export import export_folder
from onnxproof.results import Verdict

_QUICK = {"budget_s": 12.0, "explain": False}


@pytest.fixture(scope="module")
def half_llama(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A saved decoder in float32, and a folder of the same decoder in float16."""
    root = tmp_path_factory.mktemp("half")
    saved, narrow, folder = root / "saved", root / "narrow", root / "onnx"
    model = tiny_model("llama")
    model.save_pretrained(saved)
    model.half().save_pretrained(narrow)
    for each in (saved, narrow):
        save_tokenizer(each)
    export_folder(narrow, folder, ExportOptions())
    return saved, folder


def test_a_half_folder_is_judged_by_its_values(half_llama: tuple[Path, Path]) -> None:
    proof = onnxproof.verify(*half_llama, **_QUICK)
    assert proof.verdict is Verdict.FAITHFUL, proof.sentence()
    found = next(each for each in proof.findings if each.code == "half-outputs")
    assert "`present.0.key`" in found.what and "float16" in found.what
    assert [part.verdict for part in proof.parts] == [Verdict.FAITHFUL]


def test_a_half_folder_with_one_weight_scaled_is_caught(
    half_llama: tuple[Path, Path], tmp_path: Path
) -> None:
    saved, folder = half_llama[0], Path(shutil.copytree(half_llama[1], tmp_path / "copy"))
    model = onnx.load(folder / "model.onnx")
    weight = next(
        each
        for each in model.graph.initializer
        if each.data_type == TensorProto.FLOAT16 and len(each.dims) == 2
    )
    scaled = numpy_helper.to_array(weight).copy()
    scaled[: len(scaled) // 2] *= np.float16(1.1)
    weight.CopyFrom(numpy_helper.from_array(scaled, weight.name))
    onnx.save(model, folder / "model.onnx")
    proof = onnxproof.verify(saved, folder, **_QUICK)
    assert proof.verdict is Verdict.DIVERGED
    assert proof.location is not None and proof.location.file == "model.onnx"
