"""The part of a graph up to its first layer with weights."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.module_workbenches import file_of, module_workbench, node
from support.workbenches import workbench

from onnxproof.diagnosis.counterfactuals.first_layer import FirstLayer
from onnxproof.diagnosis.counterfactuals.input_preparation import Port

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 4)).astype(np.float32)
W = RNG.normal(size=(4, 3)).astype(np.float32)
B = RNG.normal(size=3).astype(np.float32)
IMAGE = RNG.normal(size=(1, 3, 6, 6)).astype(np.float32)
KERNEL = RNG.normal(size=(5, 3, 1, 1)).astype(np.float32)


def first_layer(
    folder: Path,
    nodes: list[Any],
    inputs: dict[str, Any],
    constants: dict[str, Any],
    kind: str = "sound",
) -> FirstLayer:
    """The first layer behind the input `x`."""
    file = file_of(nodes, inputs, constants)
    bench = workbench(folder, file, np.zeros(1, np.float32), inputs)
    return FirstLayer(bench, Port(name="x", onnx_name="x", kind=kind))


def test_the_bias_of_a_product_belongs_to_the_layer_and_what_follows_does_not(
    tmp_path: Path,
) -> None:
    nodes = [
        node("Mul", "x", "two", output="scaled"),
        node("MatMul", "scaled", "w", output="product"),
        node("Add", "product", "b", output="biased"),
        node("Relu", "biased", output="active"),
        node("MatMul", "active", "v"),
    ]
    constants = {"two": np.array(2, np.float32), "w": W, "b": B, "v": W.T.copy()}
    layer = first_layer(tmp_path, nodes, {"x": X}, constants)
    values = layer(X)
    assert values is not None
    assert values.dtype == np.float64
    assert np.allclose(values, 2.0 * X @ W + B, atol=1e-5)
    assert (layer.slices, layer.resizes, layer.normed) == ([], [], False)


def test_another_input_keeps_the_value_of_the_witness(tmp_path: Path) -> None:
    inputs = {"x": X, "shift": 3 * np.ones((2, 4), np.float32), "unread": X}
    nodes = [
        node("Add", "x", "shift", output="shifted"),
        node("MatMul", "shifted", "w", output="product"),
        node("Add", "product", "unread_part"),
    ]
    constants = {"w": W, "unread_part": B}
    layer = first_layer(tmp_path, nodes, inputs, constants)
    values = layer(np.zeros_like(X))
    assert values is not None
    assert np.allclose(values, 3 * np.ones((2, 4)) @ W + B, atol=1e-5)


def test_crops_resizes_and_norms_on_the_way_are_kept(tmp_path: Path) -> None:
    ends = {"starts": [1, 1], "ends": [5, 5], "axes": [2, 3]}
    constants: dict[str, Any] = {name: np.array(v, np.int64) for name, v in ends.items()}
    constants |= {name: np.ones(3, np.float32) for name in ("scale", "b", "mean", "var")}
    constants |= {"sizes": np.array([1, 3, 8, 8], np.int64), "kernel": KERNEL}
    nodes = [
        node("Slice", "x", *ends, output="cut"),
        node("Resize", "cut", "", "", "sizes", output="large", mode="nearest"),
        node("BatchNormalization", "large", "scale", "b", "mean", "var", output="normed"),
        node("Conv", "normed", "kernel", output="conv"),
        node("Slice", "conv", *ends),
    ]
    layer = first_layer(tmp_path, nodes, {"x": IMAGE}, constants, kind="image")
    assert [n.name for n in layer.slices] == ["cut"]
    assert [n.name for n in layer.resizes] == ["large"]
    assert layer.normed
    values = layer(IMAGE)
    assert values is not None
    assert values.shape == (1, 5, 8, 8)


def test_the_layer_of_a_text_is_its_table(tmp_path: Path) -> None:
    ids = np.array([[2, 0]])
    table = {"table": W, "m": W.T.copy()}
    nodes = [node("Gather", "table", "x", output="rows"), node("MatMul", "rows", "m")]
    layer = first_layer(tmp_path, nodes, {"x": ids}, table, kind="text")
    values = layer(ids)
    assert values is not None
    assert values.tolist() == W[[2, 0]][None].astype(np.float64).tolist()


@pytest.mark.parametrize("nodes", [[node("Relu", "x")], [node("MatMul", "c", "w")]])
def test_without_a_layer_that_the_input_reaches_there_are_no_values(
    nodes: list[Any], tmp_path: Path
) -> None:
    layer = first_layer(tmp_path, nodes, {"x": X}, {"w": W, "c": X})
    assert layer(X) is None


def test_an_input_of_a_size_that_the_layer_refuses_has_no_values(tmp_path: Path) -> None:
    layer = first_layer(tmp_path, [node("MatMul", "x", "w")], {"x": X}, {"w": W})
    assert layer(np.ones((2, 5), np.float32)) is None


def test_the_values_of_the_module_that_may_be_the_layers_have_its_size(tmp_path: Path) -> None:
    class Layers(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Linear(4, 3)
            self.second = torch.nn.Linear(3, 3)
            self.third = torch.nn.Linear(3, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.third(torch.exp(self.second(self.first(x))))

    module = Layers()
    file = file_of([node("MatMul", "x", "w")], {"x": X}, {"w": W})
    bench = module_workbench(tmp_path, module, file, {"x": X})
    layer = FirstLayer(bench, Port(name="x", onnx_name="x", kind="sound"))
    with torch.no_grad():
        first = module.first(torch.from_numpy(X))
        second = module.second(first)
    targets = list(layer.targets(6))
    assert any(np.allclose(target, first, atol=1e-5) for target in targets)
    assert any(np.allclose(target, second, atol=1e-5) for target in targets)
    assert not any(np.allclose(target, second.exp(), atol=1e-5) for target in targets)
    assert list(layer.targets(5)) == []
