"""An attribute of a node has another value."""

from collections.abc import Callable
from random import Random
from typing import Any

import onnx

from bench.mutants.graph import Graph
from bench.mutants.mutation import Mutation, at, kind

NORMS = ("BatchNormalization", "LayerNormalization", "InstanceNormalization", "GroupNormalization")
FUSED_NORMS = ("SkipLayerNormalization", "EmbedLayerNormalization", "RMSNormalization")


def _other(
    graph: Graph,
    rng: Random,
    op_types: tuple[str, ...],
    name: str,
    new: Callable[[onnx.NodeProto], Any],
) -> Mutation | None:
    """Give one node of these types the value that `new` says; None from it means that the node does not fit."""
    nodes = graph.nodes(*op_types)
    rng.shuffle(nodes)
    for node in nodes:
        value = new(node)
        if value is not None:
            graph.set_attribute(node, name, value)
            return at(node, f"{name} {value} in {node.op_type}")
    return None


@kind("norm-epsilon", "attribute")
def norm_epsilon(graph: Graph, rng: Random) -> Mutation | None:
    """An epsilon of another library's default, or of a half-precision recipe."""
    factor = rng.choice([1e2, 1e3, 1e4])

    def new(node: onnx.NodeProto) -> float:
        return min(float(graph.attribute(node, "epsilon", 1e-5)) * factor, 0.1)

    return _other(graph, rng, NORMS + FUSED_NORMS, "epsilon", new)


@kind("activation-alpha", "attribute")
def activation_alpha(graph: Graph, rng: Random) -> Mutation | None:
    """The slope of a LeakyRelu or the scale of an Elu."""
    defaults = {"LeakyRelu": 0.01, "Elu": 1.0, "HardSigmoid": 0.2, "Selu": 1.67326}

    def new(node: onnx.NodeProto) -> float:
        old = float(graph.attribute(node, "alpha", defaults[node.op_type]))
        return old * rng.choice([0.5, 1.5, 2.0])

    return _other(graph, rng, tuple(defaults), "alpha", new)


@kind("softmax-axis", "attribute", "axis-order")
def softmax_axis(graph: Graph, rng: Random) -> Mutation | None:
    """Probabilities that add up to one along another axis."""

    def new(node: onnx.NodeProto) -> int | None:
        shape = graph.shape(node.input[0])
        if shape is None or len(shape) < 2:
            return None
        now = int(graph.attribute(node, "axis", -1)) % len(shape)
        others = [axis for axis in range(len(shape)) if axis != now and shape[axis] > 1]
        return rng.choice(others) if others else None

    return _other(graph, rng, ("Softmax", "LogSoftmax"), "axis", new)


@kind("gelu-approximate", "attribute")
def gelu_approximate(graph: Graph, rng: Random) -> Mutation | None:
    """The tanh form of GELU for the exact one, or the other way round."""

    def new(node: onnx.NodeProto) -> str:
        return "none" if graph.attribute(node, "approximate", "none") == "tanh" else "tanh"

    return _other(graph, rng, ("Gelu",), "approximate", new)


@kind("resize-coordinates", "attribute")
def resize_coordinates(graph: Graph, rng: Random) -> Mutation | None:
    """Pixels sampled at other places."""
    modes = ["asymmetric", "align_corners", "half_pixel", "pytorch_half_pixel"]

    def new(node: onnx.NodeProto) -> str:
        now = graph.attribute(node, "coordinate_transformation_mode", "half_pixel")
        return rng.choice([mode for mode in modes if mode != now])

    return _other(graph, rng, ("Resize",), "coordinate_transformation_mode", new)


@kind("resize-mode", "attribute")
def resize_mode(graph: Graph, rng: Random) -> Mutation | None:
    """Nearest, linear or cubic in each other's place."""

    def new(node: onnx.NodeProto) -> str:
        now = graph.attribute(node, "mode", "nearest")
        return rng.choice([mode for mode in ("nearest", "linear", "cubic") if mode != now])

    return _other(graph, rng, ("Resize",), "mode", new)


@kind("pads-shifted", "attribute")
def pads_shifted(graph: Graph, rng: Random) -> Mutation | None:
    """Padding on one side instead of both: the size stays."""

    def new(node: onnx.NodeProto) -> list[int] | None:
        pads = list(graph.attribute(node, "pads", []))
        half = len(pads) // 2
        axes = [axis for axis in range(half) if pads[axis] and pads[axis + half]]
        if not axes:
            return None
        axis = rng.choice(axes)
        pads[axis], pads[axis + half] = pads[axis] - 1, pads[axis + half] + 1
        return pads

    return _other(graph, rng, ("Conv", "MaxPool", "AveragePool"), "pads", new)


@kind("dilation-lost", "attribute")
def dilation_lost(graph: Graph, rng: Random) -> Mutation | None:
    """A kernel that is dilated, or no longer is, with the padding that keeps the size."""
    nodes = [node for node in graph.nodes("Conv") if graph.constant(node, 1) is not None]
    rng.shuffle(nodes)
    for node in nodes:
        kernel = graph.constants[node.input[1]].shape[2:]
        now = list(graph.attribute(node, "dilations", [1] * len(kernel)))
        other = [1] * len(kernel) if max(now) > 1 else [2] * len(kernel)
        pads = list(graph.attribute(node, "pads", [0] * 2 * len(kernel)))
        for axis, size in enumerate(kernel):
            change = (size - 1) * (other[axis] - now[axis])
            pads[axis] += change // 2
            pads[axis + len(kernel)] += change - change // 2
        if max(kernel) == 1 or min(pads) < 0:
            continue
        graph.set_attribute(node, "dilations", other)
        graph.set_attribute(node, "pads", pads)
        return at(node, f"dilations {other} for {now}")
    return None


@kind("pool-counts-padding", "attribute")
def pool_counts_padding(graph: Graph, rng: Random) -> Mutation | None:
    """An average that counts the padding, or does not."""

    def new(node: onnx.NodeProto) -> int | None:
        if not any(graph.attribute(node, "pads", [])):
            return None
        return 1 - int(graph.attribute(node, "count_include_pad", 0))

    return _other(graph, rng, ("AveragePool",), "count_include_pad", new)


@kind("pad-mode", "attribute")
def pad_mode(graph: Graph, rng: Random) -> Mutation | None:
    """Reflection, the edge or zeros around the data."""

    def new(node: onnx.NodeProto) -> str:
        now = graph.attribute(node, "mode", "constant")
        return rng.choice([mode for mode in ("constant", "reflect", "edge") if mode != now])

    return _other(graph, rng, ("Pad",), "mode", new)


@kind("cumsum-exclusive", "attribute")
def cumsum_exclusive(graph: Graph, rng: Random) -> Mutation | None:
    """A running sum that leaves its own element out, or runs backwards."""
    name = rng.choice(["exclusive", "reverse"])
    return _other(
        graph, rng, ("CumSum",), name, lambda node: 1 - int(graph.attribute(node, name, 0))
    )


@kind("topk-smallest", "attribute")
def topk_smallest(graph: Graph, rng: Random) -> Mutation | None:
    """The smallest for the largest."""
    return _other(
        graph, rng, ("TopK",), "largest", lambda node: 1 - int(graph.attribute(node, "largest", 1))
    )


@kind("gemm-transposed", "attribute", "weight-layout", "axis-order")
def gemm_transposed(graph: Graph, rng: Random) -> Mutation | None:
    """A square weight that is taken transposed."""

    def new(node: onnx.NodeProto) -> int | None:
        shape = graph.shape(node.input[1])
        if shape is None or shape[0] != shape[1]:
            return None
        return 1 - int(graph.attribute(node, "transB", 0))

    return _other(graph, rng, ("Gemm",), "transB", new)


@kind("gemm-factor", "attribute")
def gemm_factor(graph: Graph, rng: Random) -> Mutation | None:
    """The factors of a Gemm."""
    name = rng.choice(["alpha", "beta"])
    return _other(graph, rng, ("Gemm",), name, lambda node: rng.choice([0.5, 2.0]))


@kind("recurrent-direction", "attribute")
def recurrent_direction(graph: Graph, rng: Random) -> Mutation | None:
    """A recurrence that runs backwards."""

    def new(node: onnx.NodeProto) -> str | None:
        now = graph.attribute(node, "direction", "forward")
        return {"forward": "reverse", "reverse": "forward"}.get(now)

    return _other(graph, rng, ("LSTM", "GRU", "RNN"), "direction", new)


@kind("gru-reset", "attribute")
def gru_reset(graph: Graph, rng: Random) -> Mutation | None:
    """The reset gate on the other side of the product."""
    return _other(
        graph,
        rng,
        ("GRU",),
        "linear_before_reset",
        lambda node: 1 - int(graph.attribute(node, "linear_before_reset", 0)),
    )


@kind("depth-to-space-order", "attribute", "axis-order")
def depth_to_space_order(graph: Graph, rng: Random) -> Mutation | None:
    """Columns first for depth first."""

    def new(node: onnx.NodeProto) -> str:
        return "DCR" if graph.attribute(node, "mode", "DCR") == "CRD" else "CRD"

    return _other(graph, rng, ("DepthToSpace",), "mode", new)


@kind("attention-heads", "attribute", "axis-order")
def attention_heads(graph: Graph, rng: Random) -> Mutation | None:
    """A fused attention that splits its width into other heads."""

    def new(node: onnx.NodeProto) -> int:
        now = int(graph.attribute(node, "num_heads", 4))
        return rng.choice([max(1, now // 2), 2 * now])

    return _other(graph, rng, ("Attention", "MultiHeadAttention"), "num_heads", new)


@kind("trilu-side", "attribute", "masking")
def trilu_side(graph: Graph, rng: Random) -> Mutation | None:
    """The other triangle."""
    return _other(
        graph, rng, ("Trilu",), "upper", lambda node: 1 - int(graph.attribute(node, "upper", 1))
    )


@kind("argmax-axis", "attribute")
def flatten_or_argmax(graph: Graph, rng: Random) -> Mutation | None:
    """The index along another axis of one size."""

    def new(node: onnx.NodeProto) -> int | None:
        shape = graph.shape(node.input[0]) or ()
        now = int(graph.attribute(node, "axis", 0)) % max(1, len(shape))
        others = [k for k in range(len(shape)) if k != now and shape[k] == shape[now]]
        return rng.choice(others) if others else None

    return _other(graph, rng, ("ArgMax", "ArgMin"), "axis", new)
