"""Nodes that are missing, doubled, or replaced by a relative."""

from random import Random

import numpy as np
import onnx

from bench.mutants.graph import Graph
from bench.mutants.mutation import Mutation, at, kind

UNARY = [
    "Relu",
    "LeakyRelu",
    "Sigmoid",
    "Tanh",
    "Gelu",
    "Erf",
    "Softplus",
    "Elu",
    "Selu",
    "HardSwish",
    "HardSigmoid",
    "Sqrt",
    "Exp",
    "Log",
    "Abs",
    "Neg",
    "Sin",
    "Cos",
    "Reciprocal",
    "Softmax",
    "PRelu",
    "Swish",
    "Mish",
    "Softsign",
]
NORMS = ("BatchNormalization", "LayerNormalization", "InstanceNormalization", "GroupNormalization")


def _neighbours(graph: Graph, node: onnx.NodeProto, source: str) -> list[onnx.NodeProto]:
    """Who reads what a missing node made, and who made what they read now: the nearest nodes that are left."""
    around = graph.consumers(node.output[0])
    producer = graph.producer(source)
    if producer is not None:
        around.append(producer)
    return [other for other in around if other.name != node.name]


def _missing(graph: Graph, node: onnx.NodeProto, source: str, *codes: str) -> Mutation | None:
    """Take a node out and let its readers read one of its inputs."""
    around = _neighbours(graph, node, source)
    op_type, name = node.op_type, node.name
    if not graph.bypass(node, source):
        return None
    graph.drop_unused()
    left = {other.name for other in graph.proto.node}
    around = [other for other in around if other.name in left]
    return at(around, f"{op_type} {name} is missing", *codes) if around else None


@kind("unary-missing", "missing-op")
def unary_missing(graph: Graph, rng: Random) -> Mutation | None:
    """An activation or function that was left out."""
    nodes = [node for node in graph.nodes(*UNARY) if not graph.is_output(node.output[0])]
    if not nodes:
        return None
    node = rng.choice(nodes)
    return _missing(graph, node, node.input[0])


@kind("residual-missing", "missing-op")
def residual_missing(graph: Graph, rng: Random) -> Mutation | None:
    """An Add of two computed values of which one is left."""
    nodes = []
    for node in graph.nodes("Add"):
        shapes = [graph.shape(name) for name in node.input]
        computed = all(name not in graph.constants for name in node.input)
        if computed and shapes[0] == shapes[1] and graph.is_float(node.output[0]):
            nodes.append(node)
    nodes = [node for node in nodes if not graph.is_output(node.output[0])]
    if not nodes:
        return None
    node = rng.choice(nodes)
    return _missing(graph, node, node.input[rng.randrange(2)])


@kind("norm-missing", "missing-op")
def norm_missing(graph: Graph, rng: Random) -> Mutation | None:
    """A normalisation that was left out."""
    nodes = [node for node in graph.nodes(*NORMS) if not graph.is_output(node.output[0])]
    nodes = [node for node in nodes if not any(graph.consumers(name) for name in node.output[1:])]
    if not nodes:
        return None
    node = rng.choice(nodes)
    return _missing(graph, node, node.input[0])


@kind("constant-op-missing", "missing-op")
def constant_op_missing(graph: Graph, rng: Random) -> Mutation | None:
    """An Add, Mul or Clip with a constant that was left out."""
    nodes = []
    for node in graph.nodes("Add", "Mul", "Clip", "Sub", "Div"):
        rest = [name in graph.constants for name in node.input[1:]]
        same = graph.shape(node.input[0]) == graph.shape(node.output[0])
        if all(rest) and same and graph.is_float(node.output[0]):
            nodes.append(node)
    nodes = [node for node in nodes if not graph.is_output(node.output[0])]
    if not nodes:
        return None
    node = rng.choice(nodes)
    codes = {"missing-op"}
    if node.op_type == "Clip":
        codes.add("clipping")
    elif np.size(graph.constants[node.input[1]]) > 1:
        codes.add("weights")
    return _missing(graph, node, node.input[0], *sorted(codes))


@kind("unary-doubled", "attribute", "mutation")
def unary_doubled(graph: Graph, rng: Random) -> Mutation | None:
    """A function that is applied twice."""
    names = (
        "Sigmoid",
        "Tanh",
        "Gelu",
        "Softmax",
        "Elu",
        "Softplus",
        "LeakyRelu",
        "HardSwish",
        "Sqrt",
    )
    nodes = graph.nodes(*names)
    if not nodes:
        return None
    node = rng.choice(nodes)
    again = graph.insert_after(node.output[0], node.op_type)
    again.attribute.extend(node.attribute)
    return at([again, node], f"{node.op_type} twice")


@kind("affine-doubled", "attribute", "weights", "mutation")
def affine_doubled(graph: Graph, rng: Random) -> Mutation | None:
    """A bias that is added twice, a gain that is applied twice."""
    nodes = []
    for node in graph.nodes("Add", "Mul"):
        value = graph.constant(node, 1)
        same = graph.shape(node.input[0]) == graph.shape(node.output[0])
        if value is not None and same and graph.is_float(node.output[0]):
            nodes.append(node)
    if not nodes:
        return None
    node = rng.choice(nodes)
    again = graph.insert_after(node.output[0], node.op_type, extra=(node.input[1],))
    return at([again, node], f"{node.op_type} with a constant twice")


RELATIVES = {
    "Relu": ("LeakyRelu", "Elu", "Softplus", "Gelu"),
    "LeakyRelu": ("Relu", "Elu"),
    "Sigmoid": ("HardSigmoid", "Tanh"),
    "Tanh": ("Sigmoid", "Softsign"),
    "HardSwish": ("Relu", "Gelu"),
    "Gelu": ("Relu", "HardSwish"),
    "Elu": ("Selu", "Relu"),
    "Softplus": ("Relu", "Elu"),
    "Sin": ("Cos",),
    "Cos": ("Sin",),
    "Max": ("Min",),
    "Min": ("Max",),
    "Add": ("Sub", "Mul"),
    "Sub": ("Add",),
    "Exp": ("Softplus",),
}


@kind("operator-replaced", "attribute")
def operator_replaced(graph: Graph, rng: Random) -> Mutation | None:
    """A relative of the operator: another activation, Sub for Add, Min for Max."""
    nodes = [node for node in graph.nodes(*RELATIVES) if graph.is_float(node.output[0])]
    opset = max(item.version for item in graph.model.opset_import if item.domain == "")
    if not nodes:
        return None
    node = rng.choice(nodes)
    old = node.op_type
    new = rng.choice([name for name in RELATIVES[old] if name != "Gelu" or opset >= 20] or [old])
    node.op_type = new
    del node.attribute[:]
    return at(node, f"{new} for {old}")


@kind("reduction-replaced", "attribute")
def reduction_replaced(graph: Graph, rng: Random) -> Mutation | None:
    """A maximum or a sum for a mean."""
    names = ["ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin"]
    nodes = [node for node in graph.nodes(*names) if graph.is_float(node.output[0])]
    nodes += graph.nodes("GlobalAveragePool")
    if not nodes:
        return None
    node = rng.choice(nodes)
    old = node.op_type
    new = rng.choice([name for name in names if name != old])
    if old == "GlobalAveragePool":
        new = "GlobalMaxPool"
    node.op_type = new
    return at(node, f"{new} for {old}")


@kind("pool-replaced", "attribute")
def pool_replaced(graph: Graph, rng: Random) -> Mutation | None:
    """An average for a maximum."""
    nodes = [node for node in graph.nodes("MaxPool", "AveragePool") if len(node.output) == 1]
    if not nodes:
        return None
    node = rng.choice(nodes)
    old = node.op_type
    node.op_type = "AveragePool" if old == "MaxPool" else "MaxPool"
    for name in ("storage_order", "count_include_pad"):
        graph.set_attribute(node, name, None)
    return at(node, f"{node.op_type} for {old}")


COMPARISONS = {
    "Greater": "GreaterOrEqual",
    "GreaterOrEqual": "Greater",
    "Less": "LessOrEqual",
    "LessOrEqual": "Less",
}


@kind("comparison-boundary", "comparison", "masking")
def comparison_boundary(graph: Graph, rng: Random) -> Mutation | None:
    """> for >=, < for <=."""
    nodes = graph.nodes(*COMPARISONS)
    if not nodes:
        return None
    node = rng.choice(nodes)
    old = node.op_type
    node.op_type = COMPARISONS[old]
    return at(node, f"{node.op_type} for {old}")


@kind("rounding-rule", "rounding")
def rounding_rule(graph: Graph, rng: Random) -> Mutation | None:
    """Floor, Ceil or Round in each other's place."""
    names = ["Floor", "Ceil", "Round"]
    nodes = graph.nodes(*names)
    if not nodes:
        return None
    node = rng.choice(nodes)
    old = node.op_type
    node.op_type = rng.choice([name for name in names if name != old])
    return at(node, f"{node.op_type} for {old}")


@kind("scatter-reduction", "scatter")
def scatter_reduction(graph: Graph, rng: Random) -> Mutation | None:
    """Writes to one place that overwrite instead of add, or add instead of overwrite."""
    nodes = graph.nodes("ScatterElements", "ScatterND")
    if not nodes:
        return None
    node = rng.choice(nodes)
    old = graph.attribute(node, "reduction", "none")
    new = rng.choice([item for item in ("none", "add", "max") if item != old])
    graph.set_attribute(node, "reduction", new)
    return at(node, f"reduction {new} for {old}")


@kind("where-exchanged", "masking", "axis-order")
def where_exchanged(graph: Graph, rng: Random) -> Mutation | None:
    """The two values of a Where in each other's place."""
    nodes = [node for node in graph.nodes("Where") if graph.is_float(node.output[0])]
    nodes = [node for node in nodes if node.input[1] != node.input[2]]
    if not nodes:
        return None
    node = rng.choice(nodes)
    node.input[1], node.input[2] = node.input[2], node.input[1]
    return at(node, "values of Where exchanged")


@kind("factor-inserted", "attribute")
def scaled_value(graph: Graph, rng: Random) -> Mutation | None:
    """A computed value that is scaled by a constant nobody asked for."""
    values = [node.output[0] for node in graph.nodes("MatMul", "Conv", "Gemm", "Add", "Mul")]
    values = [name for name in values if graph.is_float(name)]
    if not values:
        return None
    value = rng.choice(values)
    factor = rng.choice([0.5, 1.01, 2.0])
    producer = graph.producer(value)
    name = graph.add_constant(np.array(factor, np.float32), "factor")
    node = graph.insert_after(value, "Mul", extra=(name,))
    return at([node] + ([producer] if producer is not None else []), f"{value} times {factor}")
