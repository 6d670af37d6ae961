"""Right files that keep their states, or their roundings, in another way than the module."""

from collections.abc import Sequence

import onnx
import torch
from onnx import TensorProto, helper
from torch import Tensor, nn

from bench.loops.case import Input, Interface, Planted, seeded
from bench.loops.decoders import Decoder, Unmasked, interface


def planted(
    base: type[nn.Module], other: type[nn.Module], calls: Interface, seed: int, **options: object
) -> Planted:
    """A module and a file of another class with the same weights."""
    module, kept = seeded(base(), seed), other()
    kept.load_state_dict(module.state_dict())
    return Planted(module=module, other=kept.eval(), interface=calls, healthy=True, **options)


def time_first() -> Planted:
    """The cache is [length, rows, heads, width]."""

    class Other(Unmasked):
        def held(self, past: Tensor) -> int:
            return past.shape[0]

        def grown(self, layer: int, past: Tensor, new: Tensor, role: str) -> tuple[Tensor, Tensor]:
            whole = torch.cat([past, new.permute(2, 0, 1, 3)], 0)
            return whole.permute(1, 2, 0, 3), whole

    other = interface("plain", shape=("P", "B", 2, 8))
    return planted(Unmasked, Other, interface("plain"), 51, other_interface=other)


def newest_first() -> Planted:
    """New tokens are put before the old ones in the cache."""

    class Other(Unmasked):
        def grown(self, layer: int, past: Tensor, new: Tensor, role: str) -> tuple[Tensor, Tensor]:
            whole = torch.cat([past.flip(2), new], 2)
            return whole, whole.flip(2)

    return planted(Unmasked, Other, interface("plain"), 52)


def keys_scaled() -> Planted:
    """Keys are cached with the scale of the scores."""

    class Other(Unmasked):
        def grown(self, layer: int, past: Tensor, new: Tensor, role: str) -> tuple[Tensor, Tensor]:
            if role == "v":
                return super().grown(layer, past, new, role)
            whole = torch.cat([past, new / 8], 2)
            return whole * 8, whole

    return planted(Unmasked, Other, interface("plain"), 53)


def half_cache() -> Planted:
    """The cache is kept in float16."""

    class Other(Unmasked):
        def grown(self, layer: int, past: Tensor, new: Tensor, role: str) -> tuple[Tensor, Tensor]:
            whole = torch.cat([past, new.half()], 2)
            return whole.float(), whole

    other = interface("plain", dtype=torch.float16)
    return planted(Unmasked, Other, interface("plain"), 54, other_interface=other)


def only_the_window_kept() -> Planted:
    """Of a window of 16, the file keeps no more than the 15 tokens that the next call may see."""

    class Right(Decoder):
        window = 16

    class Other(Right):
        def positions(self, mask: Tensor, past: int, length: int) -> Tensor:
            return (mask.cumsum(1) - 1).clamp(min=0)[:, -length:]

        def visible(self, mask: Tensor, past: int, length: int, layer: int) -> Tensor:
            return super().visible(mask[:, -(past + length) :], past, length, layer)

        def returned(self, caches: list[Tensor]) -> list[Tensor]:
            return [cache[:, :, -15:] for cache in caches]

    return planted(Right, Other, interface("mask"), 55)


def zero_at_padding() -> Planted:
    """What stands at padded places of the cache is zero."""

    class Other(Decoder):
        def layer(self, k, x, past, env):  # type: ignore[no-untyped-def]
            y, key, value = super().layer(k, x, past, env)
            real = env["mask"][:, None, :, None].to(key.dtype)
            return y, key * real, value * real

    return planted(Decoder, Other, interface("mask"), 56)


def near_ties() -> Planted:
    """Pairs of tokens have the same embedding at the head, but for rounding."""

    def tied(planted: Planted) -> Planted:
        for module in (planted.module, planted.other):
            with torch.no_grad():
                head = module.head.weight  # type: ignore[union-attr]
                head[1::2] = head[::2] * (1 + 1e-7)  # type: ignore[index]
        return planted

    return tied(planted(Decoder, Decoder, interface("mask"), 57))


def opaque_names() -> Planted:
    """The names of the states tell nothing."""
    calls = interface("plain", past="a{w}{l}", present="b{w}{l}")
    return planted(_Opaque, _Opaque, calls, 58)


class _Opaque(Unmasked):
    def forward(self, input_ids, ak0, av0, ak1, av1):  # type: ignore[no-untyped-def, override]
        return super().forward(input_ids, ak0, av0, ak1, av1)


def one_tensor() -> Planted:
    """Keys and values of all layers are one tensor."""
    calls = Interface(
        inputs=(
            Input(name="input_ids", kind="tokens", shape=("B", "T")),
            Input(name="cache", kind="state", shape=(4, "B", 2, "P", 8)),
        ),
        outputs=("logits", "cache_out"),
        loop={"cache_out": "cache"},
    )
    return planted(_OneTensor, _OneTensor, calls, 59, dynamo=True)


class _OneTensor(Unmasked):
    def forward(self, input_ids: Tensor, cache: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
        logits, *caches = super().forward(input_ids, cache[0], cache[1], cache[2], cache[3])
        return logits, torch.stack(caches)


def eight_bit_cache() -> Planted:
    """The cache is kept in 8 bits, with one scale for all of it."""

    def edit(model: onnx.ModelProto) -> None:
        _in_eight_bits(model, [p.name for p in model.graph.input if p.name.startswith("past")])

    return planted(Unmasked, Unmasked, interface("plain"), 60, edit=edit)


def _in_eight_bits(model: onnx.ModelProto, names: Sequence[str]) -> None:
    graph = model.graph
    scale = helper.make_tensor("cache_scale", TensorProto.FLOAT, [], [4.5 / 127])
    graph.initializer.append(scale)
    graph.initializer.append(helper.make_tensor("cache_zero", TensorProto.INT8, [], [0]))
    for name in names:
        back = name.replace("past", "present")
        for port in (*graph.input, *graph.output):
            if port.name in (name, back):
                port.type.tensor_type.elem_type = TensorProto.INT8
        for node in graph.node:
            node.input[:] = [f"{n}_wide" if n in (name, back) else n for n in node.input]
            node.output[:] = [f"{n}_wide" if n == back else n for n in node.output]
        wide = helper.make_node(
            "DequantizeLinear", [name, "cache_scale", "cache_zero"], [f"{name}_wide"]
        )
        graph.node.insert(0, wide)
        graph.node.append(
            helper.make_node(
                "QuantizeLinear", [f"{back}_wide", "cache_scale", "cache_zero"], [back]
            )
        )


class Wild(nn.Module):
    """A recurrent net whose rounding doubles at every call."""

    calls = Interface(
        inputs=(
            Input(name="x", kind="frames", shape=("B", "T", 4)),
            Input(name="h_in", kind="state", shape=(1, "B", 24)),
        ),
        outputs=("y", "h_out"),
        loop={"h_out": "h_in"},
    )

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.read = nn.RNN(4, 24, batch_first=True), nn.Linear(24, 5)

    def forward(self, x: Tensor, h_in: Tensor) -> tuple[Tensor, Tensor]:
        y, h = self.cell(x, h_in)
        return self.read(y), h


def chaotic() -> Planted:
    """Rounding doubles at every call, on both sides."""
    built = planted(Wild, Wild, Wild.calls, 61)
    for module in (built.module, built.other):
        with torch.no_grad():
            module.cell.weight_hh_l0.mul_(4.0)  # type: ignore[union-attr, operator]
    return built


HEALTHY = (
    time_first,
    newest_first,
    keys_scaled,
    half_cache,
    only_the_window_kept,
    zero_at_padding,
    near_ties,
    opaque_names,
    one_tensor,
    eight_bit_cache,
    chaotic,
)
