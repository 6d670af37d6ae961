"""A 4-bit file of any tool: its blocks are read, every matrix has its cost, and a bad one is named with what in it is bad."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper
from support import few_bit_files
from support.few_bit_files import TOOLS, damaged, quantized_by
from support.language_model import language_model, save, token_ids

import onnxproof
from onnxproof.cli import main
from onnxproof.quantization.blockwise import file_costs
from onnxproof.quantization.blockwise.float_twin import float_twin, store_blocks, stored_matrices
from onnxproof.quantization.blockwise.form import Form
from onnxproof.quantization.blockwise.rounding import nearest_blocks
from onnxproof.results import Verdict
from onnxproof.system.deadline import Deadline
from onnxproof.verification import block_reading, block_weights
from onnxproof.verification.block_weights import BlockWeight

IDS = token_ids(8)
SAMPLES = [("texts", {"input_ids": IDS})]


def _floats(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    arrays = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    return {name: array for name, array in arrays.items() if array.ndim == 2}


def _matrices(file: onnx.ModelProto, plain: onnx.ModelProto) -> list:  # type: ignore[type-arg]
    weights = block_reading.find(file)
    return stored_matrices(weights, block_weights.find_origins(weights, _floats(plain)))


def _logits(model: onnx.ModelProto) -> np.ndarray:
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (logits,) = session.run(None, {"input_ids": IDS})
    return np.asarray(logits)


@pytest.mark.parametrize("tool", TOOLS)
def test_the_blocks_of_every_tool_are_read_as_the_runtime_reads_them(tool: str) -> None:
    file = quantized_by(tool)
    matrices = _matrices(file, language_model())
    assert len(matrices) == (4 if "tables" in tool else 3)
    twin = float_twin(file, matrices, own=False)
    assert not {node.op_type for node in twin.graph.node} & {*block_reading.OPERATORS}
    # a product behind DequantizeLinear may round its left side to 8 bits
    near = 0.5 if tool == "pairs" else 1e-4
    np.testing.assert_allclose(_logits(twin), _logits(file), atol=near)
    own = float_twin(file, matrices, own=True)
    np.testing.assert_allclose(_logits(own), _logits(language_model()), atol=1e-5)


@pytest.mark.parametrize("tool", TOOLS)
def test_a_weight_is_written_back_in_the_form_of_its_tool(tool: str) -> None:
    file = quantized_by(tool)
    again = damaged(file, "first", few_bit_files.row_times_three)
    (before,) = [w for w in block_reading.find(file) if w.name.startswith("first")]
    (after,) = [w for w in block_reading.find(again) if w.name.startswith("first")]
    expected = before.floats.copy()
    expected[5] *= 3
    np.testing.assert_allclose(after.floats, expected, rtol=1e-6)
    assert np.isfinite(_logits(again)).all()


PLANTED: dict[str, tuple[Callable[[BlockWeight], BlockWeight], str, str]] = {
    "row": (few_bit_files.row_times_three, "tables", "row 5"),
    "zero points": (few_bit_files.zero_points_up, "tables", "zero points"),
    "scales of a block": (few_bit_files.block_scaled, "symmetric tables", "block 1"),
    "integers": (few_bit_files.coarse_integers, "symmetric tables", "integers"),
}


@pytest.mark.parametrize("name", PLANTED)
@pytest.mark.parametrize("layer", ["embed", "second", "head"])
def test_a_bad_layer_costs_most_and_its_bad_part_is_told(name: str, layer: str) -> None:
    damage, tool, part = PLANTED[name]
    plain = language_model()
    file = damaged(quantized_by(tool, language_model()), layer, damage)
    costs = file_costs.measure(file, _matrices(file, plain), SAMPLES, Deadline.never())
    worst = costs.matrices[0]
    assert costs.unit == "nats"
    assert worst.name.startswith(layer)
    assert part in [each.what for each in worst.parts[:3]]
    assert sum(each.cost for each in costs.matrices) == pytest.approx(costs.total)
    assert costs.total_after is not None and costs.total_after < 0.7 * costs.total


def test_a_healthy_file_has_no_bad_part() -> None:
    file = quantized_by("default")
    costs = file_costs.measure(file, _matrices(file, language_model()), SAMPLES, Deadline.never())
    assert not [part for each in costs.matrices for part in each.parts if "row" in part.what]


def test_without_time_the_rest_is_estimated() -> None:
    file = quantized_by("tables")
    matrices = _matrices(file, language_model())
    costs = file_costs.measure(file, matrices, SAMPLES, Deadline.after(0.0))
    assert sorted(each.measured for each in costs.matrices) == [False, False, False, True]
    assert all(each.cost > 0 for each in costs.matrices)


def test_more_bits_are_stored_in_the_nodes_that_need_them() -> None:
    plain, file = language_model(), quantized_by("tables")
    chosen = {}
    for each in _matrices(file, plain):
        blocks = nearest_blocks(each.plain, Form(bits=8, block=32), np.ones(each.plain.shape[1]))
        chosen[each.weight] = blocks
    finer = store_blocks(file, chosen)
    assert finer is not None
    error = np.abs(_logits(finer) - _logits(plain)).max()
    assert error < 0.2 * np.abs(_logits(file) - _logits(plain)).max()


def test_verify_and_explain_show_the_layers_by_cost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, file = save(tmp_path / "plain.onnx"), tmp_path / "four.onnx"
    onnx.save(damaged(quantized_by("tables"), "second", few_bit_files.row_times_three), file)
    np.savez(tmp_path / "ids.npz", input_ids=IDS)
    result, page = tmp_path / "proof.json", tmp_path / "proof.html"
    command = [str(plain), str(file), "--data", str(tmp_path / "ids.npz"), "--budget", "10"]
    assert main(["diff", *command, "--json", str(result), "--html", str(page)]) == 1
    printed = capsys.readouterr().out
    assert "matrix (4 of 4, the costliest first)" in printed and "row 5" in printed
    proof = json.loads(result.read_text())
    assert proof["matrices"][0]["name"] == "second_Q4"
    assert proof["matrices"][0]["unit"] == "nats"
    assert proof["causes"][0]["code"] == "weights" and proof["causes"][0]["proven"]
    assert 'data-chart="matrices"' in page.read_text()
    assert main(["explain", str(result)]) in (0, 1)
    assert "the costliest first" in capsys.readouterr().out


def _too_few_levels() -> onnx.ModelProto:
    """Columns of the second layer that need far more levels than their block has."""
    model = language_model()
    tensor = next(t for t in model.graph.initializer if t.name == "second")
    weight = numpy_helper.to_array(tensor).copy()
    weight[3::16] *= 60.0
    weight[:, ::2] *= -1.0
    tensor.CopyFrom(numpy_helper.from_array(weight, tensor.name))
    return model


def test_a_file_that_needs_more_bits_gets_them_where_they_count(tmp_path: Path) -> None:
    plain, file = tmp_path / "plain.onnx", tmp_path / "four.onnx"
    onnx.save(_too_few_levels(), plain)
    onnx.save(quantized_by("tables", _too_few_levels()), file)
    data = [{"input_ids": IDS}]
    proof = onnxproof.verify(plain, file, data=data, budget_s=15)
    assert proof.verdict is Verdict.DRIFT  # explained by its bits, and yet 0.8 nats are lost
    assert proof.causes[0].code == "quant-scheme" and proof.causes[0].proven
    assert f"`{proof.matrices[0].name}`" in proof.causes[0].evidence
    assert proof.location is not None and proof.location.nodes[0] == proof.matrices[0].name
    mended = onnxproof.mend(plain, file, output=tmp_path / "mended.onnx", data=data, budget_s=15)
    assert mended.verdict is Verdict.FAITHFUL
    bits = [weight.packing.bits for weight in block_reading.find(onnx.load(mended.path))]
    assert 8 in bits
