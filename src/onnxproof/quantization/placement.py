"""Which nodes of a float graph are quantized: a few arrangements, tried by what they cost and save."""

from collections.abc import Iterator
from dataclasses import replace

import onnx

from onnxproof.quantization.float_graph import Index
from onnxproof.quantization.insert_qdq import HEAVY, PASSING, Plan, choose

_CHAIN = (
    "Relu",
    "Clip",
    "LeakyRelu",
    "MaxPool",
    "AveragePool",
    "GlobalAveragePool",
    "Concat",
    "Flatten",
    "Reshape",
)
"""What stands between convolutions and stays in integers without a rounding of its own."""


def arrangements(
    model: onnx.ModelProto, base: Plan, exclude: frozenset[str] = frozenset()
) -> Iterator[tuple[str, Plan]]:
    """Plans by name, the most promising first; one that equals an earlier one is left out."""
    seen: set[tuple[tuple[str, ...], frozenset[str]]] = set()
    for name, op_types, products, wide_outputs in (
        ("weights", (*HEAVY, *_CHAIN), False, True),
        ("chains", (*HEAVY, *_CHAIN, "Add"), False, True),
        ("products", (*HEAVY, *PASSING), True, True),
        ("everything", (*HEAVY, *PASSING), True, False),
    ):
        plan = _make_plan(
            model, base, op_types, products=products, wide_outputs=wide_outputs, exclude=exclude
        )
        if plan.nodes and (plan.nodes, plan.float_outputs) not in seen:
            seen.add((plan.nodes, plan.float_outputs))
            yield name, plan


def _make_plan(
    model: onnx.ModelProto,
    base: Plan,
    op_types: tuple[str, ...],
    *,
    products: bool,
    wide_outputs: bool,
    exclude: frozenset[str],
) -> Plan:
    """Matrix products give float where their integer kernels can: what isn't rounded costs nothing. The graph's own outputs always do."""
    index = Index(model)
    by_name = {node.name: node for node in model.graph.node}
    nodes = [by_name[name] for name in choose(model, op_types) if name not in exclude]
    if not products:
        nodes = [
            node for node in nodes if node.op_type != "MatMul" or index.weight_of(node) is not None
        ]
    names = tuple(node.name for node in nodes)
    floats = set(index.outputs)
    if wide_outputs:
        floats |= {node.output[0] for node in nodes if _gives_float(index, node, set(names))}
    return replace(base, nodes=names, float_outputs=frozenset(floats & set(index.producers)))


def _gives_float(index: Index, node: onnx.NodeProto, chosen: set[str]) -> bool:
    """A MatMul always, a Gemm where no quantized node reads it."""
    if node.op_type == "MatMul":
        return True
    if node.op_type != "Gemm":
        return False
    return not any(consumer.name in chosen for consumer in index.consumers[node.output[0]])
