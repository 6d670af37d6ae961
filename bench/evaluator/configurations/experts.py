"""Mixtures of experts."""

from typing import Any

from bench.evaluator.configurations.draw import Array, Configuration, Draw, configuration


def _attributes(draw: Draw) -> tuple[dict[str, Any], int]:
    """The attributes, and how many times as wide the first layer is."""
    kind = draw.one_of("relu", "gelu", "silu", "identity", "swiglu")
    attributes: dict[str, Any] = {
        "k": draw.size(1, 2),
        "activation_type": kind,
        "normalize_routing_weights": int(draw.coin()),
    }
    if kind != "swiglu":
        return attributes, 1
    attributes |= {"swiglu_fusion": 1, "activation_alpha": 1.702, "activation_beta": 1.0}
    if draw.coin():
        attributes["swiglu_limit"] = 1.5
    return attributes, 2


@configuration("MoE")
def experts(draw: Draw) -> Configuration:
    """Every activation, one or two experts a token."""
    attributes, factor = _attributes(draw)
    count, tokens, hidden, inner = draw.size(2, 5), draw.size(1, 6), 8, 8 * draw.size(1, 3)
    inputs: list[Array | None] = [
        draw.floats(tokens, hidden),
        draw.floats(tokens, count),
        draw.floats(count, factor * inner, hidden),
        draw.maybe(draw.floats(count, factor * inner)),
        draw.floats(count, hidden, inner),
        draw.maybe(draw.floats(count, hidden)),
    ]
    return Configuration(inputs=inputs, attributes=attributes)


@configuration("QMoE")
def quantized_experts(draw: Draw) -> Configuration:
    """4 and 8 bits, a scale for each row or for each block of 32."""
    attributes, factor = _attributes(draw)
    bits = draw.one_of(4, 8)
    attributes |= {"expert_weight_bits": bits, "normalize_routing_weights": 1}
    count, tokens, hidden, inner = draw.size(2, 5), draw.size(1, 6), 32, 32 * draw.size(1, 2)
    first_blocks, second_blocks = (), ()
    if draw.coin():
        attributes["block_size"] = 32
        first_blocks, second_blocks = (hidden // 32,), (inner // 32,)
    size = 0.3 / 2**bits
    inputs: list[Array | None] = [
        draw.floats(tokens, hidden),
        draw.floats(tokens, count),
        draw.bytes(count, factor * inner, hidden * bits // 8),
        draw.scales(count, factor * inner, *first_blocks, size=size),
        draw.maybe(draw.floats(count, factor * inner)),
        draw.bytes(count, hidden, inner * bits // 8),
        draw.scales(count, hidden, *second_blocks, size=size),
        draw.maybe(draw.floats(count, hidden)),
    ]
    # Blocks of 8 bits have a kernel with rounded inputs alone.
    rounds = bits == 8 and "block_size" in attributes
    return Configuration(inputs=inputs, attributes=attributes, rounds=rounds)
