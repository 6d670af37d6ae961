"""Right in float64 and wrong as it is run: a kernel, or the types of the graph itself."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from support.two_files import normal, scene_between
from support.workbenches import graph_model

from onnxproof.diagnosis.locate import runtime
from onnxproof.diagnosis.locate.evaluation import InnerGaps, evaluate_in_float64
from onnxproof.diagnosis.locate.scene import Located, Scene
from onnxproof.onnxmodel.graph import Graph
from onnxproof.results import Stage

X = normal(4, 6)
KEYS = (np.arange(1, 13, dtype=np.int64).reshape(3, 4) ** 5) * (2**40 + 1)


def located(scene: Scene, limit: float = 2e-6) -> Located:
    evaluation = evaluate_in_float64(scene)
    assert evaluation is not None and evaluation.gap <= limit
    return runtime.locate(scene, evaluation, limit)


def remainders() -> onnx.ModelProto:
    """ONNX Runtime computes the remainder of int64 in float64, which can't hold the keys."""
    graph = helper.make_graph(
        [
            helper.make_node("Neg", ["x"], ["n"], "minus"),
            helper.make_node("Mod", ["n", "modulus"], ["y"], "remainder", fmod=1),
        ],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.INT64, KEYS.shape)],
        [helper.make_tensor_value_info("y", TensorProto.INT64, KEYS.shape)],
        [numpy_helper.from_array(np.array(1000), "modulus")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def test_a_kernel_that_differs_from_the_standard_is_named(tmp_path: Path) -> None:
    found = located(scene_between(tmp_path, remainders(), remainders(), {"x": KEYS}))
    assert found.location.stage is Stage.RUNTIME
    assert found.location.nodes == ("remainder",)
    assert found.location.compared == 2
    assert found.location.evidence == (
        "evaluated by the standard, the graph is right in float64 and right in its own types; "
        "the runtime is not"
    )
    assert found.profile is not None
    assert [gap.node for gap in found.profile.nodes] == ["minus", "remainder"]


def narrowed() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["m"], "scale"),
        helper.make_node("Cast", ["m"], ["h"], "narrow", to=TensorProto.FLOAT16),
        helper.make_node("Cast", ["h"], ["y"], "widen", to=TensorProto.FLOAT),
    ]
    return graph_model(nodes, {"x": X}, {"w": normal(4, 6, seed=1)})


def wide() -> onnx.ModelProto:
    nodes = [helper.make_node("Mul", ["x", "w"], ["y"], "scale")]
    return graph_model(nodes, {"x": X}, {"w": normal(4, 6, seed=1)})


def test_a_cast_that_loses_digits_is_a_fault_of_the_precision(tmp_path: Path) -> None:
    location = located(scene_between(tmp_path, wide(), narrowed(), {"x": X})).location
    assert location.stage is Stage.PRECISION
    assert location.nodes == ("narrow",)
    assert location.suspects[0].ratio > 100
    assert location.evidence.endswith("right in float64 and wrong in its own types")


def chain(*operators: str) -> Graph:
    names = ["x", *(f"v{k}" for k in range(len(operators)))]
    nodes = [
        helper.make_node(operator, [names[k]], [names[k + 1]])
        for k, operator in enumerate(operators)
    ]
    return Graph.of_nodes(nodes, static=(), inputs=["x"], outputs=names[-1:])


def guilty(graph: Graph, gaps: dict[str, float], limit: float, **dtypes: str) -> list[int]:
    inner = InnerGaps(gaps=gaps, dtypes=dtypes)
    places = range(len(graph.nodes))
    return [place for place in places if runtime._is_guilty(graph, place, inner, limit)]


def test_a_node_is_guilty_where_it_adds_far_more_than_its_inputs_bring() -> None:
    graph = chain("Sin", "Exp", "Neg")
    assert guilty(graph, {"v0": 1e-7, "v1": 1e-3, "v2": 1.1e-3}, 1e-5) == [1]
    assert guilty(graph, {"v0": 1e-7, "v1": 1e-3, "v2": 9e-3}, 1e-5) == [1, 2]


def test_below_the_limit_of_the_answers_no_node_is_guilty_but_a_cast() -> None:
    assert guilty(chain("Sin", "Exp"), {"v0": 1e-7, "v1": 1e-3}, 1e-2) == []
    assert guilty(chain("Sin", "Cast"), {"v0": 1e-7, "v1": 1e-3}, 1e-2) == [1]
    assert guilty(chain("Sin", "Cast"), {"v0": 1e-7, "v1": 2e-7}, 1e-2) == []


def test_what_rounding_to_half_explains_is_no_fault() -> None:
    """Float16 explains 1e-3, and eight times that is a fault."""
    graph = chain("Sin")
    assert guilty(graph, {"v0": 7e-3}, 1e-5) == [0]
    assert guilty(graph, {"v0": 7e-3}, 1e-5, v0="float16") == []
    assert guilty(graph, {"v0": 9e-3}, 1e-5, v0="float16") == [0]


def test_a_value_that_was_not_read_makes_no_node_guilty() -> None:
    assert guilty(chain("Sin", "Exp"), {}, 1e-5) == []
