"""Values that set a size are computed with before they are tried."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper

import onnxproof
from onnxproof.inputs.output_sizes import Sizing, size_inputs
from onnxproof.onnxmodel import onnx_file
from onnxproof.results import Case, InputInfo, OutputInfo, Signature, Verdict

_INT, _FLOAT = onnx.TensorProto.INT64, onnx.TensorProto.FLOAT


def file(
    tmp_path: Path, nodes: list[onnx.NodeProto], inputs: dict[str, tuple[int, list[int]]]
) -> onnx_file.OnnxFile:
    weights = {
        "zero": np.array(0),
        "one": np.array(1),
        "axis": np.array([0]),
        "roi": np.zeros(0, np.float32),
    }
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info(name, kind, shape)
            for name, (kind, shape) in inputs.items()
        ],
        [helper.make_tensor_value_info("y", _FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
        tmp_path / "m.onnx",
    )
    return onnx_file.read(tmp_path / "m.onnx")


@pytest.mark.parametrize(
    ("nodes", "sets"),
    [
        ([helper.make_node("Range", ["zero", "n", "one"], ["r"])], True),
        (
            [
                helper.make_node("Unsqueeze", ["n", "axis"], ["s"]),
                helper.make_node("ConstantOfShape", ["s"], ["r"]),
            ],
            True,
        ),
        (
            [
                helper.make_node("Add", ["n", "one"], ["m"]),
                helper.make_node("Unsqueeze", ["m", "axis"], ["s"]),
                helper.make_node("Expand", ["x", "s"], ["r"]),
            ],
            True,
        ),
        (
            [
                helper.make_node("Unsqueeze", ["n", "axis"], ["s"]),
                helper.make_node("Tile", ["x", "s"], ["r"]),
            ],
            True,
        ),
        ([helper.make_node("HannWindow", ["n"], ["r"])], True),
        (
            [
                helper.make_node("Cast", ["n"], ["f"], to=_FLOAT),
                helper.make_node("Add", ["x", "f"], ["r"]),
            ],
            False,
        ),
        (
            [
                helper.make_node("Shape", ["x"], ["s"]),
                helper.make_node("ConstantOfShape", ["s"], ["r"]),
            ],
            False,
        ),
    ],
)
def test_the_inputs_that_set_sizes(nodes: list[onnx.NodeProto], sets: bool, tmp_path: Path) -> None:
    found = size_inputs(
        file(
            tmp_path,
            [*nodes, helper.make_node("Identity", ["x"], ["y"])],
            {"x": (_FLOAT, [3]), "n": (_INT, [])},
        )
    )
    assert found == (frozenset({"n"}) if sets else frozenset())


@pytest.mark.parametrize(
    ("value", "refused"),
    [(7, False), (10_000, False), (2**24, True), (2**40, True), (-(2**40), True), (0, False)],
)
def test_a_size_beyond_what_can_be_held_is_not_tried(
    value: int, refused: bool, tmp_path: Path
) -> None:
    read = file(
        tmp_path,
        [
            helper.make_node("Range", ["zero", "n", "one"], ["r"]),
            helper.make_node("Cast", ["r"], ["y"], to=_FLOAT),
        ],
        {"n": (_INT, [])},
    )
    signature = Signature(
        inputs=(InputInfo(name="n", dtype="int64", shape=(), dims=(), onnx_name="n"),),
        outputs=(OutputInfo(name="y", dtype="float32", shape=(8,), onnx_name="y"),),
    )
    said = Sizing(read, signature, {"n": np.array(1)}).refusal(
        Case(name="c", group="integers", about="", inputs={"n": np.array(value)})
    )
    assert bool(said) == refused
    assert (
        Sizing(read, signature, {"n": np.array(1)}).refusal(
            Case(name="c", group="data", about="", inputs={"n": np.array(value)})
        )
        == ""
    )
    assert not said or said.startswith("`n` sets a size, and would lead to about ")


class Turns(torch.nn.Module):
    """Works as long as its input says: 2**40 turns would never end, in the module itself, where nothing guards it."""

    most = 0

    def forward(self, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        Turns.most = max(Turns.most, int(n))
        for _ in range(min(int(n), 5000)):
            x = x + 1.0
        return x


def test_no_case_makes_the_reference_turn_for_ever(tmp_path: Path) -> None:
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["c"], ["go"]),
            helper.make_node("Add", ["v", "unit"], ["w"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", _INT, []),
            helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, []),
            helper.make_tensor_value_info("v", _FLOAT, [3]),
        ],
        [
            helper.make_tensor_value_info("go", onnx.TensorProto.BOOL, []),
            helper.make_tensor_value_info("w", _FLOAT, [3]),
        ],
        [numpy_helper.from_array(np.array(1, np.float32), "unit")],
    )
    graph = helper.make_graph(
        [helper.make_node("Loop", ["n", "yes", "x"], ["y"], body=body)],
        "g",
        [
            helper.make_tensor_value_info("x", _FLOAT, [3]),
            helper.make_tensor_value_info("n", _INT, []),
        ],
        [helper.make_tensor_value_info("y", _FLOAT, [3])],
        [numpy_helper.from_array(np.array(True), "yes")],
    )
    path = tmp_path / "turns.onnx"
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path
    )
    proof = onnxproof.verify(
        Turns().eval(), path, (torch.ones(3), torch.tensor(2)), budget_s=10, explain=False
    )
    assert Turns.most < 2**26
    assert any("`n` sets a size" in dropped.reason for dropped in proof.dropped)
    assert proof.verdict is Verdict.FAITHFUL
