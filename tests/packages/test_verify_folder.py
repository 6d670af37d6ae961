"""A folder is proven file by file and as a whole; a planted fault is named with its file."""

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from support.tiny_transformers import save_tokenizer

import onnxproof
from onnxproof.errors import InputError, ModelError
from onnxproof.packages.merged import SWITCH
from onnxproof.results import Verdict

_QUICK = {"budget_s": 12.0, "explain": False}


def _copy(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "copy"))


def test_a_right_folder_is_faithful_in_every_part_and_every_rollout(
    bart: tuple[Path, Path],
) -> None:
    proof = onnxproof.verify(*bart, **_QUICK)
    assert proof.verdict is Verdict.FAITHFUL
    assert [(part.file, part.role) for part in proof.parts] == [
        ("encoder_model.onnx", "encoder"),
        ("decoder_model_merged.onnx", "first"),
        ("decoder_model_merged.onnx", "step"),
    ]
    assert proof.rollouts
    assert all(rollout.first_bad_step is None for rollout in proof.rollouts)
    assert proof.location is None


def test_a_decoder_with_its_cache_is_faithful(llama: tuple[Path, Path]) -> None:
    proof = onnxproof.verify(*llama, **_QUICK)
    assert proof.verdict is Verdict.FAITHFUL
    assert {dim.name: dim.derived for dim in proof.signature.dims}["total"] == "sequence + past"


def test_an_encoder_mask_dropped_in_the_second_call_names_the_decoder(
    bart: tuple[Path, Path], tmp_path: Path
) -> None:
    saved, folder = bart[0], _copy(bart[1], tmp_path)
    path = folder / "decoder_model_merged.onnx"
    model = onnx.load(path)
    choice = next(node for node in model.graph.node if node.op_type == "If")
    branch = next(a.g for a in choice.attribute if a.name == "then_branch")
    for node in branch.node:
        names = ["whole" if name == "encoder_attention_mask" else name for name in node.input]
        node.input[:] = names
    shape = onnx.helper.make_node("Shape", ["encoder_attention_mask"], ["whole.shape"])
    one = numpy_helper.from_array(np.ones(1, np.int64))
    ones = onnx.helper.make_node("ConstantOfShape", ["whole.shape"], ["whole"], value=one)
    nodes = [shape, ones, *branch.node]
    del branch.node[:]
    branch.node.extend(nodes)
    onnx.save(model, path)
    proof = onnxproof.verify(saved, folder, **_QUICK)
    assert proof.verdict is Verdict.DIVERGED
    assert proof.location is not None
    assert proof.location.file == "decoder_model_merged.onnx"
    assert [part.role for part in proof.parts if part.verdict is Verdict.DIVERGED] == ["step"]
    padded = [rollout for rollout in proof.rollouts if ":source" in rollout.schedule]
    assert [rollout.first_bad_step for rollout in padded] == [1]


def test_an_embedding_that_is_no_longer_tied_names_the_encoder(
    bart: tuple[Path, Path], tmp_path: Path
) -> None:
    saved, folder = bart[0], _copy(bart[1], tmp_path)
    path = folder / "encoder_model.onnx"
    model = onnx.load(path)
    table = next(t for t in model.graph.initializer if list(t.dims) == [64, 16])
    rows = numpy_helper.to_array(table).copy()
    rows[5:] = rows[5:][::-1]
    table.CopyFrom(numpy_helper.from_array(rows, table.name))
    onnx.save(model, path)
    proof = onnxproof.verify(saved, folder, **_QUICK)
    assert proof.verdict is Verdict.DIVERGED
    assert proof.location is not None
    assert proof.location.file == "encoder_model.onnx"


def test_a_wrong_tokenizer_is_named_with_its_file(llama: tuple[Path, Path], tmp_path: Path) -> None:
    saved, folder = llama[0], _copy(llama[1], tmp_path)
    save_tokenizer(folder, shift=1)
    proof = onnxproof.verify(saved, folder, **_QUICK)
    assert proof.verdict is Verdict.DIVERGED
    assert proof.location is not None
    assert proof.location.file == "tokenizer.json"
    finding = next(finding for finding in proof.findings if finding.code == "tokenizer")
    assert "of 200 strings" in finding.what


def test_one_rollout_can_be_run_again_by_its_name(llama: tuple[Path, Path]) -> None:
    proof = onnxproof.verify(*llama, only=("roll:b2:3,1x2",), **_QUICK)
    assert [rollout.schedule for rollout in proof.rollouts] == ["roll:b2:3,1x2"]
    assert {gap.case for gap in proof.gaps} == {"roll:b2:3,1x2"}
    assert proof.verdict is Verdict.FAITHFUL


def test_a_folder_without_onnx_files_says_what_was_looked_for(
    llama: tuple[Path, Path], tmp_path: Path
) -> None:
    with pytest.raises(ModelError) as refused:
        onnxproof.verify(llama[0], tmp_path)
    assert "not-a-package" in str(refused.value)
    assert "it has no .onnx file" in str(refused.value)
    for name in ("genai_config.json", "decoder_model_merged.onnx", "model.onnx"):
        assert name in str(refused.value)


def test_a_module_that_is_no_transformers_model_is_refused(llama: tuple[Path, Path]) -> None:
    import torch

    with pytest.raises(InputError, match="not-a-transformers-model"):
        onnxproof.verify(torch.nn.Linear(2, 2), llama[1])


def test_the_files_of_an_export_are_open_in_batch_past_and_sequence(
    llama: tuple[Path, Path], bart: tuple[Path, Path]
) -> None:
    model = onnx.load(llama[1] / "model.onnx", load_external_data=False)
    dims = {
        port.name: [dim.dim_param or dim.dim_value for dim in port.type.tensor_type.shape.dim]
        for port in model.graph.input
    }
    assert dims["input_ids"] == ["batch", "sequence"]
    assert dims["attention_mask"] == ["batch", "past + sequence"]
    assert dims["past_key_values.0.key"] == ["batch", 1, "past", 8]
    merged = onnx.load(bart[1] / "decoder_model_merged.onnx", load_external_data=False)
    assert SWITCH in [port.name for port in merged.graph.input]
    assert (bart[1] / "config.json").is_file()
    assert (bart[1] / "tokenizer.json").is_file()


def test_one_file_of_a_folder_is_proven_against_its_part(bart: tuple[Path, Path]) -> None:
    proof = onnxproof.verify(bart[0], bart[1] / "encoder_model.onnx", **_QUICK)
    assert proof.verdict is Verdict.FAITHFUL
    assert [part.role for part in proof.parts] == ["encoder"]
    assert not proof.rollouts


def test_a_cache_of_transformers_may_be_an_example_input(llama: tuple[Path, Path]) -> None:
    import torch
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(llama[0]).eval()
    cache = transformers.DynamicCache()
    ids = torch.tensor([[3, 4, 5, 6], [7, 8, 9, 10]])
    with torch.no_grad():
        model(ids, past_key_values=cache, use_cache=True)
    example = {
        "input_ids": ids[:, :3],
        "attention_mask": torch.ones(2, 7, dtype=torch.int64),
        "position_ids": torch.arange(4, 7).expand(2, -1),
        "past_key_values": cache,
    }
    proof = onnxproof.verify(model, llama[1] / "model.onnx", example, **_QUICK)
    assert proof.verdict is Verdict.FAITHFUL
    paired = {info.name: info.onnx_name for info in proof.signature.inputs}
    assert paired["past_key_values.0.1"] == "past_key_values.0.value"
    assert cache.get_seq_length() == 4


def test_a_folder_is_inspected_file_by_file(bart: tuple[Path, Path], tmp_path: Path) -> None:
    seen = onnxproof.inspect(bart[1])
    names = {check.name.partition(":")[0] for check in seen.checks}
    assert names == {"encoder_model.onnx", "decoder_model_merged.onnx"}
    with pytest.raises(ModelError, match="not-a-package"):
        onnxproof.inspect(tmp_path)
    with pytest.raises(InputError, match="reference-of-a-folder"):
        onnxproof.inspect(bart[1], bart[0])
