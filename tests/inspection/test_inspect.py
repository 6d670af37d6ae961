"""`onnxproof inspect`: each planted oddity is named by its own check, and a sound file is good in all of them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

import onnxproof
from onnxproof.cli import main
from onnxproof.inspection import Check, Rating

RNG = np.random.default_rng(0)


def model(
    nodes: list[Any],
    weights: dict[str, np.ndarray],
    *,
    dims: tuple[Any, ...] = ("batch", 16),
    out: tuple[Any, ...] = ("batch", 16),
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, out)],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def sound() -> onnx.ModelProto:
    return model(
        [
            helper.make_node("MatMul", ["x", "w"], ["h"], name="product"),
            helper.make_node("Relu", ["h"], ["y"], name="relu"),
        ],
        {"w": RNG.standard_normal((16, 16)).astype(np.float32)},
    )


def copied() -> onnx.ModelProto:
    weight = RNG.standard_normal((16, 16)).astype(np.float32)
    return model(
        [
            helper.make_node("MatMul", ["x", "w"], ["h"]),
            helper.make_node("MatMul", ["h", "v"], ["y"]),
        ],
        {"w": weight, "v": weight},
    )


def unread() -> onnx.ModelProto:
    made = sound()
    made.graph.initializer.append(numpy_helper.from_array(np.ones((9, 9), np.float32), "left_over"))
    return made


def double() -> onnx.ModelProto:
    made = model(
        [
            helper.make_node("Cast", ["x"], ["d"], to=TensorProto.DOUBLE),
            helper.make_node("MatMul", ["d", "w"], ["h"]),
            helper.make_node("Cast", ["h"], ["y"], to=TensorProto.FLOAT),
        ],
        {"w": RNG.standard_normal((16, 16))},
    )
    return made


def reshaped() -> onnx.ModelProto:
    return model(
        [helper.make_node("Reshape", ["x", "shape"], ["y"], name="forced")],
        {"shape": np.array([2, 16], np.int64)},
    )


def pretending() -> onnx.ModelProto:
    return model(
        [helper.make_node("Relu", ["x"], ["y"])], {}, dims=("batch", "6"), out=("batch", "6")
    )


def fixed() -> onnx.ModelProto:
    return model([helper.make_node("Relu", ["x"], ["y"])], {}, dims=(1, 16), out=(1, 16))


def training() -> onnx.ModelProto:
    ones = np.ones(16, np.float32)
    node = helper.make_node(
        "BatchNormalization", ["x", "s", "b", "m", "v"], ["y", "", ""], name="norm", training_mode=1
    )
    return model([node], {"s": ones, "b": ones, "m": ones, "v": ones})


def dropping() -> onnx.ModelProto:
    return model(
        [helper.make_node("Dropout", ["x", "ratio", "on"], ["y"], name="drop")],
        {"ratio": np.float32(0.5), "on": np.array(True)},
    )


def noisy() -> onnx.ModelProto:
    return model(
        [
            helper.make_node("RandomNormalLike", ["x"], ["n"], name="noise"),
            helper.make_node("Add", ["x", "n"], ["y"]),
        ],
        {},
    )


def dead() -> onnx.ModelProto:
    return model(
        [
            helper.make_node("Relu", ["x"], ["y"]),
            helper.make_node("Exp", ["x"], ["nowhere"], name="lost"),
        ],
        {},
    )


def strange() -> onnx.ModelProto:
    made = model([helper.make_node("FusedThing", ["x"], ["y"], domain="acme")], {})
    made.opset_import.append(helper.make_opsetid("acme", 1))
    return made


def unfused() -> onnx.ModelProto:
    """Quantized and back again around an Erf, which has no integer kernel."""
    scale, zero = np.float32(0.1), np.array(0, np.int8)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("Erf", ["d"], ["e"]),
        helper.make_node("QuantizeLinear", ["e", "s", "z"], ["r"]),
        helper.make_node("DequantizeLinear", ["r", "s", "z"], ["y"]),
    ]
    return model(nodes, {"s": scale, "z": zero})


def fused() -> onnx.ModelProto:
    """Quantized on both sides of a product, which has an integer kernel."""
    scale, zero = np.float32(0.1), np.array(0, np.int8)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["v"]),
        helper.make_node("MatMul", ["d", "v"], ["h"]),
        helper.make_node("QuantizeLinear", ["h", "s", "z"], ["r"]),
        helper.make_node("DequantizeLinear", ["r", "s", "z"], ["y"]),
    ]
    return model(nodes, {"s": scale, "z": zero, "w": RNG.integers(-9, 9, (16, 16), dtype=np.int8)})


def look(made: onnx.ModelProto, folder: Path, reference: Any = None) -> dict[str, Check]:
    onnx.save(made, folder / "m.onnx")
    return {check.name: check for check in onnxproof.inspect(folder / "m.onnx", reference).checks}


def test_a_sound_file_is_good_in_every_check(tmp_path: Path) -> None:
    checks = look(sound(), tmp_path)
    assert {check.rating for check in checks.values()} == {Rating.GOOD}
    assert len(checks) >= 10


@pytest.mark.parametrize(
    ("make", "name", "rating", "words"),
    [
        (
            copied,
            "copies",
            Rating.ODD,
            "1 weights are there more than once, 1.0 kB for nothing: `w`, `v`",
        ),
        (unread, "unread", Rating.ODD, "`left_over`"),
        (double, "precision", Rating.ODD, "1 weights are kept in float64"),
        (reshaped, "baked-shapes", Rating.BAD, "forced to [2, 16]"),
        (pretending, "dims", Rating.BAD, "x[1] called 6"),
        (fixed, "dims", Rating.ODD, "the first dim of `x` is fixed"),
        (training, "training", Rating.BAD, "1 nodes are in training mode: `norm`"),
        (dropping, "training", Rating.BAD, "`drop`"),
        (noisy, "random", Rating.ODD, "`noise`"),
        (dead, "dead-nodes", Rating.ODD, "1 nodes lead nowhere: `lost`"),
        (strange, "operators", Rating.ODD, "`acme:FusedThing`"),
        (unfused, "quantization", Rating.ODD, "`Erf`"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_each_oddity_is_named_by_its_check(
    tmp_path: Path, make: Callable[[], onnx.ModelProto], name: str, rating: Rating, words: str
) -> None:
    checks = look(make(), tmp_path)
    assert (checks[name].rating, words in checks[name].what) == (rating, True), checks[name]


def test_pairs_that_a_kernel_takes_up_are_counted_as_fused(tmp_path: Path) -> None:
    seen = look(fused(), tmp_path)["quantization"]
    assert "3 DequantizeLinear nodes in the file, 1 left" in seen.what, (
        seen
    )  # the last one makes the answer a float


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(x)


def test_weights_that_are_missing_and_constants_that_are_none(tmp_path: Path) -> None:
    baked = model(
        [helper.make_node("Add", ["x", "mask"], ["y"])],
        {"mask": np.zeros((100, 16), np.float32)},
        out=("a", 16),
    )
    checks = look(baked, tmp_path, Masked())
    assert (
        checks["baked-constants"].rating is Rating.ODD
        and "`mask`" in checks["baked-constants"].what
    )
    small = model([helper.make_node("Relu", ["x"], ["y"])], {})
    assert "missing" in look(small, tmp_path, Masked())["parameters"].what
    assert look(sound(), tmp_path, Masked())["parameters"].rating is Rating.GOOD


def test_external_weights_are_read_where_they_are(tmp_path: Path) -> None:
    onnx.save(
        copied(),
        tmp_path / "m.onnx",
        save_as_external_data=True,
        size_threshold=0,
        location="m.data",
    )
    seen = onnxproof.inspect(tmp_path / "m.onnx")
    assert next(check for check in seen.checks if check.name == "copies").rating is Rating.ODD
    assert seen.file_bytes > 2048


def test_the_command_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    onnx.save(sound(), tmp_path / "good.onnx")
    onnx.save(dead(), tmp_path / "odd.onnx")
    onnx.save(pretending(), tmp_path / "bad.onnx")
    assert main(["inspect", str(tmp_path / "good.onnx")]) == 0
    assert main(["inspect", str(tmp_path / "odd.onnx")]) == 0
    assert main(["inspect", str(tmp_path / "odd.onnx"), "--strict"]) == 1
    assert main(["inspect", str(tmp_path / "bad.onnx"), "--json", str(tmp_path / "seen.json")]) == 1
    document = json.loads((tmp_path / "seen.json").read_text())
    assert (document["rating"], document["operators"]) == ("bad", {"Relu": 1})
    assert {check["name"] for check in document["checks"]} >= {
        "dims",
        "copies",
        "baked-shapes",
        "training",
        "random",
        "quantization",
        "size",
    }
    capfd.readouterr()
    assert main(["inspect", str(tmp_path / "good.onnx"), "--json", "-"]) == 0
    assert json.loads(capfd.readouterr().out)["checks"]
    assert main(["inspect", str(tmp_path / "none.onnx")]) == 2
    assert "error[no-such-file]" in capfd.readouterr().err


def in_constants() -> onnx.ModelProto:
    """Weights that are Constant nodes, as some converters write them; one of them in a branch."""
    branches = [
        helper.make_graph(
            [
                helper.make_node(
                    "Constant",
                    [],
                    [f"c{i}"],
                    value=numpy_helper.from_array(np.ones((16, 16), np.float32) * i),
                )
            ],
            f"b{i}",
            [],
            [helper.make_tensor_value_info(f"c{i}", TensorProto.FLOAT, (16, 16))],
        )
        for i in (1, 2)
    ]
    nodes = [
        helper.make_node(
            "Constant",
            [],
            ["w"],
            value=numpy_helper.from_array(RNG.standard_normal((16, 16)).astype(np.float32)),
        ),
        helper.make_node(
            "Constant", [], ["sizes"], value=numpy_helper.from_array(np.array([-1, 16]))
        ),
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Reshape", ["h", "sizes"], ["r"]),
        helper.make_node("If", ["yes"], ["v"], then_branch=branches[0], else_branch=branches[1]),
        helper.make_node("MatMul", ["r", "v"], ["y"]),
    ]
    return model(nodes, {"yes": np.array(True)})


def test_weights_in_constant_nodes_are_counted(tmp_path: Path) -> None:
    onnx.save(in_constants(), tmp_path / "m.onnx")
    seen = onnxproof.inspect(tmp_path / "m.onnx")
    assert (
        seen.parameters == 3 * 256 + 1
    )  # two branches, one product, one flag; the sizes of a Reshape are no parameters
    assert [weight.name for weight in seen.heaviest[:1]] == ["w"]
    assert {check.name: check.rating for check in seen.checks}["unread"] is Rating.GOOD
    assert (
        look(in_constants(), tmp_path, Masked())["parameters"].rating is Rating.ODD
    )  # 769 for the module's 272: too many, not none


def with_inputs(*inputs: tuple[str, tuple[Any, ...]]) -> onnx.ModelProto:
    made = model([helper.make_node("Relu", [inputs[0][0]], ["y"])], {})
    del made.graph.input[:]
    made.graph.input.extend(
        helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in inputs
    )
    return made


@pytest.mark.parametrize(
    ("inputs", "rating", "words"),
    [
        ([("x", ("time", "batch", 4)), ("h", (1, "batch", 6))], Rating.GOOD, "h[1, batch, 6]"),
        (
            [("x", ("batch", "time", 4)), ("h", (2, "batch", 6)), ("c", (2, "batch", 6))],
            Rating.GOOD,
            "c[2, batch, 6]",
        ),
        (
            [("x", ("n", "time", 4)), ("state", (2, "n", 128)), ("rate", (1,))],
            Rating.GOOD,
            "rate[1]",
        ),
        ([("x", (None, 4)), ("h", (2, None, 6))], Rating.GOOD, "h[2, ?, 6]"),
        ([("x", (1, 3, "height", "width"))], Rating.ODD, "the first dim of `x` is fixed"),
        (
            [("ids", (1, "seq")), ("mask", (1, "seq"))],
            Rating.ODD,
            "the first dim of `ids`, `mask` is fixed",
        ),
        ([("x", ("batch", 4)), ("h", (1, 1, 6))], Rating.ODD, "the first dim of `h` is fixed"),
        ([("x", (-1, 4))], Rating.ODD, "`x[0]` is negative"),
        ([("x", ("batch", 0))], Rating.ODD, "`x[1]` is 0, so there is nothing in it"),
    ],
    ids=str,
)
def test_one_batch_size_is_said_of_those_inputs_alone_that_have_one(
    tmp_path: Path, inputs: list[Any], rating: Rating, words: str
) -> None:
    seen = look(with_inputs(*inputs), tmp_path)["dims"]
    assert (seen.rating, words in seen.what) == (rating, True), seen
    assert ("one batch size" in seen.help) == ("is fixed" in words)


def test_inputs_that_are_no_tensors_are_shown_as_what_they_are(tmp_path: Path) -> None:
    made = sound()
    made.graph.input.append(
        helper.make_tensor_sequence_value_info("parts", TensorProto.FLOAT, None)
    )
    assert "parts (sequence)" in look(made, tmp_path)["dims"].what


def test_constants_that_hold_no_array_are_passed_over(tmp_path: Path) -> None:
    """A function's constant that refers to the caller's attribute; one without a type; words; one that is sparse."""
    made = sound()
    referring = helper.make_node("Constant", [], ["b"])
    referring.attribute.add(name="value", type=onnx.AttributeProto.TENSOR, ref_attr_name="given")
    made.functions.append(
        helper.make_function(
            "local", "f", [], ["b"], [referring], [helper.make_opsetid("", 18)], ["given"]
        )
    )
    untyped, words, sparse = (helper.make_node("Constant", [], [name]) for name in ("u", "s", "p"))
    untyped.attribute.add(name="value")
    words.attribute.add(
        name="value_strings", type=onnx.AttributeProto.STRINGS, strings=[b"\xff", b"a"]
    )
    sparse.attribute.add(
        name="sparse_value", type=onnx.AttributeProto.SPARSE_TENSOR
    ).sparse_tensor.CopyFrom(
        helper.make_sparse_tensor(
            numpy_helper.from_array(np.ones(1, np.float32), "v"),
            numpy_helper.from_array(np.zeros(1, np.int64), "i"),
            [4],
        )
    )
    made.graph.node.extend([untyped, words, sparse])
    checks = look(made, tmp_path)
    assert (
        checks["copies"].rating is Rating.GOOD
        and "3 nodes lead nowhere" in checks["dead-nodes"].what
    )
