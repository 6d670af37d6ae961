"""The base models: small ONNX graphs of many kinds, written by hand so that they are made in milliseconds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from bench.fuzz import modules

Array = np.ndarray[Any, Any]
FLOAT, HALF, INT64, BOOL, STRING = (
    TensorProto.FLOAT,
    TensorProto.FLOAT16,
    TensorProto.INT64,
    TensorProto.BOOL,
    TensorProto.STRING,
)
LOCAL = "local.functions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """A healthy model, an input for it, and the module that it came from, if any."""

    name: str
    model: onnx.ModelProto
    example: Mapping[str, Array]
    subject: str = ""
    external: bool = False
    quantized: bool = False
    odd_ports: bool = False
    """Words or sequences go in or come out: it may be refused in words although it is sound."""


def port(name: str, kind: int, *dims: str | int) -> onnx.ValueInfoProto:
    """An input or output that is a tensor."""
    return helper.make_tensor_value_info(name, kind, list(dims))


def weights(**values: Array) -> list[onnx.TensorProto]:
    """Initializers by name."""
    return [numpy_helper.from_array(np.asarray(value), name) for name, value in values.items()]


def made(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    constants: Sequence[onnx.TensorProto] = (),
    **other: Any,
) -> onnx.ModelProto:
    """A model; its nodes get names and the notes that torch's exporter leaves."""
    for place, node in enumerate(nodes):
        node.name = node.name or f"node_{node.op_type}_{place}"
        _note(node, "pkg.torch.onnx.name_scopes", f"['', 'layer{place}']")
        _note(
            node,
            "pkg.torch.onnx.stack_trace",
            f'File "model.py", line {place + 1}, in forward\n    return {node.op_type}(x)',
        )
    graph = helper.make_graph(
        list(nodes), "main_graph", list(inputs), list(outputs), list(constants)
    )
    imports = other.pop("imports", [helper.make_opsetid("", 18)])
    return helper.make_model(
        graph, opset_imports=imports, ir_version=10, producer_name="pytorch", **other
    )


def _note(node: onnx.NodeProto, key: str, value: str) -> None:
    entry = node.metadata_props.add()
    entry.key, entry.value = key, value


def _state(factory: Callable[[], modules.Made]) -> tuple[dict[str, Array], list[Array]]:
    module, example = factory()
    return {name: value.numpy() for name, value in module.state_dict().items()}, [
        value.numpy() for value in example
    ]


def conv_bn() -> Base:
    """Conv, BatchNormalization, Relu, MaxPool, ReduceMean, Gemm."""
    state, (image,) = _state(modules.conv_bn)
    node = helper.make_node
    nodes = [
        node(
            "Conv",
            ["image", "w", "b"],
            ["c"],
            kernel_shape=[3, 3],
            pads=[1, 1, 1, 1],
            strides=[1, 1],
            dilations=[1, 1],
            group=1,
        ),
        node(
            "BatchNormalization",
            ["c", "scale", "shift", "mean", "var"],
            ["n"],
            epsilon=1e-5,
            momentum=0.9,
        ),
        node("Relu", ["n"], ["r"]),
        node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("ReduceMean", ["p", "axes"], ["m"], keepdims=0),
        node("Gemm", ["m", "head", "bias"], ["logits"], transB=1, alpha=1.0, beta=1.0),
    ]
    constants = weights(
        w=state["conv.weight"],
        b=state["conv.bias"],
        scale=state["norm.weight"],
        shift=state["norm.bias"],
        mean=state["norm.running_mean"],
        var=state["norm.running_var"],
        head=state["head.weight"],
        bias=state["head.bias"],
        axes=np.array([2, 3]),
    )
    model = made(
        nodes,
        [port("image", FLOAT, "batch", 3, "height", "width")],
        [port("logits", FLOAT, "batch", 5)],
        constants,
    )
    return Base(
        name="conv_bn", model=model, example={"image": image}, subject="bench.fuzz.modules:conv_bn"
    )


def transformer() -> Base:
    """Gather, attention, LayerNormalization."""
    state, (ids,) = _state(modules.transformer)
    node = helper.make_node
    nodes = [
        node("Gather", ["table", "ids"], ["e"], axis=0),
        node("MatMul", ["e", "wq"], ["q"]),
        node("MatMul", ["e", "wk"], ["k"]),
        node("MatMul", ["e", "wv"], ["v"]),
        node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
        node("MatMul", ["q", "kt"], ["s"]),
        node("Mul", ["s", "factor"], ["t"]),
        node("Softmax", ["t"], ["a"], axis=-1),
        node("MatMul", ["a", "v"], ["o"]),
        node("Add", ["e", "o"], ["h"]),
        node("LayerNormalization", ["h", "g", "b"], ["n"], axis=-1, epsilon=1e-5),
        node("MatMul", ["n", "wo"], ["l"]),
        node("Add", ["l", "bo"], ["logits"]),
    ]
    constants = weights(
        table=state["embedding.weight"],
        wq=state["query.weight"].T.copy(),
        wk=state["key.weight"].T.copy(),
        wv=state["value.weight"].T.copy(),
        factor=np.float32(modules.WIDTH**-0.5),
        g=state["norm.weight"],
        b=state["norm.bias"],
        wo=state["out.weight"].T.copy(),
        bo=state["out.bias"],
    )
    model = made(
        nodes,
        [port("ids", INT64, "batch", "seq")],
        [port("logits", FLOAT, "batch", "seq", modules.VOCABULARY)],
        constants,
    )
    _dims(model)
    return Base(
        name="transformer",
        model=model,
        example={"ids": ids},
        subject="bench.fuzz.modules:transformer",
    )


def _dims(model: onnx.ModelProto) -> None:
    """What an export notes about its dims."""
    helper.set_model_props(
        model,
        {
            "onnxproof.dims": '[{"name": "batch", "minimum": 1, "maximum": 64}, {"name": "seq", "minimum": 1, "maximum": 128}]'
        },
    )
    entry = model.graph.metadata_props.add()
    entry.key, entry.value = (
        "pkg.torch.export.ExportedProgram.range_constraints",
        "{s0: VR[1, 64], s1: VR[2, 128]}",
    )


def lstm() -> Base:
    """The LSTM operator; torch's gates i, f, g, o become i, o, f, c."""
    state, (x, h, c) = _state(modules.lstm)

    def gates(value: Array) -> Array:
        i, f, g, o = np.split(value, 4)
        return np.concatenate([i, o, f, g])[None]

    bias = np.concatenate(
        [gates(state["cell.bias_ih_l0"]), gates(state["cell.bias_hh_l0"])], axis=1
    )
    nodes = [
        helper.make_node(
            "LSTM", ["x", "w", "r", "bias", "", "h", "c"], ["all", "h_out", "c_out"], hidden_size=6
        ),
        helper.make_node("Squeeze", ["all", "one"], ["y"]),
    ]
    constants = weights(
        w=gates(state["cell.weight_ih_l0"]),
        r=gates(state["cell.weight_hh_l0"]),
        bias=bias,
        one=np.array([1]),
    )
    inputs = [
        port("x", FLOAT, "time", "batch", 4),
        port("h", FLOAT, 1, "batch", 6),
        port("c", FLOAT, 1, "batch", 6),
    ]
    outputs = [
        port("y", FLOAT, "time", "batch", 6),
        port("h_out", FLOAT, 1, "batch", 6),
        port("c_out", FLOAT, 1, "batch", 6),
    ]
    return Base(
        name="lstm",
        model=made(nodes, inputs, outputs, constants),
        example={"x": x, "h": h, "c": c},
        subject="bench.fuzz.modules:lstm",
    )


def several() -> Base:
    """Outputs in float, int64 and bool."""
    state, (x,) = _state(modules.several)
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["g"], transB=1),
        helper.make_node("Tanh", ["g"], ["scores"]),
        helper.make_node("ArgMax", ["scores"], ["best"], axis=-1, keepdims=0),
        helper.make_node("Greater", ["scores", "zero"], ["positive"]),
    ]
    outputs = [
        port("scores", FLOAT, "batch", 4),
        port("best", INT64, "batch"),
        port("positive", BOOL, "batch", 4),
    ]
    constants = weights(w=state["first.weight"], b=state["first.bias"], zero=np.float32(0))
    model = made(nodes, [port("x", FLOAT, "batch", 6)], outputs, constants)
    return Base(name="several", model=model, example={"x": x}, subject="bench.fuzz.modules:several")


def _perceptron(
    name: str, factory: Callable[[], modules.Made], kind: int, *, external: bool = False
) -> Base:
    state, (x,) = _state(factory)
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h"], transB=1),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Gemm", ["r", "w2", "b2"], ["y"], transB=1),
    ]
    constants = weights(
        w1=state["first.weight"],
        b1=state["first.bias"],
        w2=state["second.weight"],
        b2=state["second.bias"],
    )
    model = made(nodes, [port("x", kind, "batch", 6)], [port("y", kind, "batch", 3)], constants)
    return Base(
        name=name,
        model=model,
        example={"x": x},
        subject=f"bench.fuzz.modules:{factory.__name__}",
        external=external,
    )


def external() -> Base:
    """Weights in a file beside the model."""
    return _perceptron("external", modules.perceptron, FLOAT, external=True)


def half() -> Base:
    """Weights and ports in float16."""
    return _perceptron("half", modules.half, HALF)


def constants() -> Base:
    """The same network with its weights in Constant nodes."""
    base = _perceptron("constants", modules.perceptron, FLOAT)
    values = list(base.model.graph.initializer)
    del base.model.graph.initializer[:]
    for value in reversed(values):
        base.model.graph.node.insert(
            0,
            helper.make_node("Constant", [], [value.name], name=f"const_{value.name}", value=value),
        )
    return base


def qdq() -> Base:
    """Int8 around a product, per channel for the weights."""
    random = np.random.default_rng(6)
    node = helper.make_node
    nodes = [
        node("QuantizeLinear", ["x", "sx", "zx"], ["xq"]),
        node("DequantizeLinear", ["xq", "sx", "zx"], ["xd"]),
        node("DequantizeLinear", ["w", "sw", "zw"], ["wd"], axis=1),
        node("MatMul", ["xd", "wd"], ["h"]),
        node("QuantizeLinear", ["h", "sh", "zh"], ["hq"]),
        node("DequantizeLinear", ["hq", "sh", "zh"], ["hd"]),
        node("Relu", ["hd"], ["y"]),
    ]
    values = weights(
        sx=np.float32(0.03),
        zx=np.array(3, np.int8),
        sw=np.linspace(0.01, 0.02, 5, dtype=np.float32),
        zw=np.zeros(5, np.int8),
        w=random.integers(-90, 90, (6, 5), dtype=np.int8),
        sh=np.float32(0.05),
        zh=np.array(-4, np.int8),
    )
    model = made(nodes, [port("x", FLOAT, "batch", 6)], [port("y", FLOAT, "batch", 5)], values)
    return Base(
        name="qdq",
        model=model,
        example={"x": random.standard_normal((3, 6)).astype(np.float32)},
        quantized=True,
    )


def _branch(name: str, op: str, constant: float) -> onnx.GraphProto:
    nodes = [
        helper.make_node(
            "Constant", [], [f"{name}_c"], value=numpy_helper.from_array(np.float32(constant))
        ),
        helper.make_node(op, ["x", f"{name}_c"], [f"{name}_out"], name=f"{name}_{op}"),
    ]
    return helper.make_graph(nodes, name, [], [port(f"{name}_out", FLOAT, "batch", 4)])


def branches() -> Base:
    """An If whose condition hangs on the input."""
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
        helper.make_node("Greater", ["s", "zero"], ["c"]),
        helper.make_node(
            "If",
            ["c"],
            ["z"],
            then_branch=_branch("then", "Mul", 2.0),
            else_branch=_branch("else", "Add", 3.0),
        ),
        helper.make_node("Sigmoid", ["z"], ["y"]),
    ]
    model = made(
        nodes,
        [port("x", FLOAT, "batch", 4)],
        [port("y", FLOAT, "batch", 4)],
        weights(zero=np.float32(0)),
    )
    return Base(
        name="branches",
        model=model,
        example={"x": np.random.default_rng(7).standard_normal((3, 4)).astype(np.float32)},
    )


def loop() -> Base:
    """A Loop of four turns, with a carried value and a scan output."""
    body = helper.make_graph(
        [
            helper.make_node("Mul", ["state", "decay"], ["scaled"]),
            helper.make_node("Add", ["scaled", "x"], ["next"]),
            helper.make_node("Identity", ["next"], ["seen"]),
            helper.make_node("Identity", ["keep"], ["go"]),
        ],
        "body",
        [port("turn", INT64), port("keep", BOOL), port("state", FLOAT, "batch", 4)],
        [port("go", BOOL), port("next", FLOAT, "batch", 4), port("seen", FLOAT, "batch", 4)],
    )
    nodes = [helper.make_node("Loop", ["turns", "", "x"], ["y", "history"], body=body)]
    model = made(
        nodes,
        [port("x", FLOAT, "batch", 4)],
        [port("y", FLOAT, "batch", 4), port("history", FLOAT, "turns", "batch", 4)],
        weights(turns=np.array(4), decay=np.float32(0.7)),
    )
    return Base(
        name="loop",
        model=model,
        example={"x": np.random.default_rng(8).standard_normal((2, 4)).astype(np.float32)},
    )


def scan() -> Base:
    """A Scan along the first axis."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["sum", "item"], ["next"]),
            helper.make_node("Tanh", ["next"], ["seen"]),
        ],
        "body",
        [port("sum", FLOAT, 4), port("item", FLOAT, 4)],
        [port("next", FLOAT, 4), port("seen", FLOAT, 4)],
    )
    nodes = [helper.make_node("Scan", ["start", "x"], ["last", "y"], body=body, num_scan_inputs=1)]
    model = made(
        nodes,
        [port("x", FLOAT, "time", 4)],
        [port("y", FLOAT, "time", 4), port("last", FLOAT, 4)],
        weights(start=np.zeros(4, np.float32)),
    )
    return Base(
        name="scan",
        model=model,
        example={"x": np.random.default_rng(9).standard_normal((5, 4)).astype(np.float32)},
    )


def functions() -> Base:
    """Two local functions, one of which calls the other."""
    opset = [helper.make_opsetid("", 18), helper.make_opsetid(LOCAL, 1)]
    inner = helper.make_function(
        LOCAL,
        "Swish",
        ["a"],
        ["b"],
        [helper.make_node("Sigmoid", ["a"], ["s"]), helper.make_node("Mul", ["a", "s"], ["b"])],
        opset,
    )
    outer = helper.make_function(
        LOCAL,
        "Twice",
        ["a"],
        ["b"],
        [
            helper.make_node("Swish", ["a"], ["m"], domain=LOCAL),
            helper.make_node("Swish", ["m"], ["b"], domain=LOCAL),
        ],
        opset,
    )
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Twice", ["h"], ["y"], domain=LOCAL),
    ]
    random = np.random.default_rng(10)
    model = made(
        nodes,
        [port("x", FLOAT, "batch", 4)],
        [port("y", FLOAT, "batch", 4)],
        weights(w=random.standard_normal((4, 4)).astype(np.float32)),
        imports=opset,
        functions=[inner, outer],
    )
    return Base(
        name="functions",
        model=model,
        example={"x": random.standard_normal((3, 4)).astype(np.float32)},
    )


def sequences() -> Base:
    """A tensor split into a sequence and joined again in another order."""
    nodes = [
        helper.make_node("SplitToSequence", ["x", "two"], ["parts"], axis=1),
        helper.make_node("SequenceAt", ["parts", "last"], ["end"]),
        helper.make_node("SequenceInsert", ["parts", "end", "zero"], ["more"]),
        helper.make_node("ConcatFromSequence", ["more"], ["z"], axis=1),
        helper.make_node("Exp", ["z"], ["y"]),
    ]
    model = made(
        nodes,
        [port("x", FLOAT, "batch", 6)],
        [port("y", FLOAT, "batch", 8)],
        weights(two=np.array(2), last=np.array(-1), zero=np.array(0)),
    )
    return Base(
        name="sequences",
        model=model,
        example={"x": np.random.default_rng(11).standard_normal((2, 6)).astype(np.float32)},
    )


def optionals() -> Base:
    """An optional value inside, and an output that is a sequence."""
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(FLOAT, ["batch", 4]))
    nodes = [
        helper.make_node("Optional", ["x"], ["maybe"]),
        helper.make_node("OptionalGetElement", ["maybe"], ["z"]),
        helper.make_node("Neg", ["z"], ["y"]),
        helper.make_node("SequenceConstruct", ["y", "x"], ["both"]),
    ]
    both = helper.make_value_info(
        "both", helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, ["batch", 4]))
    )
    model = made(nodes, [port("x", FLOAT, "batch", 4)], [port("y", FLOAT, "batch", 4), both])
    model.graph.value_info.append(helper.make_value_info("maybe", kind))
    return Base(
        name="optionals",
        model=model,
        example={"x": np.random.default_rng(12).standard_normal((2, 4)).astype(np.float32)},
        odd_ports=True,
    )


def strings() -> Base:
    """Words to numbers, by ai.onnx.ml's LabelEncoder."""
    encoder = helper.make_node(
        "LabelEncoder",
        ["words"],
        ["codes"],
        domain="ai.onnx.ml",
        keys_strings=["cat", "dog", ""],
        values_floats=[1.0, 2.0, 3.0],
        default_float=-1.0,
    )
    nodes = [encoder, helper.make_node("Mul", ["codes", "two"], ["y"])]
    model = made(
        nodes,
        [port("words", STRING, "batch")],
        [port("y", FLOAT, "batch")],
        weights(two=np.float32(2)),
        imports=[helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)],
    )
    return Base(
        name="strings",
        model=model,
        example={"words": np.array(["dog", "cow", "cat", ""], dtype=object)},
        odd_ports=True,
    )


def bases() -> list[Base]:
    """All of them."""
    return [
        conv_bn(),
        transformer(),
        lstm(),
        several(),
        external(),
        half(),
        constants(),
        qdq(),
        branches(),
        loop(),
        scan(),
        functions(),
        sequences(),
        optionals(),
        strings(),
    ]
