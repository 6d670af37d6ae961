"""Small valid ONNX files that ask for endless time or more memory than there is; all have one input `x` float32[2, 2] and one output `y`."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

_FLOAT, _INT, _BOOL = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL


def model(
    nodes: Sequence[onnx.NodeProto],
    weights: dict[str, np.ndarray] | None = None,
    functions: Sequence[onnx.FunctionProto] = (),
) -> onnx.ModelProto:
    """A model around these nodes."""
    graph = helper.make_graph(
        list(nodes),
        "hostile",
        [helper.make_tensor_value_info("x", _FLOAT, [2, 2])],
        [helper.make_tensor_value_info("y", _FLOAT, None)],
        [
            numpy_helper.from_array(np.asarray(value), name)
            for name, value in (weights or {}).items()
        ],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8, functions=list(functions))


def body(nodes: Sequence[onnx.NodeProto], made: str, extra: Sequence[str] = ()) -> onnx.GraphProto:
    """A Loop's body that goes on for ever, carries `v` to `made`, and gives `extra` as scan outputs."""
    inputs = [
        helper.make_tensor_value_info("i", _INT, []),
        helper.make_tensor_value_info("c", _BOOL, []),
        helper.make_tensor_value_info("v", _FLOAT, None),
    ]
    outputs = [
        helper.make_tensor_value_info("go", _BOOL, []),
        *(helper.make_tensor_value_info(name, _FLOAT, None) for name in (made, *extra)),
    ]
    return helper.make_graph(
        [helper.make_node("Identity", ["c"], ["go"]), *nodes], "body", inputs, outputs
    )


def endless_condition() -> onnx.ModelProto:
    """A Loop whose condition is always true."""
    return model(
        [
            helper.make_node(
                "Loop",
                ["", "yes", "x"],
                ["y"],
                body=body([helper.make_node("Neg", ["v"], ["w"])], "w"),
            )
        ],
        {"yes": np.array(True)},
    )


def endless_count() -> onnx.ModelProto:
    """A Loop of 2**62 turns."""
    return model(
        [
            helper.make_node(
                "Loop",
                ["turns", "yes", "x"],
                ["y"],
                body=body([helper.make_node("Neg", ["v"], ["w"])], "w"),
            )
        ],
        {"turns": np.array(2**62), "yes": np.array(True)},
    )


def growing() -> onnx.ModelProto:
    """A Loop whose value doubles in every turn."""
    grow = helper.make_node("Concat", ["v", "v"], ["w"], axis=0)
    return model(
        [helper.make_node("Loop", ["", "yes", "x"], ["y"], body=body([grow], "w"))],
        {"yes": np.array(True)},
    )


def collecting() -> onnx.ModelProto:
    """A Loop that gives an output in each of 2**62 turns."""
    nodes = [helper.make_node("Neg", ["v"], ["w"]), helper.make_node("Identity", ["v"], ["s"])]
    return model(
        [
            helper.make_node(
                "Loop", ["turns", "yes", "x"], ["y", "all"], body=body(nodes, "w", ["s"])
            )
        ],
        {"turns": np.array(2**62), "yes": np.array(True)},
    )


def nested_loops() -> onnx.ModelProto:
    """A Loop of a hundred thousand turns in a Loop of a hundred thousand turns."""
    inner = helper.make_graph(
        [helper.make_node("Identity", ["c2"], ["go2"]), helper.make_node("Neg", ["v2"], ["w2"])],
        "inner",
        [
            helper.make_tensor_value_info("i2", _INT, []),
            helper.make_tensor_value_info("c2", _BOOL, []),
            helper.make_tensor_value_info("v2", _FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("go2", _BOOL, []),
            helper.make_tensor_value_info("w2", _FLOAT, None),
        ],
    )
    outer = body([helper.make_node("Loop", ["turns", "yes", "v"], ["w"], body=inner)], "w")
    return model(
        [helper.make_node("Loop", ["turns", "yes", "x"], ["y"], body=outer)],
        {"turns": np.array(100_000), "yes": np.array(True)},
    )


def long_scan() -> onnx.ModelProto:
    """A Scan over a hundred million rows."""
    step = helper.make_graph(
        [helper.make_node("Add", ["v", "row"], ["w"])],
        "step",
        [
            helper.make_tensor_value_info("v", _FLOAT, None),
            helper.make_tensor_value_info("row", _FLOAT, None),
        ],
        [helper.make_tensor_value_info("w", _FLOAT, None)],
    )
    nodes = [
        helper.make_node("ConstantOfShape", ["shape"], ["rows"]),
        helper.make_node("Scan", ["x", "rows"], ["y"], body=step, num_scan_inputs=1),
    ]
    return model(nodes, {"shape": np.array([100_000_000, 1])})


def calls(depth: int, fan: int) -> onnx.ModelProto:
    """Functions that each call the one before `fan` times."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    functions = [
        helper.make_function(
            "local", "f0", ["a"], ["b"], [helper.make_node("Neg", ["a"], ["b"])], opsets
        )
    ]
    for place in range(1, depth):
        names = ["a", *(f"t{turn}" for turn in range(fan - 1)), "b"]
        nodes = [
            helper.make_node(f"f{place - 1}", [names[turn]], [names[turn + 1]], domain="local")
            for turn in range(fan)
        ]
        functions.append(helper.make_function("local", f"f{place}", ["a"], ["b"], nodes, opsets))
    return model(
        [helper.make_node(f"f{depth - 1}", ["x"], ["y"], domain="local")], functions=functions
    )


def recursive() -> onnx.ModelProto:
    """Two functions that call each other."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    pair = [
        helper.make_function(
            "local",
            name,
            ["a"],
            ["b"],
            [helper.make_node(other, ["a"], ["b"], domain="local")],
            opsets,
        )
        for name, other in (("f", "g"), ("g", "f"))
    ]
    return model([helper.make_node("f", ["x"], ["y"], domain="local")], functions=pair)


def large_constant() -> onnx.ModelProto:
    """A ConstantOfShape of 2**40 numbers."""
    nodes = [
        helper.make_node("ConstantOfShape", ["shape"], ["big"]),
        helper.make_node("ReduceSum", ["big"], ["sum"], keepdims=0),
        helper.make_node("Add", ["x", "sum"], ["y"]),
    ]
    return model(nodes, {"shape": np.array([2**40])})


def large_expand() -> onnx.ModelProto:
    """An Expand to 2**36 numbers, whose sum is taken."""
    nodes = [
        helper.make_node("Expand", ["x", "shape"], ["big"]),
        helper.make_node("ReduceSum", ["big"], ["sum"], keepdims=0),
        helper.make_node("Add", ["x", "sum"], ["y"]),
    ]
    return model(nodes, {"shape": np.array([2**34, 2, 2])})


def large_tile() -> onnx.ModelProto:
    """A Tile by 2**34."""
    nodes = [
        helper.make_node("Tile", ["x", "times"], ["big"]),
        helper.make_node("ReduceSum", ["big"], ["sum"], keepdims=0),
        helper.make_node("Add", ["x", "sum"], ["y"]),
    ]
    return model(nodes, {"times": np.array([2**34, 1])})


def large_range() -> onnx.ModelProto:
    """A Range up to a number that the input decides: 2**40 for a one."""
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["top"], keepdims=0),
        helper.make_node("Abs", ["top"], ["size"]),
        helper.make_node("Cast", ["size"], ["whole"], to=_INT),
        helper.make_node("Add", ["whole", "base"], ["end"]),
        helper.make_node("Range", ["zero", "end", "one"], ["many"]),
        helper.make_node("Cast", ["many"], ["floats"], to=_FLOAT),
        helper.make_node("ReduceSum", ["floats"], ["sum"], keepdims=0),
        helper.make_node("Add", ["x", "sum"], ["y"]),
    ]
    return model(nodes, {"base": np.array(2**40), "zero": np.array(0), "one": np.array(1)})


def large_pad() -> onnx.ModelProto:
    """A Pad by 2**38 rows."""
    nodes = [
        helper.make_node("Pad", ["x", "pads"], ["big"]),
        helper.make_node("ReduceSum", ["big"], ["sum"], keepdims=0),
        helper.make_node("Add", ["x", "sum"], ["y"]),
    ]
    return model(nodes, {"pads": np.array([2**38, 0, 0, 0])})


def large_resize() -> onnx.ModelProto:
    """A Resize by 200,000 each way."""
    nodes = [
        helper.make_node("Unsqueeze", ["x", "front"], ["image"]),
        helper.make_node("Resize", ["image", "", "scales"], ["big"], mode="nearest"),
        helper.make_node("ReduceSum", ["big"], ["sum"], keepdims=0),
        helper.make_node("Add", ["x", "sum"], ["y"]),
    ]
    return model(
        nodes, {"front": np.array([0, 1]), "scales": np.array([1, 1, 200_000, 200_000], np.float32)}
    )


def long_product() -> onnx.ModelProto:
    """One MatMul of a minute, on values that the input decides: nothing can be stopped between two nodes."""
    nodes = [
        helper.make_node("ConstantOfShape", ["shape"], ["zeros"]),
        helper.make_node("ReduceMax", ["x"], ["top"], keepdims=0),
        helper.make_node("Add", ["zeros", "top"], ["big"]),
        helper.make_node("MatMul", ["big", "big"], ["product"]),
        helper.make_node("ReduceMean", ["product"], ["mean"], keepdims=0),
        helper.make_node("Add", ["x", "mean"], ["y"]),
    ]
    return model(nodes, {"shape": np.array([14_000, 14_000])})


def folded_product() -> onnx.ModelProto:
    """The same on constants: the runtime folds it when it opens the file."""
    nodes = [
        helper.make_node("ConstantOfShape", ["shape"], ["zeros"]),
        helper.make_node("Add", ["zeros", "one"], ["big"]),
        helper.make_node("MatMul", ["big", "big"], ["product"]),
        helper.make_node("ReduceMean", ["product"], ["mean"], keepdims=0),
        helper.make_node("Add", ["x", "mean"], ["y"]),
    ]
    return model(nodes, {"shape": np.array([14_000, 14_000]), "one": np.array(1, np.float32)})


def deep_branches(depth: int) -> onnx.ModelProto:
    """An If in an If in an If."""
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["leaf"])],
        "leaf",
        [],
        [helper.make_tensor_value_info("leaf", _FLOAT, None)],
    )
    for place in range(depth):
        other = helper.make_graph(
            [helper.make_node("Neg", ["x"], [f"e{place}"])],
            "else",
            [],
            [helper.make_tensor_value_info(f"e{place}", _FLOAT, None)],
        )
        node = helper.make_node("If", ["yes"], [f"o{place}"], then_branch=graph, else_branch=other)
        graph = helper.make_graph(
            [node], "then", [], [helper.make_tensor_value_info(f"o{place}", _FLOAT, None)]
        )
    return model(
        [*graph.node, helper.make_node("Identity", [f"o{depth - 1}"], ["y"])],
        {"yes": np.array(True)},
    )


def deep_bytes(depth: int) -> bytes:
    """A file of graphs in graphs, deeper than protobuf itself would write."""

    def field(number: int, content: bytes) -> bytes:
        return _varint(number << 3 | 2) + _varint(len(content)) + content

    graph = field(1, field(4, b"Identity"))
    for _ in range(depth):
        graph = field(1, field(4, b"If") + field(5, field(1, b"then_branch") + field(6, graph)))
    return field(7, graph)


def _varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + _varint(number >> 7)


ENDLESS: dict[str, Callable[[], onnx.ModelProto]] = {
    kind.__name__: kind
    for kind in (endless_condition, endless_count, collecting, nested_loops, long_scan)
}
LARGE: dict[str, Callable[[], onnx.ModelProto]] = {
    kind.__name__: kind
    for kind in (
        growing,
        large_constant,
        large_expand,
        large_tile,
        large_range,
        large_pad,
        large_resize,
    )
}


def save(kind: Callable[[], onnx.ModelProto], folder: Path) -> Path:
    """The file."""
    path = folder / f"{getattr(kind, '__name__', 'hostile')}.onnx"
    onnx.save(kind(), path)
    return path
