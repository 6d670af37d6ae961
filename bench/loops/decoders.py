"""Decoders with a cache: rotary or tabled positions, grouped heads, windows; each method is a place for a fault."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from bench.loops.case import VOCABULARY, Input, Interface

HIDDEN = -1e9


class Decoder(nn.Module):
    """Two layers, rotary positions, grouped heads: (input_ids, attention_mask, past_k0, past_v0, past_k1, past_v1)."""

    heads, groups, width, layers, base = 4, 2, 8, 2, 100.0
    window = 0

    def __init__(self) -> None:
        super().__init__()
        d = 32
        self.embed = nn.Embedding(VOCABULARY, d)
        for layer in range(self.layers):
            self.add_module(f"q{layer}", nn.Linear(d, self.heads * self.width, bias=False))
            self.add_module(f"k{layer}", nn.Linear(d, self.groups * self.width, bias=False))
            self.add_module(f"v{layer}", nn.Linear(d, self.groups * self.width, bias=False))
            self.add_module(f"o{layer}", nn.Linear(self.heads * self.width, d, bias=False))
            self.add_module(f"up{layer}", nn.Linear(d, 2 * d))
            self.add_module(f"down{layer}", nn.Linear(2 * d, d))
            self.add_module(f"norm{layer}", nn.LayerNorm(d))
        self.norm = nn.LayerNorm(d)
        self.head = nn.Linear(d, VOCABULARY, bias=False)

    # What may go wrong, by place

    def positions(self, mask: Tensor, past: int, length: int) -> Tensor:
        return (mask.cumsum(1) - 1).clamp(min=0)[:, past:]

    def frequencies(self, total: int) -> Tensor:
        return self.base ** (
            -torch.arange(0, self.width, 2).to(self.norm.weight.dtype) / self.width
        )

    def rotated(self, x: Tensor, positions: Tensor, total: int) -> Tensor:
        angles = positions.to(x.dtype)[:, None, :, None] * self.frequencies(total)
        half = self.width // 2
        a, b = x[..., :half], x[..., half:]
        cos, sin = angles.cos(), angles.sin()
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def visible(self, mask: Tensor, past: int, length: int, layer: int) -> Tensor:
        queries = past + torch.arange(length)[:, None]
        keys = torch.arange(past + length)[None]
        allowed = keys <= queries
        if self.window:
            allowed = allowed & (queries - keys < self.window)
        return allowed[None, None] & mask[:, None, None, :].bool()

    def grown(self, layer: int, past: Tensor, new: Tensor, role: str) -> tuple[Tensor, Tensor]:
        """What is attended to, and what is returned."""
        whole = torch.cat([past, new], 2)
        return whole, whole

    def spread(self, x: Tensor) -> Tensor:
        """One key for every query head."""
        return x.repeat_interleave(self.heads // self.groups, 1)

    def bias(self, past: int, length: int) -> Tensor | float:
        return 0.0

    def embedded(self, ids: Tensor, positions: Tensor) -> Tensor:
        return self.embed(ids)

    def returned(self, caches: list[Tensor]) -> list[Tensor]:
        return caches

    def scored(self, x: Tensor, past: int, length: int) -> Tensor:
        return self.head(self.norm(x))

    def layer(self, k: int, x: Tensor, past: tuple[Tensor, Tensor], env: dict[str, Any]) -> Any:
        rows, length = x.shape[:2]
        y = getattr(self, f"norm{k}")(x)

        def split(t: Tensor, heads: int) -> Tensor:
            return t.view(rows, length, heads, self.width).transpose(1, 2)

        q = self.rotated(split(getattr(self, f"q{k}")(y), self.heads), env["at"], env["total"])
        key = self.rotated(split(getattr(self, f"k{k}")(y), self.groups), env["at"], env["total"])
        keys, present_key = self.grown(k, past[0], key, "k")
        new = split(getattr(self, f"v{k}")(y), self.groups)
        values, present_value = self.grown(k, past[1], new, "v")
        scores = q @ self.spread(keys).transpose(-1, -2) / math.sqrt(self.width)
        scores = scores + self.bias(env["past"], length)
        allowed = self.visible(env["mask"], env["past"], length, k)
        weights = torch.where(allowed, scores, HIDDEN).softmax(-1)
        mixed = (weights @ self.spread(values)).transpose(1, 2).reshape(rows, length, -1)
        x = x + getattr(self, f"o{k}")(mixed)
        x = x + getattr(self, f"down{k}")(torch.relu(getattr(self, f"up{k}")(x)))
        return x, present_key, present_value

    def held(self, past: Tensor) -> int:
        return past.shape[2]

    def run(self, ids: Tensor, mask: Tensor, caches: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        length, past = ids.shape[1], self.held(caches[0])
        at = self.positions(mask, past, length)
        env = {"mask": mask, "past": past, "at": at, "total": past + length}
        x = self.embedded(ids, at)
        presents: list[Tensor] = []
        for k in range(self.layers):
            x, key, value = self.layer(k, x, (caches[2 * k], caches[2 * k + 1]), env)
            presents += [key, value]
        return (self.scored(x, past, length), *self.returned(presents))

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        past_k0: Tensor,
        past_v0: Tensor,
        past_k1: Tensor,
        past_v1: Tensor,
    ) -> tuple[Tensor, ...]:
        return self.run(input_ids, attention_mask, (past_k0, past_v0, past_k1, past_v1))


class Unmasked(Decoder):
    """The same without a mask: positions follow from the length of the past."""

    def positions(self, mask: Tensor, past: int, length: int) -> Tensor:
        return (past + torch.arange(length))[None]

    def forward(  # type: ignore[override]
        self, input_ids: Tensor, past_k0: Tensor, past_v0: Tensor, past_k1: Tensor, past_v1: Tensor
    ) -> tuple[Tensor, ...]:
        caches = (past_k0, past_v0, past_k1, past_v1)
        total = self.held(past_k0) + input_ids.shape[1]
        return self.run(input_ids, torch.ones(1, total, dtype=torch.int64), caches)


class Tabled(Unmasked):
    """Learned positions of a table that begins anew at its end."""

    most = 40

    def __init__(self) -> None:
        super().__init__()
        self.embed_places = nn.Embedding(self.most, 32)

    def row(self, positions: Tensor) -> Tensor:
        return positions.remainder(self.most)

    def rotated(self, x: Tensor, positions: Tensor, total: int) -> Tensor:
        return x

    def embedded(self, ids: Tensor, positions: Tensor) -> Tensor:
        return self.embed(ids) + self.embed_places(self.row(positions))


class TabledMasked(Decoder):
    """Learned positions, counted from the mask."""

    def __init__(self) -> None:
        super().__init__()
        self.embed_places = nn.Embedding(256, 32)

    def rotated(self, x: Tensor, positions: Tensor, total: int) -> Tensor:
        return x

    def embedded(self, ids: Tensor, positions: Tensor) -> Tensor:
        return self.embed(ids) + self.embed_places(positions)


class TabledPositioned(TabledMasked):
    """The same with both `attention_mask` and `position_ids`."""

    def forward(  # type: ignore[override]
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        position_ids: Tensor,
        past_k0: Tensor,
        past_v0: Tensor,
        past_k1: Tensor,
        past_v1: Tensor,
    ) -> tuple[Tensor, ...]:
        self.given = position_ids
        return self.run(input_ids, attention_mask, (past_k0, past_v0, past_k1, past_v1))

    def positions(self, mask: Tensor, past: int, length: int) -> Tensor:
        return self.given


class Sloped(Unmasked):
    """A bias that falls with the distance, in the place of positions."""

    def rotated(self, x: Tensor, positions: Tensor, total: int) -> Tensor:
        return x

    def bias(self, past: int, length: int) -> Tensor | float:
        distance = (past + torch.arange(length))[:, None] - torch.arange(past + length)[None]
        slopes = 2.0 ** (-torch.arange(1, self.heads + 1)).to(self.norm.weight.dtype)
        return -slopes[:, None, None] * distance


def interface(
    kind: str = "mask",
    *,
    past: str = "past_{w}{l}",
    present: str = "present_{w}{l}",
    shape: tuple[int | str, ...] = ("B", 2, "P", 8),
    dtype: torch.dtype = torch.float32,
) -> Interface:
    """How a decoder is called."""
    pairs = [(w, layer) for layer in range(2) for w in "kv"]
    pasts = [past.format(w=w, l=layer) for w, layer in pairs]
    presents = [present.format(w=w, l=layer) for w, layer in pairs]
    lead = [Input(name="input_ids", kind="tokens", shape=("B", "T"))]
    if kind in ("mask", "positions"):
        lead.append(Input(name="attention_mask", kind="mask", shape=("B", "S")))
    if kind == "positions":
        lead.append(Input(name="position_ids", kind="positions", shape=("B", "T")))
    states = [Input(name=name, kind="state", shape=shape, dtype=dtype) for name in pasts]
    return Interface(
        inputs=(*lead, *states),
        outputs=("logits", *presents),
        loop=dict(zip(presents, pasts, strict=True)),
    )
