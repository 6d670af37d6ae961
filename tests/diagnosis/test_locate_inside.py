"""Faults inside branches, loops and local functions: the inner node is named, by its path."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper, parser
from torch import Tensor, nn

from onnxproof import api
from onnxproof.results import Location, Stage, Verdict


class Branches(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(x)
        y = torch.sin(y) * 1.5 if bool(x.sum() > 0) else torch.cos(y) - 0.5
        return y + x


class Rounds(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(x)
        for _ in range(3):
            y = torch.sin(y) * 1.5 + x
        return y * 2


class Twice(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = torch.sin(torch.tanh(x)) * 1.5
        return torch.sin(torch.tanh(y * 0.7)) * 1.5 - x


class Running(nn.Module):
    """A leaky sum over the columns, one after the other."""

    def forward(self, x: Tensor) -> Tensor:
        state, seen = torch.zeros_like(x[:, 0]), []
        for column in range(x.shape[1]):
            state = torch.sin(state) * 1.5 + x[:, column]
            seen.append(state)
        return torch.stack(seen, 1) * 2


def constant(name: str, value: object, dtype: type = np.float32) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(value, dtype), name)


def port(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 6])


def branches(factor: float, less: float = 0.5) -> onnx.ModelProto:
    then = helper.make_graph(
        [
            helper.make_node("Sin", ["y"], ["s"], "sine"),
            helper.make_node("Mul", ["s", "factor"], ["t"], "scale"),
        ],
        "then",
        [],
        [port("t")],
        [constant("factor", factor)],
    )
    other = helper.make_graph(
        [
            helper.make_node("Cos", ["y"], ["c"], "cosine"),
            helper.make_node("Sub", ["c", "less"], ["e"], "minus"),
        ],
        "else",
        [],
        [port("e")],
        [constant("less", less)],
    )
    nodes = [
        helper.make_node("Tanh", ["x"], ["y"], "tanh"),
        helper.make_node("ReduceSum", ["x"], ["sum"], "sum", keepdims=0),
        helper.make_node("Greater", ["sum", "zero"], ["positive"], "greater"),
        helper.make_node(
            "If", ["positive"], ["chosen"], "choice", then_branch=then, else_branch=other
        ),
        helper.make_node("Add", ["chosen", "x"], ["out"], "add"),
    ]
    return model(nodes, [constant("zero", 0.0)])


def rounds(factor: float) -> onnx.ModelProto:
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["going"], ["still"], "going_on"),
            helper.make_node("Sin", ["old"], ["s"], "sine"),
            helper.make_node("Mul", ["s", "factor"], ["m"], "scale"),
            helper.make_node("Add", ["m", "x"], ["new"], "add_x"),
        ],
        "body",
        [
            helper.make_tensor_value_info("turn", TensorProto.INT64, []),
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            port("old"),
        ],
        [helper.make_tensor_value_info("still", TensorProto.BOOL, []), port("new")],
        [constant("factor", factor)],
    )
    nodes = [
        helper.make_node("Tanh", ["x"], ["y"], "tanh"),
        helper.make_node("Loop", ["times", "yes", "y"], ["looped"], "loop", body=body),
        helper.make_node("Mul", ["looped", "two"], ["out"], "double"),
    ]
    return model(
        nodes,
        [constant("times", 3, np.int64), constant("yes", True, np.bool_), constant("two", 2.0)],
    )


def running(factor: float) -> onnx.ModelProto:
    def column(name: str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch"])

    body = helper.make_graph(
        [
            helper.make_node("Sin", ["old"], ["s"], "sine"),
            helper.make_node("Mul", ["s", "factor"], ["m"], "scale"),
            helper.make_node("Add", ["m", "given"], ["new"], "add_x"),
            helper.make_node("Identity", ["new"], ["seen"], "show"),
        ],
        "body",
        [column("old"), column("given")],
        [column("new"), column("seen")],
        [constant("factor", factor)],
    )
    nodes = [
        helper.make_node("Shape", ["x"], ["rows"], "rows", start=0, end=1),
        helper.make_node("Expand", ["zero", "rows"], ["start"], "start"),
        helper.make_node(
            "Scan",
            ["start", "x"],
            ["end", "all"],
            "scan",
            body=body,
            num_scan_inputs=1,
            scan_input_axes=[1],
            scan_output_axes=[1],
        ),
        helper.make_node("Mul", ["all", "two"], ["out"], "double"),
    ]
    return model(nodes, [constant("zero", [0.0]), constant("two", 2.0)])


def twice(factor: float) -> onnx.ModelProto:
    function = parser.parse_function(f"""
        <opset_import: ["" : 21], domain: "own">
        wave (a) => (b) {{ t = Tanh(a)  s = Sin(t)  f = Constant<value = float {{{factor}}}>()  b = Mul(s, f) }}""")
    nodes = [
        helper.make_node("wave", ["x"], ["y"], "first", domain="own"),
        helper.make_node("Mul", ["y", "seven"], ["z"], "shrink"),
        helper.make_node("wave", ["z"], ["w"], "second", domain="own"),
        helper.make_node("Sub", ["w", "x"], ["out"], "minus_x"),
    ]
    made = model(nodes, [constant("seven", 0.7)])
    made.opset_import.append(helper.make_opsetid("own", 1))
    made.functions.append(function)
    return made


def model(nodes: list[onnx.NodeProto], weights: list[onnx.TensorProto]) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "main", [port("x")], [port("out")], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


CASES: dict[str, tuple[type[nn.Module], Callable[[float], onnx.ModelProto], str]] = {
    "branch": (Branches, branches, "choice/then_branch/scale"),
    "loop": (Rounds, rounds, "loop/body/scale"),
    "scan": (Running, running, "scan/body/scale"),
    "function": (Twice, twice, "first/wave/b"),
}


def located(module: nn.Module, made: onnx.ModelProto, folder: Path) -> Location | None:
    onnx.checker.check_model(made)
    path = folder / "model.onnx"
    onnx.save(made, path)
    example = torch.linspace(-1, 2, 18).reshape(3, 6)
    return api.verify(
        module.eval(), path, (example,), dynamic_shapes=({0: "batch"},), budget_s=60
    ).location


@pytest.mark.parametrize("name", CASES)
def test_the_inner_node_is_named(name: str, tmp_path: Path) -> None:
    module, build, guilty = CASES[name]
    where = located(module(), build(1.7), tmp_path)
    assert where is not None and where.stage is Stage.EXPORT
    assert where.nodes[0] == guilty, where
    assert where.suspects[0].why == "putting the true value in its place mends what follows"
    assert where.suspects[0].op_type == "Mul" and where.nodes[1] == guilty.split("/")[0], (
        "the node around it comes next"
    )


@pytest.mark.parametrize("name", CASES)
def test_the_right_twin_is_not_blamed(name: str, tmp_path: Path) -> None:
    module, build, _ = CASES[name]
    assert located(module(), build(1.5), tmp_path) is None


def test_a_branch_that_was_not_taken_is_said_to_be_skipped(tmp_path: Path) -> None:
    where = located(Branches(), branches(1.7), tmp_path)
    assert where is not None
    assert (
        "choice/else_branch: not run in this case" in where.skipped
        or "choice/then_branch: not run in this case" in where.skipped
    )


@pytest.mark.parametrize("name", CASES)
def test_between_two_files_the_inner_node_is_named_too(name: str, tmp_path: Path) -> None:
    _, build, guilty = CASES[name]
    onnx.save(build(1.5), tmp_path / "right.onnx")
    onnx.save(build(1.7), tmp_path / "wrong.onnx")
    proof = api.diff(tmp_path / "right.onnx", tmp_path / "wrong.onnx", budget_s=60)
    assert proof.verdict is Verdict.DIVERGED
    assert proof.location is not None and proof.location.stage is Stage.GRAPH
    assert proof.location.nodes[0] == guilty, proof.location


def test_where_the_evaluator_is_too_slow_the_runtimes_own_values_are_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "onnxproof.diagnosis.locate.evaluation.evaluation_limit_s", lambda scene: 1e-9
    )
    where = located(Twice(), twice(1.7), tmp_path)
    assert where is not None and where.nodes[0] == "first", where
    assert (
        "as the runtime computes them, since the standard's evaluator could not" in where.evidence
    )
