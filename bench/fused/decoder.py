"""A small decoder as people write it, and the graph of fused operators that a model builder writes for it, node by node."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn
from torch.nn import functional

OPSETS = (helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What kind of decoder."""

    vocabulary: int = 61
    width: int = 64
    heads: int = 4
    shared: int = 2
    """Heads of keys and values."""
    hidden: int = 96
    layers: int = 2
    places: int = 64
    window: int = 0
    softcap: float = 0.0
    epsilon: float = 1e-5
    grouped: bool = True
    """GroupQueryAttention, which turns by itself; else RotaryEmbedding and MultiHeadAttention."""

    @property
    def size(self) -> int:
        """Of a head."""
        return self.width // self.heads


class RmsNorm(nn.Module):
    """Division by the root mean square, with a weight."""

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.epsilon) * self.weight


def angles(form: Form) -> Tensor:
    """The angle of each place and each pair of numbers."""
    frequencies = 100.0 ** (-torch.arange(0, form.size, 2).float() / form.size)
    return torch.arange(form.places).float()[:, None] * frequencies


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn the pairs (k, k + half) of each head."""
    low, high = x.chunk(2, -1)
    return torch.cat([low * cos - high * sin, high * cos + low * sin], -1)


class Attention(nn.Module):
    """Causal attention whose keys and values are shared by several heads of queries."""

    def __init__(self, form: Form) -> None:
        super().__init__()
        self.form = form
        self.query = nn.Linear(form.width, form.width, bias=False)
        self.key = nn.Linear(form.width, form.shared * form.size, bias=False)
        self.value = nn.Linear(form.width, form.shared * form.size, bias=False)
        self.out = nn.Linear(form.width, form.width, bias=False)
        self.register_buffer("cos", angles(form).cos(), persistent=False)
        self.register_buffer("sin", angles(form).sin(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        form = self.form
        query, key, value = (
            part(x).view(batch, length, -1, form.size).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        cos, sin = self.cos[:length], self.sin[:length]
        query, key = rotate(query, cos, sin), rotate(key, cos, sin)
        key = key.repeat_interleave(form.heads // form.shared, 1)
        value = value.repeat_interleave(form.heads // form.shared, 1)
        scores = query @ key.transpose(-1, -2) * form.size**-0.5
        if form.softcap:
            scores = form.softcap * torch.tanh(scores / form.softcap)
        places = torch.arange(length)
        seen = places <= places[:, None]
        if form.window:
            seen = seen & (places > places[:, None] - form.window)
        mixed = scores.masked_fill(~seen, -torch.inf).softmax(-1) @ value
        out: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return out


class Block(nn.Module):
    """Attention, then a gated feed-forward part, each behind a norm."""

    def __init__(self, form: Form) -> None:
        super().__init__()
        self.norm1 = RmsNorm(form.width, form.epsilon)
        self.attention = Attention(form)
        self.norm2 = RmsNorm(form.width, form.epsilon)
        self.gate = nn.Linear(form.width, form.hidden, bias=False)
        self.up = nn.Linear(form.width, form.hidden, bias=False)
        self.down = nn.Linear(form.hidden, form.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        z = self.norm2(x)
        return x + self.down(functional.silu(self.gate(z)) * self.up(z))


class Decoder(nn.Module):
    """Tokens to logits."""

    def __init__(self, form: Form) -> None:
        super().__init__()
        self.form = form
        self.tokens = nn.Embedding(form.vocabulary, form.width)
        self.blocks = nn.ModuleList(Block(form) for _ in range(form.layers))
        self.norm = RmsNorm(form.width, form.epsilon)
        self.head = nn.Linear(form.width, form.vocabulary, bias=False)

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.tokens(input_ids)
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x))
        return logits


class Writer:
    """Nodes and constants of a graph, in the order in which they are added."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []

    def constant(self, name: str, value: Any) -> str:
        """An initializer."""
        array = np.ascontiguousarray(value)
        self.initializers.append(numpy_helper.from_array(array, name))
        return name

    def weight(self, name: str, layer: nn.Linear) -> str:
        """The weight of a layer as MatMul takes it."""
        return self.constant(name, layer.weight.detach().numpy().T)

    def node(self, op_type: str, inputs: list[str], output: str | list[str], **options: Any) -> str:
        """One node; its first output."""
        outputs = [output] if isinstance(output, str) else output
        made = helper.make_node(op_type, inputs, outputs, name=f"{outputs[0]}/{op_type}", **options)
        self.nodes.append(made)
        return outputs[0]

    def fused(
        self, op_type: str, inputs: list[str], output: str | list[str], **options: Any
    ) -> str:
        """One node of ONNX Runtime's own domain."""
        return self.node(op_type, inputs, output, domain="com.microsoft", **options)


def write(module: Decoder) -> onnx.ModelProto:
    """The decoder of fused operators."""
    form = module.form
    writer = Writer()
    _write_lengths(writer)
    writer.constant("cos_cache", angles(form).cos().numpy())
    writer.constant("sin_cache", angles(form).sin().numpy())
    table = writer.constant("tokens", module.tokens.weight.detach().numpy())
    total = writer.node("Gather", [table, "input_ids"], "x0")
    first = writer.constant("l0.norm1.weight", _first_norm(module).weight.detach().numpy())
    normed = writer.node(
        "SimplifiedLayerNormalization", [total, first], "l0.norm1", axis=-1, epsilon=form.epsilon
    )
    norms = [*[block.norm1 for block in module.blocks][1:], module.norm]
    for place, block in enumerate(module.blocks):
        mixed = _write_attention(writer, form, block.attention, normed, f"l{place}")
        normed, total = _skip_norm(writer, form, (total, mixed), block.norm2, f"l{place}.norm2")
        added = _write_feed_forward(writer, block, normed, f"l{place}")
        name = f"l{place + 1}.norm1"
        normed, total = _skip_norm(writer, form, (total, added), norms[place], name)
    writer.node("MatMul", [normed, writer.weight("head.weight", module.head)], "logits")
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        writer.nodes,
        "decoder",
        [info("input_ids", TensorProto.INT64, ["batch", "length"])],
        [info("logits", TensorProto.FLOAT, ["batch", "length", form.vocabulary])],
        writer.initializers,
    )
    return helper.make_model(graph, opset_imports=OPSETS, ir_version=10)


def _first_norm(module: Decoder) -> Any:
    return module.blocks[0].norm1


def _write_lengths(writer: Writer) -> None:
    """How long the rows are, as GroupQueryAttention wants to be told, and the positions for RotaryEmbedding."""
    numbers = {"zero": 0, "one": 1, "flat": [0]}
    for name, value in numbers.items():
        writer.constant(name, np.array(value, np.int64))
    writer.node("Shape", ["input_ids"], "shape")
    writer.node("Gather", ["shape", "one"], "length", axis=0)
    writer.node("Cast", ["length"], "total_length", to=TensorProto.INT32)
    writer.node("Sub", ["length", "one"], "last_place")
    writer.node("Slice", ["shape", "flat", "ones"], "batch")
    writer.constant("ones", np.array([1], np.int64))
    writer.node("Expand", ["last_place", "batch"], "last_places64")
    writer.node("Cast", ["last_places64"], "last_places", to=TensorProto.INT32)
    writer.node("Range", ["zero", "length", "one"], "places")
    writer.node("Unsqueeze", ["places", "flat"], "places_row")
    writer.node("Expand", ["places_row", "shape"], "position_ids")


def _write_attention(writer: Writer, form: Form, layer: Any, x: str, name: str) -> str:
    parts = []
    for word in ("query", "key", "value"):
        weight = writer.weight(f"{name}.{word}.weight", getattr(layer, word))
        parts.append(writer.node("MatMul", [x, weight], f"{name}.{word}"))
    if form.grouped:
        mixed = _grouped(writer, form, parts, name)
    else:
        mixed = _multi_head(writer, form, parts, name)
    weight = writer.weight(f"{name}.out.weight", layer.out)
    return writer.node("MatMul", [mixed, weight], f"{name}.out")


def _grouped(writer: Writer, form: Form, parts: list[str], name: str) -> str:
    inputs = [*parts, "", "", "last_places", "total_length", "cos_cache", "sin_cache"]
    outputs = [f"{name}.mixed", f"{name}.present_key", f"{name}.present_value"]
    return writer.fused(
        "GroupQueryAttention",
        inputs,
        outputs,
        num_heads=form.heads,
        kv_num_heads=form.shared,
        scale=form.size**-0.5,
        do_rotary=1,
        rotary_interleaved=0,
        local_window_size=form.window or -1,
        softcap=form.softcap,
    )


def _multi_head(writer: Writer, form: Form, parts: list[str], name: str) -> str:
    """RotaryEmbedding for queries and keys, then MultiHeadAttention."""
    turned = []
    for part, word in zip(parts, ("query", "key"), strict=False):
        inputs = [part, "position_ids", "cos_cache", "sin_cache"]
        options = {"num_heads": form.heads, "rotary_embedding_dim": form.size, "interleaved": 0}
        turned.append(writer.fused("RotaryEmbedding", inputs, f"{name}.{word}.turned", **options))
    return writer.fused(
        "MultiHeadAttention",
        [*turned, parts[2]],
        f"{name}.mixed",
        num_heads=form.heads,
        unidirectional=1,
        scale=form.size**-0.5,
    )


def _skip_norm(
    writer: Writer, form: Form, added: tuple[str, str], norm: RmsNorm, name: str
) -> tuple[str, str]:
    weight = writer.constant(f"{name}.weight", norm.weight.detach().numpy())
    outputs = [name, "", "", f"{name}.sum"]
    writer.fused(
        "SkipSimplifiedLayerNormalization", [*added, weight], outputs, epsilon=form.epsilon
    )
    return name, f"{name}.sum"


def _write_feed_forward(writer: Writer, block: Any, x: str, name: str) -> str:
    gate = writer.node(
        "MatMul", [x, writer.weight(f"{name}.gate.weight", block.gate)], f"{name}.gate"
    )
    up = writer.node("MatMul", [x, writer.weight(f"{name}.up.weight", block.up)], f"{name}.up")
    silu = writer.fused("QuickGelu", [gate], f"{name}.silu", alpha=1.0)
    product = writer.node("Mul", [silu, up], f"{name}.product")
    weight = writer.weight(f"{name}.down.weight", block.down)
    return writer.node("MatMul", [product, weight], f"{name}.down")
