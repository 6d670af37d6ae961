"""Ways in which a fused file goes wrong: an attribute, a mask, a table, a bias or a weight of a fused operator."""

from random import Random

import numpy as np
import onnx

from bench.mutants.graph import Graph
from bench.mutants.mutation import Change, Mutation, at, register

FUSED: dict[str, Change] = {}
ATTENTION = ("Attention", "MultiHeadAttention", "GroupQueryAttention")
NORMS = (
    "SkipLayerNormalization",
    "EmbedLayerNormalization",
    "SkipSimplifiedLayerNormalization",
    "SimplifiedLayerNormalization",
    "LayerNormalization",
)


def kind(name: str, *codes: str):  # type: ignore[no-untyped-def]  # the register's own type
    """Register a kind of fault of fused files."""
    return register(FUSED, name, codes)


def _choose(nodes: list[onnx.NodeProto], rng: Random) -> onnx.NodeProto | None:
    if not nodes:
        return None
    return rng.choice(nodes)


def _set_one(
    graph: Graph, rng: Random, ops: tuple[str, ...], name: str, value: object
) -> Mutation | None:
    """Another attribute for one of these nodes."""
    node = _choose(graph.nodes(*ops), rng)
    if node is None or graph.attribute(node, name) == value:
        return None
    graph.set_attribute(node, name, value)
    return at(node, f"{name} of {node.op_type} is {value}")


@kind("scale", "attribute")
def scale(graph: Graph, rng: Random) -> Mutation | None:
    """The scores of an attention are multiplied by another number."""
    sizes = {"Attention": 8}
    node = _choose(graph.nodes(*ATTENTION), rng)
    if node is None:
        return None
    right = float(graph.attribute(node, "scale", sizes.get(node.op_type, 16) ** -0.5))
    graph.set_attribute(node, "scale", right * rng.choice([0.5, 1.25, 2.0, right]))
    return at(node, f"scale of {node.op_type}, right is {right:.3g}")


@kind("heads", "attribute")
def heads(graph: Graph, rng: Random) -> Mutation | None:
    """Another number of heads."""
    return _set_one(
        graph, rng, ("Attention", "MultiHeadAttention"), "num_heads", rng.choice([1, 2, 8])
    )


@kind("mask-dropped", "masking")
def mask_dropped(graph: Graph, rng: Random) -> Mutation | None:
    """An attention without its padding mask."""
    nodes = [n for n in graph.nodes("Attention") if len(n.input) > 3 and n.input[3]]
    node = _choose(nodes, rng)
    if node is None:
        return None
    node.input[3] = ""
    return at(node, "the mask of Attention is not read")


@kind("not-causal", "masking", "attribute")
def not_causal(graph: Graph, rng: Random) -> Mutation | None:
    """A decoder that sees what is to come."""
    return _set_one(graph, rng, ("MultiHeadAttention",), "unidirectional", 0)


@kind("pairs", "attribute")
def pairs(graph: Graph, rng: Random) -> Mutation | None:
    """Neighbours are turned instead of halves, in one attention or for its queries and keys."""
    node = _choose(graph.nodes("GroupQueryAttention"), rng)
    if node is not None:
        graph.set_attribute(node, "rotary_interleaved", 1)
        return at(node, "pairs of neighbours instead of halves")
    return _set_one(graph, rng, ("RotaryEmbedding",), "interleaved", 1)


@kind("not-turned", "attribute", "position")
def not_turned(graph: Graph, rng: Random) -> Mutation | None:
    """Positions are left out."""
    return _set_one(graph, rng, ("GroupQueryAttention",), "do_rotary", 0)


@kind("window", "attribute", "masking")
def window(graph: Graph, rng: Random) -> Mutation | None:
    """A window that is off by one, missing or there for nothing."""
    node = _choose(graph.nodes("GroupQueryAttention"), rng)
    if node is None:
        return None
    right = int(graph.attribute(node, "local_window_size", -1))
    wrong = rng.choice([right - 1, right + 1, -1])
    if right < 0:
        wrong = rng.choice([3, 6])
    graph.set_attribute(node, "local_window_size", wrong)
    return at(node, f"window of {wrong} instead of {right}")


@kind("softcap", "attribute", "clipping")
def softcap(graph: Graph, rng: Random) -> Mutation | None:
    """Scores that are capped otherwise, or not."""
    node = _choose(graph.nodes("GroupQueryAttention"), rng)
    if node is None:
        return None
    right = float(graph.attribute(node, "softcap", 0.0))
    wrong = rng.choice([0.0, 2 * right])
    if not right:
        wrong = rng.choice([1.0, 2.0])
    graph.set_attribute(node, "softcap", wrong)
    return at(node, f"softcap of {wrong} instead of {right}")


@kind("table-base", "weights", "baked-value", "position")
def table_base(graph: Graph, rng: Random) -> Mutation | None:
    """Sines and cosines of another base."""
    if "cos_cache" not in graph.constants:
        return None
    places, half = graph.constants["cos_cache"].shape
    base = rng.choice([50.0, 1000.0, 10000.0])
    turned = np.arange(places)[:, None] * base ** (-np.arange(half) / half)
    graph.overwrite("cos_cache", np.cos(turned).astype(np.float32))
    graph.overwrite("sin_cache", np.sin(turned).astype(np.float32))
    readers = graph.consumers("cos_cache")
    return at(readers, f"tables of base {base:g}")


@kind("table-shifted", "weights", "baked-value", "position")
def table_shifted(graph: Graph, rng: Random) -> Mutation | None:
    """The keys or the queries alone take the table one place later."""
    node = _choose(graph.nodes("RotaryEmbedding"), rng)
    if node is None:
        return None
    for place in (2, 3):
        graph.write(node, place, np.roll(graph.constants[node.input[place]], -1, axis=0))
    return at(node, "tables begin one place later")


@kind("epsilon", "attribute")
def epsilon(graph: Graph, rng: Random) -> Mutation | None:
    """Another epsilon inside a norm."""
    node = _choose(graph.nodes(*NORMS), rng)
    if node is None:
        return None
    graph.set_attribute(node, "epsilon", rng.choice([1e-2, 1e-3, 3e-3]))
    return at(node, f"epsilon of {node.op_type}")


_BIASES = {
    "Attention": (2,),
    "BiasGelu": (1,),
    "SkipLayerNormalization": (3, 4),
    "EmbedLayerNormalization": (6,),
    "LayerNormalization": (2,),
    "Conv": (2,),
    "FusedConv": (2,),
}


@kind("bias-lost", "weights")
def bias_lost(graph: Graph, rng: Random) -> Mutation | None:
    """A bias inside a fused operator is zero."""
    options = [
        (node, place)
        for node in graph.nodes(*_BIASES)
        for place in _BIASES[node.op_type]
        if graph.constant(node, place) is not None
    ]
    if not options:
        return None
    node, place = rng.choice(options)
    graph.write(node, place, np.zeros_like(graph.constants[node.input[place]]))
    return at(node, f"bias of {node.op_type} is lost")


@kind("parts-exchanged", "weights", "weight-layout", "input-order")
def parts_exchanged(graph: Graph, rng: Random) -> Mutation | None:
    """Queries, keys and values of a packed weight in another order."""
    node = _choose(graph.nodes("Attention"), rng)
    if node is None:
        return None
    order = rng.choice([(1, 0, 2), (0, 2, 1), (2, 1, 0)])
    for place in (1, 2):
        parts = np.split(graph.constants[node.input[place]], 3, axis=-1)
        graph.write(node, place, np.concatenate([parts[k] for k in order], axis=-1))
    return at(node, f"parts of the packed weight in the order {order}")


@kind("weights-exchanged", "weights", "weight-layout", "input-order")
def weights_exchanged(graph: Graph, rng: Random) -> Mutation | None:
    """The weights of two nodes of one kind in each other's place."""
    held = [
        (n, p, w)
        for n, p, w in graph.weights("MatMul", "FusedMatMul", "Attention", "BiasGelu", *NORMS)
    ]
    rng.shuffle(held)
    for one, place, left in held:
        for other, other_place, right in held:
            same = (one.op_type, place, left.shape) == (other.op_type, other_place, right.shape)
            if same and one.name != other.name and not np.array_equal(left, right):
                graph.write(one, place, right)
                graph.write(other, other_place, left)
                return at([one, other], f"constants of two {one.op_type} exchanged")
    return None


@kind("keys-as-values", "input-order", "weights", "axis-order")
def keys_as_values(graph: Graph, rng: Random) -> Mutation | None:
    """An attention reads its keys where its values belong, and the other way round."""
    node = _choose(graph.nodes("MultiHeadAttention", "GroupQueryAttention"), rng)
    if node is None or not node.input[2]:
        return None
    node.input[1], node.input[2] = node.input[2], node.input[1]
    return at(node, "keys and values exchanged")


@kind("skip-lost", "missing-op", "input-order", "axis-order")
def skip_lost(graph: Graph, rng: Random) -> Mutation | None:
    """A norm that adds another value than the residual."""
    nodes = graph.nodes("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
    node = _choose(nodes, rng)
    if node is None:
        return None
    lost = rng.choice([0, 1])
    node.input[lost] = node.input[1 - lost]
    return at(node, "one of the two values that it adds is lost")


@kind("alpha", "attribute")
def alpha(graph: Graph, rng: Random) -> Mutation | None:
    """Another factor of a fused product or gate."""
    node = _choose(graph.nodes("FusedMatMul", "QuickGelu"), rng)
    if node is None:
        return None
    right = float(graph.attribute(node, "alpha", 1.0))
    graph.set_attribute(node, "alpha", right * rng.choice([0.5, 1.702, 2.0]))
    return at(node, f"alpha of {node.op_type}, right is {right:g}")


@kind("activation-lost", "attribute", "missing-op")
def activation_lost(graph: Graph, rng: Random) -> Mutation | None:
    """A convolution without the activation that was fused into it."""
    nodes = [n for n in graph.nodes("Conv", "FusedConv") if graph.attribute(n, "activation")]
    node = _choose(nodes, rng)
    if node is None:
        return None
    graph.set_attribute(node, "activation", None)
    lacking = [
        node,
        *graph.consumers(node.output[0]),
    ]  # of what is absent, the nearest that is there
    return at(lacking, f"the activation of {node.op_type} is lost")


@kind("filter-scaled", "weights")
def filter_scaled(graph: Graph, rng: Random) -> Mutation | None:
    """One filter of a fused convolution, or one column of a weight, is three times what it was."""
    held = [(n, p, w) for n, p, w in graph.weights("Conv", "FusedConv", "Attention") if p == 1]
    if not held:
        return None
    node, place, weight = rng.choice(held)
    changed = weight.copy()
    changed[rng.randrange(len(changed))] *= 3
    graph.write(node, place, changed)
    return at(node, f"a part of the weight of {node.op_type} times 3")
