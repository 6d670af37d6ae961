"""An ONNX file as the reference: it answers as ONNX Runtime does, and its truth is the graph in float64."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxproof.errors import InputError
from onnxproof.numerics.measure import noise_of
from onnxproof.reference import graph
from onnxproof.reference.graph import GraphReference
from onnxproof.results import NoiseKind
from onnxproof.runtimes.session.execution import Clock

WIDE = np.random.default_rng(3).standard_normal((512, 64)).astype(np.float32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Embedding, a wide matrix product, and a mask."""
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["e"]),
        helper.make_node("MatMul", ["e", "w"], ["m"]),
        helper.make_node("Add", ["m", "x"], ["s"]),
        helper.make_node("Where", ["keep", "s", "zero"], ["y"]),
        helper.make_node("ArgMax", ["y"], ["best"], axis=-1),
    ]
    weights = {
        "table": np.random.default_rng(1).standard_normal((5, 512)).astype(np.float32),
        "w": WIDE,
        "zero": np.zeros((), np.float32),
    }
    inputs = [
        helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch_size", "seq"]),
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, None, 64]),
        helper.make_tensor_value_info("keep", TensorProto.BOOL, ["batch_size", "seq", 1]),
    ]
    outputs = [
        helper.make_tensor_value_info("y", TensorProto.FLOAT, None),
        helper.make_tensor_value_info("best", TensorProto.INT64, None),
    ]
    return save(tmp_path, nodes, inputs, outputs, weights)


def save(
    folder: Path,
    nodes: list[Any],
    inputs: list[Any],
    outputs: list[Any],
    weights: dict[str, Any],
    **options: Any,
) -> Path:
    made = helper.make_graph(
        nodes, "g", inputs, outputs, [numpy_helper.from_array(v, k) for k, v in weights.items()]
    )
    imports = [
        helper.make_opsetid("", 17),
        *(helper.make_opsetid(d, 1) for d in {n.domain for n in nodes} - {""}),
    ]
    onnx.save(helper.make_model(made, opset_imports=imports, ir_version=8), folder / "m.onnx")
    return folder / "m.onnx"


def test_an_example_is_made_from_the_signature(path: Path) -> None:
    example = GraphReference(path, (), Clock()).example()
    assert {n: (a.shape, str(a.dtype)) for n, a in example.items()} == {
        "ids": ((2, 8), "int64"),
        "x": ((2, 8, 64), "float32"),
        "keep": ((2, 8, 1), "bool"),
    }
    assert (
        example["ids"].min() >= 0
        and example["ids"].max() < 5
        and len(set(example["ids"].reshape(-1).tolist())) > 1
    )
    assert example["keep"].all() and 0.5 < example["x"].std() < 2
    example["x"][...] = 0
    assert GraphReference(path, (), Clock()).example()["x"].any()


def test_the_users_example_is_taken_by_order_and_by_name(path: Path) -> None:
    torch = pytest.importorskip("torch")
    ids, x, keep = (
        torch.zeros(1, 3, dtype=torch.int64),
        torch.ones(1, 3, 64),
        torch.ones(1, 3, 1, dtype=torch.bool),
    )
    by_order = GraphReference(path, (ids, x, keep), Clock()).example()
    by_name = GraphReference(
        path, {"keep": keep.numpy(), "x": x.numpy(), "ids": ids.numpy()}, Clock()
    ).example()
    assert list(by_order) == list(by_name) == ["ids", "x", "keep"]
    assert all(np.array_equal(by_order[n], by_name[n]) for n in by_order)
    with pytest.raises(InputError, match="takes 3 inputs and the example has 1"):
        GraphReference(path, (ids,), Clock())
    with pytest.raises(InputError, match="the example has no `x`"):
        GraphReference(path, {"ids": ids, "keep": keep}, Clock())
    with pytest.raises(InputError, match="no input `mask`"):
        GraphReference(path, {"ids": ids, "keep": keep, "x": x, "mask": x}, Clock())


def test_the_truth_is_float64_and_the_noise_is_rounding(path: Path) -> None:
    clock = Clock()
    reference = GraphReference(path, (), clock)
    inputs = reference.example()
    answer, truth = reference.run(inputs), reference.truth(inputs)
    assert truth is not None and reference.kind is NoiseKind.GRAPH
    assert [a.dtype for a in truth] == [np.float64, np.int64]
    table = np.random.default_rng(1).standard_normal((5, 512)).astype(np.float32).astype(np.float64)
    np.testing.assert_allclose(
        truth[0],
        table[inputs["ids"]] @ WIDE.astype(np.float64) + inputs["x"],
        rtol=1e-12,
        atol=1e-12,
    )
    noise = noise_of(answer[0], truth[0], reference.kind)
    assert 1e-8 < noise.rms < 1e-4
    assert (clock.passes["reference64"], clock.passes["ort-reference"]) == (1, 1)
    ins, outs = reference.leaves(inputs)
    assert [leaf.name for leaf in (*ins, *outs)] == ["ids", "x", "keep", "y", "best"]


def test_reruns_stay_near_and_moved_ones_differ(path: Path) -> None:
    reference = GraphReference(path, (), Clock())
    inputs = reference.example()
    answer = reference.run(inputs)[0]
    for seed in range(3):
        np.testing.assert_allclose(reference.rerun(inputs, seed)[0], answer, atol=1e-3)
    moved = reference.rerun(inputs, 0, move=True)[0]
    assert (
        not np.array_equal(moved, reference.rerun(inputs, 0)[0])
        and np.abs(moved - answer).max() < 1e-3
    )
    assert not np.array_equal(moved, reference.rerun(inputs, 3, move=True)[0])
    assert (
        reference.in_precision(inputs, "float16") is None
        and reference.ties(inputs, "first") is None
        and reference.findings() == ()
        and reference.tree is None
    )


def test_an_operator_without_a_truth_makes_the_oracle_humble(tmp_path: Path) -> None:
    port = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])]
    reference = GraphReference(
        save(
            tmp_path,
            [helper.make_node("SampleOp", ["x"], ["y"], domain="com.microsoft")],
            port,
            [onnx.ValueInfoProto(name="y")],
            {},
        ),
        (),
        Clock(),
    )
    assert reference.example()["x"].shape == (8, 4)
    assert reference.truth(reference.example()) is None and reference.kind is NoiseKind.PERTURBED
    assert reference.run(reference.example())[0].shape == (8, 4)


def test_a_truth_that_takes_too_long_is_given_up(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph, "TRUTH_LIMIT_S", 1e-9)
    reference = GraphReference(path, (), Clock())
    assert reference.truth(reference.example()) is None and reference.kind is NoiseKind.PERTURBED


def test_a_file_without_shapes_asks_for_an_example(tmp_path: Path) -> None:
    loose = save(
        tmp_path,
        [helper.make_node("Neg", ["x"], ["y"])],
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, None)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        {},
    )
    with pytest.raises(InputError, match="does not say what shape or dtype `x` has"):
        GraphReference(loose, (), Clock())
    assert GraphReference(loose, (np.ones(3, np.float32),), Clock()).run(
        {"x": np.ones(3, np.float32)}
    )[0].tolist() == [-1, -1, -1]
