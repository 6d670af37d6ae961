"""The pieces of a folder's proof: names of caches, schedules, branches, layouts."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from onnxproof.errors import ModelError
from onnxproof.packages import open_package
from onnxproof.packages.cache_names import CachePlace, cache_place, nest
from onnxproof.packages.merged import SWITCH, branch_model, write_branch
from onnxproof.packages.package import Role
from onnxproof.packages.tokenizers import strings


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("past_key_values.3.key", CachePlace(layer=3)),
        ("present.0.decoder.value", CachePlace(layer=0, values=True)),
        ("present.1.encoder.key", CachePlace(layer=1, cross=True)),
        ("past_value_2", None),
        ("attention_mask", None),
    ],
)
def test_the_place_that_a_name_means(name: str, place: CachePlace | None) -> None:
    assert cache_place(name) == place


def test_dotted_names_become_nested_dicts() -> None:
    assert nest({"a.b": 1, "a.c": 2, "d": 3}) == {"a": {"b": 1, "c": 2}, "d": 3}


def test_the_tokenizers_are_tried_on_200_different_strings() -> None:
    texts = strings(None)
    assert len(texts) == 200
    assert len(set(texts)) == 200


def test_each_branch_of_a_merged_file_answers_as_the_file_does(tmp_path: Path) -> None:
    path = tmp_path / "decoder_model_merged.onnx"
    model = _merged()
    onnx.save(model, path)
    x, past = np.arange(3, dtype=np.float32), np.full(3, 5, np.float32)
    for with_cache in (True, False):
        switch = np.array([with_cache])
        wanted = _run(path, {"x": x, "past_key_values.0.key": past, SWITCH: switch})
        branch = write_branch(path, with_cache, tmp_path)
        inputs = [port.name for port in onnx.load(branch).graph.input]
        assert SWITCH not in inputs
        fed = {"x": x, "past_key_values.0.key": past}
        given = _run(branch, {name: fed[name] for name in inputs})
        np.testing.assert_array_equal(wanted[0], given[0])


def test_a_file_without_the_choice_is_told(tmp_path: Path) -> None:
    graph = helper.make_graph([], "empty", [], [])
    with pytest.raises(ModelError, match="not-merged"):
        branch_model(helper.make_model(graph), True, tmp_path / "decoder_model_merged.onnx")


def test_a_genai_configuration_without_a_decoder_is_told(tmp_path: Path) -> None:
    (tmp_path / "genai_config.json").write_text(json.dumps({"model": {}}))
    with pytest.raises(ModelError, match=r"model\.decoder\.filename"):
        open_package(tmp_path, tmp_path)


def test_a_genai_configuration_may_not_leave_its_folder(tmp_path: Path) -> None:
    settings = {"model": {"decoder": {"filename": "../model.onnx"}}}
    (tmp_path / "genai_config.json").write_text(json.dumps(settings))
    with pytest.raises(ModelError, match="is no file of this folder"):
        open_package(tmp_path, tmp_path)


def test_merged_decoders_come_before_single_ones(tmp_path: Path) -> None:
    onnx.save(_merged(), tmp_path / "decoder_model_merged.onnx")
    onnx.save(_merged(), tmp_path / "decoder_model.onnx")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    package = open_package(tmp_path, scratch)
    first = package.component(Role.FIRST)
    assert first is not None
    assert first.title == "decoder_model_merged.onnx (first)"
    assert [part.file for part in package.components].count("decoder_model.onnx") == 1


def _merged() -> onnx.ModelProto:
    """One output: with a cache the sum of input and cache, without one twice the input."""
    then = helper.make_graph(
        [helper.make_node("Add", ["x", "past_key_values.0.key"], ["then/y"], name="sum")],
        "then",
        [],
        [helper.make_tensor_value_info("then/y", TensorProto.FLOAT, None)],
    )
    other = helper.make_graph(
        [helper.make_node("Add", ["x", "x"], ["else/y"], name="twice")],
        "else",
        [],
        [helper.make_tensor_value_info("else/y", TensorProto.FLOAT, None)],
    )
    choice = helper.make_node("If", [SWITCH], ["logits"], then_branch=then, else_branch=other)
    graph = helper.make_graph(
        [choice],
        "merged",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"]),
            helper.make_tensor_value_info("past_key_values.0.key", TensorProto.FLOAT, ["n"]),
            helper.make_tensor_value_info(SWITCH, TensorProto.BOOL, [1]),
        ],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n"])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def _run(path: Path, fed: dict[str, np.ndarray]) -> list[np.ndarray]:
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    outputs: list[np.ndarray] = session.run(None, fed)
    return outputs
