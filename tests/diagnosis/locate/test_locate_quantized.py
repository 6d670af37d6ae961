"""A quantized file: the rounding that costs most is named, unless the runtime leaves the graph."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
from onnx import helper
from support.two_files import normal, scene_between
from support.workbenches import graph_model

from onnxproof.diagnosis.locate import quantized
from onnxproof.diagnosis.locate.scene import Located, Scene
from onnxproof.results import Gap, Location, NoiseKind, Stage, Status

X = normal(8, 6)


def scalar(value: float) -> np.ndarray:
    return np.float32(value).reshape(())


def floats() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["m"], "scale"),
        helper.make_node("Tanh", ["m"], ["t"], "tanh"),
        helper.make_node("Neg", ["t"], ["y"], "minus"),
    ]
    return graph_model(nodes, {"x": X}, {"w": normal(8, 6, seed=1)})


def rounded(first: float, second: float) -> onnx.ModelProto:
    """The product is rounded in steps of `first`, and its tanh in steps of `second`."""
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["m"], "/block/Mul"),
        helper.make_node("QuantizeLinear", ["m", "s1", "zero"], ["mq"], "q_product"),
        helper.make_node("DequantizeLinear", ["mq", "s1", "zero"], ["md"], "dq_product"),
        helper.make_node("Tanh", ["md"], ["t"], "/head/Tanh"),
        helper.make_node("QuantizeLinear", ["t", "s2", "zero"], ["tq"], "q_tanh"),
        helper.make_node("DequantizeLinear", ["tq", "s2", "zero"], ["td"], "dq_tanh"),
        helper.make_node("Neg", ["td"], ["y"], "minus"),
    ]
    constants = {
        "w": normal(8, 6, seed=1),
        "s1": scalar(first),
        "s2": scalar(second),
        "zero": np.array(0, np.int8),
    }
    return graph_model(nodes, {"x": X}, constants)


def gap(noise_ratio: float) -> Gap:
    return Gap(
        case="case",
        group="ordinary",
        backend="ort",
        output="y",
        status=Status.COMPARED,
        noise_kind=NoiseKind.SIMULATED,
        noise_ratio=noise_ratio,
    )


def scene(folder: Path, first: float, second: float, noise_ratio: float = 1.0) -> Scene:
    made = scene_between(folder, floats(), rounded(first, second), {"x": X})
    return replace(made, gap=gap(noise_ratio))


def refuse(scene: Scene) -> Located:
    raise AssertionError("the runtime is not to blame")


def test_the_coarse_rounding_is_named_with_the_module_of_what_it_rounds(tmp_path: Path) -> None:
    location = quantized.locate(scene(tmp_path, 0.02, 0.4), refuse).location
    assert location.stage is Stage.GRAPH and location.compared == 2
    assert location.nodes[0] == "q_tanh"
    assert location.module == "head"
    assert location.evidence == location.suspects[0].why
    assert "times what the values there ask for; put right, the answers gain " in location.evidence


def test_the_other_rounding_is_named_where_that_one_is_coarse(tmp_path: Path) -> None:
    location = quantized.locate(scene(tmp_path, 0.8, 0.008), refuse).location
    assert location.nodes[0] == "q_product"
    assert location.module == "block"
    assert location.suspects[0].ratio > 10


def test_the_gain_is_that_of_the_answers_without_the_rounding(tmp_path: Path) -> None:
    made = scene(tmp_path, 0.02, 0.4)
    true = made.truth[0]
    product = X.astype(np.float64) * normal(8, 6, seed=1)
    product = np.clip(np.rint(product / 0.02), -128, 127) * 0.02
    before = -np.clip(np.rint(np.tanh(product) / 0.4), -128, 127) * 0.4
    after = -np.tanh(product)
    errors = [np.sum((answer - true) ** 2) for answer in (before, after)]
    expected = 10 * np.log10(errors[0] / errors[1])
    suspect = quantized.locate(made, refuse).location.suspects[0]
    assert abs(suspect.ratio - expected) < 1.0
    assert f"gain {suspect.ratio:.1f} dB" in suspect.why


def test_of_two_coarse_roundings_the_one_that_costs_more_comes_first(tmp_path: Path) -> None:
    suspects = quantized.locate(scene(tmp_path, 0.4, 0.25), refuse).location.suspects
    assert [suspect.node for suspect in suspects] == ["q_product", "q_tanh"]
    assert suspects[0].ratio > suspects[1].ratio > 0.5


def test_beyond_what_quantization_explains_the_graph_itself_becomes_the_truth(
    tmp_path: Path,
) -> None:
    made = scene(tmp_path, 0.5, 0.5, noise_ratio=1e6)
    asked: list[Scene] = []

    def by_truth(simulated: Scene) -> Located:
        asked.append(simulated)
        return Located(location=Location(stage=Stage.RUNTIME), matched=frozenset({1}))

    found = quantized.locate(made, by_truth)
    assert found == Located(location=Location(stage=Stage.RUNTIME))
    assert len(asked) == 1 and asked[0].gap is None
    product = np.clip(np.rint(X.astype(np.float64) * normal(8, 6, seed=1) / 0.5), -128, 127) * 0.5
    expected = -np.rint(np.tanh(product) / 0.5) * 0.5
    np.testing.assert_allclose(asked[0].truth[0], expected, atol=1e-12)


def test_a_rounding_that_loses_nothing_is_not_called_the_difference(tmp_path: Path) -> None:
    """Both steps are so fine, and so wide, that neither alone recovers half a decibel."""
    made = scene(tmp_path, 0.05, 0.01)
    location = quantized.locate(replace(made, truth=[made.truth[0] + 5]), refuse).location
    assert location.suspects
    assert all(suspect.ratio == 0.0 for suspect in location.suspects)
    assert location.evidence.startswith("no single rounding makes the difference; the range of `")
