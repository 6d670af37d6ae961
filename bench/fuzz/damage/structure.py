"""Graphs without what a graph needs, versions that nobody knows, functions that call themselves."""

import onnx
from onnx import helper

from bench.fuzz.damage import NotApplicable, Target, kind

LOCAL = "local.functions"


@kind("graph-missing")
def graph_missing(target: Target) -> None:
    """No graph, or one without nodes."""
    if target.random.random() < 0.5:
        target.model.ClearField("graph")
    else:
        del target.graph.node[:]


@kind("outputs-missing")
def outputs_missing(target: Target) -> None:
    """No outputs, or one fewer."""
    del target.graph.output[0 if target.random.random() < 0.5 else -1 :]


@kind("inputs-missing")
def inputs_missing(target: Target) -> None:
    """No inputs, or one fewer."""
    del target.graph.input[0 if target.random.random() < 0.5 else -1 :]


@kind("operator-unknown")
def operator_unknown(target: Target) -> None:
    """An operator that nobody knows, or none."""
    target.node().op_type = target.random.choice(["", "FooBar", "relu", "Gemm2", "\x1b[2J", "ATen"])


@kind("operator-other")
def operator_other(target: Target) -> None:
    """Another operator of the standard in its place."""
    target.node().op_type = target.random.choice(
        [
            "Relu",
            "Add",
            "MatMul",
            "Conv",
            "Loop",
            "If",
            "LSTM",
            "Reshape",
            "NonZero",
            "Split",
            "Resize",
            "Einsum",
            "TopK",
            "Identity",
        ]
    )


@kind("domain-unknown")
def domain_unknown(target: Target) -> None:
    """An operator set that nobody has, or that is not imported."""
    target.node().domain = target.random.choice(
        ["acme", "com.microsoft", "ai.onnx.training", "ai.onnx", "\n", "a" * 3000]
    )


@kind("opset-odd")
def opset_odd(target: Target) -> None:
    """No opset, a negative one, one of the future, two."""
    choice = target.random.choice(["none", 0, -1, 1, 5, 7, 11, 13, 25, 99, 2**40, "two"])
    imports = target.model.opset_import
    if choice == "none":
        del imports[:]
    elif choice == "two":
        imports.append(helper.make_opsetid("", 9))
    else:
        imports[0].version = int(choice)


@kind("ir-version-odd")
def ir_version_odd(target: Target) -> None:
    """An IR version that is missing, old, of the future or negative."""
    target.model.ir_version = target.random.choice([0, 1, 2, 3, 4, 99, -1, 2**60])


@kind("subgraph-outputs-missing")
def subgraph_outputs_missing(target: Target) -> None:
    """A branch or a body with an output too few."""
    graph = target.one(target.graphs())
    if not graph.output:
        raise NotApplicable
    del graph.output[target.random.randrange(len(graph.output)) :]


@kind("subgraph-empty")
def subgraph_empty(target: Target) -> None:
    """A branch or a body without nodes, without inputs or gone."""
    graph = target.one(target.graphs())
    choice = target.random.choice(["node", "input", "all", "missing"])
    if choice == "all":
        graph.Clear()
    elif choice == "missing":
        for node in target.graph.node:
            kept = [a for a in node.attribute if a.type != onnx.AttributeProto.GRAPH]
            del node.attribute[:]
            node.attribute.extend(kept)
    else:
        del getattr(graph, choice)[:]


@kind("subgraph-deep")
def subgraph_deep(target: Target) -> None:
    """An If inside an If inside an If."""
    graph = helper.make_graph(
        [helper.make_node("Identity", [target.graph.input[0].name], ["deepest"])],
        "deep",
        [],
        [_value("deepest")],
    )
    for level in range(target.random.choice([3, 12, 28])):
        inner = helper.make_node(
            "If",
            ["deep_condition"],
            [f"deep_{level}"],
            then_branch=graph,
            else_branch=graph if level < 2 else _small(target, level),
        )
        graph = helper.make_graph([inner], f"level_{level}", [], [_value(f"deep_{level}")])
    target.graph.initializer.append(
        helper.make_tensor("deep_condition", onnx.TensorProto.BOOL, [], [True])
    )
    target.graph.node.append(
        helper.make_node(
            "If",
            ["deep_condition"],
            ["deep_out"],
            then_branch=graph,
            else_branch=_small(target, -1),
        )
    )
    target.graph.output.append(_value("deep_out"))


def _small(target: Target, level: int) -> onnx.GraphProto:
    return helper.make_graph(
        [helper.make_node("Identity", [target.graph.input[0].name], [f"small_{level}"])],
        "small",
        [],
        [_value(f"small_{level}")],
    )


def _value(name: str) -> onnx.ValueInfoProto:
    return onnx.ValueInfoProto(name=name)


@kind("function-recursion")
def function_recursion(target: Target) -> None:
    """A function that calls itself, alone or by way of another."""
    opset = [helper.make_opsetid("", 18), helper.make_opsetid(LOCAL, 1)]
    names = target.random.choice([["A", "A"], ["A", "B"]])
    calls = dict(zip(names, reversed(names), strict=True))
    for name, called in calls.items():
        target.model.functions.append(
            helper.make_function(
                LOCAL,
                name,
                ["a"],
                ["b"],
                [helper.make_node(called, ["a"], ["b"], domain=LOCAL)],
                opset,
            )
        )
    if all(entry.domain != LOCAL for entry in target.model.opset_import):
        target.model.opset_import.append(helper.make_opsetid(LOCAL, 1))
    node = target.one([node for node in target.graph.node if len(node.input) and len(node.output)])
    target.graph.node.append(helper.make_node("A", [node.output[0]], ["called"], domain=LOCAL))
    if target.random.random() < 0.7:
        target.graph.output.append(_value("called"))


@kind("function-odd")
def function_odd(target: Target) -> None:
    """A function twice, without outputs, without nodes, without its opset, with another number of inputs, or gone."""
    function = target.one(list(target.model.functions))
    choice = target.random.choice(["twice", "output", "node", "opset_import", "input", "gone"])
    if choice == "twice":
        target.model.functions.add().CopyFrom(function)
    elif choice == "gone":
        target.model.functions.remove(function)
    else:
        del getattr(function, choice)[:]


@kind("node-dropped")
def node_dropped(target: Target) -> None:
    """A node is gone; nobody makes its value."""
    del target.graph.node[target.random.randrange(len(target.graph.node))]


@kind("training-info")
def training_info(target: Target) -> None:
    """A part for training that is not sound."""
    info = target.model.training_info.add()
    info.algorithm.name = "training"
    info.algorithm.node.add().op_type = "Nothing"
