"""Faults of decoders with a cache."""

import torch
from torch import Tensor, nn

from bench.loops.case import PROMPT, Planted, seeded
from bench.loops.decoders import (
    Decoder,
    Sloped,
    Tabled,
    TabledMasked,
    TabledPositioned,
    Unmasked,
    interface,
)

UNEVEN = (4, 3, 1, 7, 1, 1)


def planted(
    base: type[nn.Module], wrong: type[nn.Module], kind: str, seed: int, **options: object
) -> Planted:
    """A module and the same weights under a wrong class."""
    module, other = seeded(base(), seed), wrong()
    other.load_state_dict(module.state_dict())
    return Planted(module=module, other=other.eval(), interface=interface(kind), **options)


def newest_missing() -> Planted:
    """The newest token is attended to and comes back as a copy of the one before it."""

    class Wrong(Unmasked):
        def grown(self, layer: int, past: Tensor, new: Tensor, role: str) -> tuple[Tensor, Tensor]:
            whole = torch.cat([past, new], 2)
            return whole, torch.cat([whole[:, :, :-1], whole[:, :, -2:-1]], 2)

    return planted(Unmasked, Wrong, "plain", 1, causes=("cache",))


def rotated_again() -> Planted:
    """The keys of the past are rotated once more at every call."""

    class Wrong(Unmasked):
        def layer(self, k, x, past, env):  # type: ignore[no-untyped-def]
            total = env["past"]
            at = torch.arange(total)[None]
            return super().layer(k, x, (self.rotated(past[0], at, total), past[1]), env)

    return planted(Unmasked, Wrong, "plain", 2, causes=("position", "cache"))


def kept_unrotated() -> Planted:
    """Keys are cached before the rotation, and read as if they were rotated."""

    class Wrong(Unmasked):
        def layer(self, k, x, past, env):  # type: ignore[no-untyped-def]
            y, _, value = super().layer(k, x, past, env)
            rows, length = x.shape[:2]
            plain = getattr(self, f"k{k}")(getattr(self, f"norm{k}")(x))
            plain = plain.view(rows, length, self.groups, self.width).transpose(1, 2)
            return y, torch.cat([past[0], plain], 2), value

    return planted(Unmasked, Wrong, "plain", 3, causes=("cache", "position"))


def heads_tiled() -> Planted:
    """Grouped heads are repeated in another order at the second layer."""

    class Wrong(Decoder):
        def spread(self, x: Tensor) -> Tensor:
            return x.repeat(1, self.heads // self.groups, 1, 1)

    return planted(Decoder, Wrong, "mask", 4, causes=("axis-order", "weight-layout", "attribute"))


def first_row_for_all() -> Planted:
    """The cache of the first row comes back for every row."""

    class Wrong(Decoder):
        def returned(self, caches: list[Tensor]) -> list[Tensor]:
            return [cache[:1].expand_as(cache) + 0 for cache in caches]

    return planted(Decoder, Wrong, "mask", 5, causes=("cache",))


def values_of_other_layer() -> Planted:
    """The keys of the two layers come back in each other's place."""

    class Wrong(Unmasked):
        def returned(self, caches: list[Tensor]) -> list[Tensor]:
            return [caches[2], caches[1], caches[0], caches[3]]

    return planted(Unmasked, Wrong, "plain", 6, causes=("cache", "output-order"))


def positions_restart() -> Planted:
    """Every call counts its positions from zero."""

    class Wrong(Unmasked):
        def positions(self, mask: Tensor, past: int, length: int) -> Tensor:
            return torch.arange(length)[None]

    return planted(Unmasked, Wrong, "plain", 7, causes=("position",))


def positions_one_ahead() -> Planted:
    """From the second call on, positions are one too large."""

    class Wrong(Unmasked):
        def positions(self, mask: Tensor, past: int, length: int) -> Tensor:
            ahead = (torch.ones(1, past + 1).cumsum(1) > 1).any().to(torch.int64)
            return (past + ahead + torch.arange(length))[None]

    return planted(Unmasked, Wrong, "plain", 8, causes=("position",))


def positions_of_length() -> Planted:
    """Positions are counted from the length of the mask: padded rows are off."""

    class Wrong(TabledMasked):
        def positions(self, mask: Tensor, past: int, length: int) -> Tensor:
            return (torch.ones_like(mask).cumsum(1) - 1)[:, past:]

    return planted(TabledMasked, Wrong, "mask", 9, left=3, causes=("position",))


def table_clamped() -> Planted:
    """Positions stand still at the table's end, where the module begins anew."""

    class Wrong(Tabled):
        def row(self, positions: Tensor) -> Tensor:
            return positions.clamp(max=self.most - 1)

    return planted(Tabled, Wrong, "plain", 10, causes=("position",))


def base_of_long_context() -> Planted:
    """Frequencies that stretch beyond 24 tokens are frozen at those of the export."""

    class Right(Unmasked):
        def frequencies(self, total: int) -> Tensor:
            plain = super().frequencies(total)
            length = torch.ones(total).sum()
            return plain * (24.0 / torch.clamp(length, min=24.0))

    class Wrong(Right):
        def frequencies(self, total: int) -> Tensor:
            return Unmasked.frequencies(self, total)

    return planted(Right, Wrong, "plain", 11, causes=("baked-value", "baked-branch", "position"))


def slope_of_the_call() -> Planted:
    """Distances are taken to the start of the call, not of the text."""

    class Wrong(Sloped):
        def bias(self, past: int, length: int) -> Tensor | float:
            distance = torch.arange(length)[:, None] - torch.arange(past + length)[None]
            slopes = 2.0 ** (-torch.arange(1, self.heads + 1)).to(self.norm.weight.dtype)
            return -slopes[:, None, None] * distance.abs()

    return planted(Sloped, Wrong, "plain", 12, causes=("position",))


def causal_only_without_past() -> Planted:
    """With a past, the tokens of one call see each other in both directions."""

    class Wrong(Unmasked):
        def visible(self, mask: Tensor, past: int, length: int, layer: int) -> Tensor:
            allowed = super().visible(mask, past, length, layer)
            has_past = torch.ones(1, past + 1).sum() > 1
            return allowed | has_past

    return planted(Unmasked, Wrong, "plain", 13, lengths=UNEVEN, causes=("masking",))


def mask_top_left() -> Planted:
    """The causal mask is aligned to the first key in the place of the last."""

    class Wrong(Unmasked):
        def visible(self, mask: Tensor, past: int, length: int, layer: int) -> Tensor:
            keys, queries = torch.arange(past + length)[None], torch.arange(length)[:, None]
            return (keys <= queries)[None, None] & mask[:, None, None, :].bool()

    return planted(Unmasked, Wrong, "plain", 14, causes=("masking",))


def window_at_second_layer() -> Planted:
    """The second layer has a window of 20 that the file lacks."""

    class Right(Decoder):
        def visible(self, mask: Tensor, past: int, length: int, layer: int) -> Tensor:
            self.window = 20 * layer
            return super().visible(mask, past, length, layer)

    return planted(Right, Decoder, "mask", 15, causes=("masking", "comparison"))


def window_longer_at_prefill() -> Planted:
    """The window is one shorter than the module's."""

    class Right(Unmasked):
        window = 12

    class Wrong(Unmasked):
        window = 11

    return planted(Right, Wrong, "plain", 16, causes=("masking", "comparison", "baked-value"))


def sinks_dropped() -> Planted:
    """Beyond 18 tokens the first two, which are always seen, are dropped with the others."""

    class Right(Unmasked):
        def visible(self, mask: Tensor, past: int, length: int, layer: int) -> Tensor:
            queries = past + torch.arange(length)[:, None]
            keys = torch.arange(past + length)[None]
            near = (queries - keys < 18) | (keys < 2)
            return ((keys <= queries) & near)[None, None] & mask[:, None, None, :].bool()

    class Wrong(Unmasked):
        window = 18

    return planted(Right, Wrong, "plain", 17, causes=("masking",))


def position_ids_ignored() -> Planted:
    """The file counts its own positions and drops `position_ids`: wrong where a mask would have shifted them."""

    class Wrong(TabledPositioned):
        def positions(self, mask: Tensor, past: int, length: int) -> Tensor:
            return (past + torch.arange(length))[None] + 0 * self.given

    return planted(TabledPositioned, Wrong, "positions", 18, left=3, causes=("position",))


def cache_kept_in_half_overflows() -> Planted:
    """Values of a wide layer are clipped to 3 on their way into the cache."""

    class Wrong(Unmasked):
        def grown(self, layer: int, past: Tensor, new: Tensor, role: str) -> tuple[Tensor, Tensor]:
            whole = torch.cat([past, new], 2)
            return whole, whole.clamp(-1.5, 1.5)

    return planted(Unmasked, Wrong, "plain", 19, causes=("cache", "clipping"))


def cache_evicts_oldest() -> Planted:
    """The returned cache forgets what is older than 24, and nothing else tells positions."""

    class Wrong(Decoder):
        def returned(self, caches: list[Tensor]) -> list[Tensor]:
            kept = []
            for cache in caches:
                age = torch.arange(cache.shape[2], 0, -1)[None, None, :, None]
                kept.append(torch.where(age > 24, torch.zeros_like(cache), cache))
            return kept

    return planted(Decoder, Wrong, "mask", 20, causes=("cache", "baked-value"))


def logits_of_prompt_end() -> Planted:
    """With a past, logits are scaled as at the first call."""

    class Right(Unmasked):
        def scored(self, x: Tensor, past: int, length: int) -> Tensor:
            count = torch.ones(past + length).sum()
            return super().scored(x, past, length) / torch.sqrt(count)

    class Wrong(Unmasked):
        def scored(self, x: Tensor, past: int, length: int) -> Tensor:
            return super().scored(x, past, length) / torch.sqrt(torch.tensor(7.0))

    return planted(Right, Wrong, "plain", 21, causes=("baked-value", "baked-dimension"))


def half_the_heads_stale() -> Planted:
    """The second head of the value cache is that of the call before."""

    class Wrong(Unmasked):
        def grown(self, layer: int, past: Tensor, new: Tensor, role: str) -> tuple[Tensor, Tensor]:
            whole = torch.cat([past, new], 2)
            if role == "k" or layer == 0:
                return whole, whole
            shifted = torch.cat([whole[:, 1:, :1], whole[:, 1:, :-1]], 2)
            return whole, torch.cat([whole[:, :1], shifted], 1)

    return planted(Unmasked, Wrong, "plain", 22, causes=("cache",))


FAULTS = (
    newest_missing,
    rotated_again,
    kept_unrotated,
    heads_tiled,
    first_row_for_all,
    values_of_other_layer,
    positions_restart,
    positions_one_ahead,
    positions_of_length,
    table_clamped,
    base_of_long_context,
    slope_of_the_call,
    causal_only_without_past,
    mask_top_left,
    window_at_second_layer,
    window_longer_at_prefill,
    sinks_dropped,
    position_ids_ignored,
    cache_kept_in_half_overflows,
    cache_evicts_oldest,
    logits_of_prompt_end,
    half_the_heads_stale,
)
assert PROMPT == 4  # the first bad calls of UNEVEN are measured from there
