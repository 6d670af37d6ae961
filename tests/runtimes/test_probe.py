"""Inner values of any backend: as further outputs, and by cutting the graph where that is refused."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxproof import api
from onnxproof.errors import Refused
from onnxproof.results import Stage, Verdict
from onnxproof.runtimes import Description, Session, _registered, ort
from onnxproof.runtimes.session import inner_values

NAMES = ("a", "b", "c", "d")


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    """x -> a = x w -> b = tanh a -> c = b + one -> d = relu c -> y = d d; with its weight beside the file."""
    weight = np.random.default_rng(0).standard_normal((3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="product"),
        helper.make_node("Tanh", ["a"], ["b"], name="tanh"),
        helper.make_node("Add", ["b", "one"], ["c"], name="add"),
        helper.make_node("Relu", ["c"], ["d"], name="relu"),
        helper.make_node("Mul", ["d", "d"], ["y"], name="square"),
    ]
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])],
        [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(np.float32(0.5), "one")],
    )
    path = tmp_path / "chain.onnx"
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
        path,
        save_as_external_data=True,
        location="chain.data",
        size_threshold=0,
    )
    return path


X = np.random.default_rng(1).standard_normal((2, 3)).astype(np.float32)


class Picky:
    """Opens on onnxruntime; refuses a model of which `c` is an output, and squares what `Tanh` gives."""

    def __init__(self, *, wrong: bool = False) -> None:
        self.opened: list[list[str]] = []
        self._wrong = wrong

    def describe(self) -> Description:
        return Description(name="picky", about="refuses to give `c`", installed=True)

    def open(self, model: Path, option: str = "") -> Session:
        loaded = onnx.load(model)
        outputs = [value.name for value in loaded.graph.output]
        self.opened.append(outputs)
        if not self._wrong and "c" in outputs:
            raise Refused("refused", "not `c`")
        for node in loaded.graph.node:
            if node.name == "tanh" and self._wrong:
                node.op_type = "Sin"
        return ort.open(loaded.SerializeToString())


def test_all_at_once_where_that_is_allowed(chain: Path) -> None:
    found = inner_values.values("ort:disabled", chain, {"x": X}, NAMES)
    assert list(found) == list(NAMES)
    assert (
        np.allclose(found["c"], np.tanh(found["a"]) + 0.5, atol=1e-6)
        and found["d"].dtype == np.float32
    )


def test_what_is_refused_is_left_out_and_the_rest_is_there(chain: Path) -> None:
    picky = Picky()
    _registered["picky"] = picky
    try:
        found = inner_values.values("picky", chain, {"x": X}, NAMES)
    finally:
        del _registered["picky"]
    assert set(found) == {"a", "b", "d"}
    assert picky.opened == [["a", "b", "c", "d"], ["a", "b"], ["c", "d"], ["c"], ["d"]]


def test_a_cut_keeps_what_is_needed_and_nothing_else(chain: Path) -> None:
    model = inner_values.infer_types(onnx.load(chain, load_external_data=False))
    before = inner_values.cut(model, ["b"])
    assert [node.name for node in before.graph.node] == ["product", "tanh"] and [
        t.name for t in before.graph.initializer
    ] == ["w"]
    middle = inner_values.cut(model, ["d"], inputs=["b"])
    assert [node.name for node in middle.graph.node] == ["add", "relu"] and [
        value.name for value in middle.graph.input
    ] == ["b"]
    assert middle.graph.input[0].type.tensor_type.elem_type == TensorProto.FLOAT
    onnx.load_external_data_for_model(middle, str(chain.parent))
    b = np.full((2, 3), -0.2, np.float32)
    assert np.allclose(ort.open(middle.SerializeToString()).run({"b": b})[0], 0.3)  # type: ignore[arg-type]


def test_the_guilty_node_of_another_runtime_is_named(chain: Path) -> None:
    """The file is right, and one kernel of one runtime is wrong: the stage is `runtime` and the node is that kernel's."""
    _registered["picky"] = Picky(wrong=True)
    try:
        proof = api.verify(str(chain), chain, backends=("ort", "picky"), budget_s=10)
    finally:
        del _registered["picky"]
    assert proof.verdict is Verdict.DIVERGED and proof.location is not None
    assert (proof.location.stage, proof.location.nodes[0]) == (Stage.RUNTIME, "tanh")
    assert (
        proof.cross is not None
        and proof.cross.right == ("ort",)
        and proof.cross.wrong == ("picky",)
    )
    assert [pair[:2] for pair in proof.cross.disagree] == [("ort", "picky")]
