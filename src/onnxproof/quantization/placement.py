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
        plan = _arranged(
            model, base, op_types, products=products, wide_outputs=wide_outputs, exclude=exclude
        )
        if plan.nodes and (plan.nodes, plan.float_outputs) not in seen:
            seen.add((plan.nodes, plan.float_outputs))
            yield name, plan


def _arranged(
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
    nodes = [name for name in choose(model, op_types) if name not in exclude]
    if not products:
        nodes = [
            name
            for name in nodes
            if by_name[name].op_type != "MatMul" or index.weight_of(by_name[name]) is not None
        ]
    floats = set(index.outputs)
    if wide_outputs:
        chosen = set(nodes)
        floats |= {
            by_name[n].output[0]
            for n in nodes
            if by_name[n].op_type in ("MatMul", "Gemm")
            and not any(reader.name in chosen for reader in index.readers[by_name[n].output[0]])
        }
        floats |= {by_name[n].output[0] for n in nodes if by_name[n].op_type == "MatMul"}
    return replace(base, nodes=tuple(nodes), float_outputs=frozenset(floats & (set(index.makers))))
