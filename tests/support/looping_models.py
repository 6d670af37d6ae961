"""Small models that feed themselves, right and wrong, each with the call that an exporter gets."""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

B, T, P = 2, 3, 4
"""Rows, tokens of a call and length of the past in the examples."""


def seeded(module: nn.Module, seed: int = 0) -> nn.Module:
    """The module with weights that matter, in eval mode."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        with torch.no_grad():
            scale = 1.5 / math.sqrt(max(1, parameter[0].numel())) if parameter.dim() > 1 else 0.3
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)
    return module.eval()


@dataclass(frozen=True, kw_only=True)
class Looping:
    """A module in a loop, and how it is exported."""

    module: nn.Module
    example: tuple[Any, ...]
    inputs: list[str]
    outputs: list[str]
    dims: tuple[dict[int, str], ...]

    def export(self, path: Path, other: nn.Module | None = None) -> Path:
        """Write the module, or another one in its place."""
        module = other or self.module
        axes = {name: dims for name, dims in zip(self.inputs, self.dims, strict=True) if dims}
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                module.eval(),
                self.example,
                str(path),
                dynamo=False,
                input_names=self.inputs,
                output_names=self.outputs,
                dynamic_axes=axes,
                opset_version=17,
            )
        return path


def with_weights_of(module: nn.Module, kind: Callable[[], nn.Module]) -> nn.Module:
    """Another class with the same weights."""
    other = kind()
    other.load_state_dict(module.state_dict())
    return other.eval()


class Decoder(nn.Module):
    """One layer of attention with a position table: (input_ids, attention_mask, past_key, past_value) -> logits, present_key, present_value."""

    def __init__(
        self, vocabulary: int = 40, width: int = 16, heads: int = 2, most: int = 48
    ) -> None:
        super().__init__()
        self.heads, self.most = heads, most
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(most, width)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.head = nn.Linear(width, vocabulary)

    def positions(self, mask: Tensor, past: int, length: int) -> Tensor:
        return (mask.cumsum(1) - 1).clamp(min=0)[:, past:].remainder(self.most)

    def allowed(self, mask: Tensor, past: int, length: int) -> Tensor:
        queries = past + torch.arange(length)[:, None]
        keys = torch.arange(past + length)[None]
        return (keys <= queries)[None, None] & mask[:, None, None, :].bool()

    def kept(self, past: Tensor, new: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """What is attended to, and what is returned."""
        whole = torch.cat([past, new], 2)
        return whole, whole

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, past_key: Tensor, past_value: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        rows, length = input_ids.shape
        past = past_key.shape[2]
        x = self.tokens(input_ids) + self.places(self.positions(attention_mask, past, length))

        def split(t: Tensor) -> Tensor:
            return t.view(rows, length, self.heads, -1).transpose(1, 2)

        k, present_key = self.kept(past_key, split(self.k(x)), attention_mask)
        v, present_value = self.kept(past_value, split(self.v(x)), attention_mask)
        scores = split(self.q(x)) @ k.transpose(-1, -2) / math.sqrt(k.shape[-1])
        scores = torch.where(self.allowed(attention_mask, past, length), scores, -1e9)
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(rows, length, -1)
        return self.head(torch.tanh(x + self.o(mixed))), present_key, present_value


class LastTokenMissing(Decoder):
    """The newest token is attended to, and never cached."""

    def kept(self, past: Tensor, new: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        whole = torch.cat([past, new], 2)
        return whole, torch.cat([whole[:, :, :-1], whole[:, :, -2:-1]], 2)


class KeyValueExchanged(Decoder):
    """Key and value come back under each other's name."""

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, past_key: Tensor, past_value: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        logits, key, value = super().forward(input_ids, attention_mask, past_key, past_value)
        return logits, value, key


class PositionsFromLength(Decoder):
    """Positions are counted from the length: wrong for padded prompts."""

    def positions(self, mask: Tensor, past: int, length: int) -> Tensor:
        places = (torch.ones_like(mask).cumsum(1) - 1)[:, past:]
        return places.remainder(self.most)


class PositionsClamped(Decoder):
    """Positions stop at the end of the table, where the module begins anew."""

    def positions(self, mask: Tensor, past: int, length: int) -> Tensor:
        return (mask.cumsum(1) - 1).clamp(0, self.most - 1)[:, past:]


class PaddingForgotten(Decoder):
    """Right: what stands at padded places of the cache is zero, and nobody reads it."""

    def kept(self, past: Tensor, new: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        whole = torch.cat([past, new], 2)
        return whole, whole * mask[:, None, :, None].to(whole.dtype)


class CacheTransposed(Decoder):
    """Right: the cache is kept as [rows, length, heads, width]."""

    def kept(self, past: Tensor, new: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        whole = torch.cat([past, new.transpose(1, 2)], 1)
        return whole.transpose(1, 2), whole

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, past_key: Tensor, past_value: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        self.length = past_key.shape[1]
        return super().forward(input_ids, attention_mask, past_key, past_value)

    def positions(self, mask: Tensor, past: int, length: int) -> Tensor:
        return super().positions(mask, self.length, length)

    def allowed(self, mask: Tensor, past: int, length: int) -> Tensor:
        return super().allowed(mask, self.length, length)


class CacheTimeFirst(CacheTransposed):
    """Right: the cache is kept as [length, rows, heads, width]."""

    def kept(self, past: Tensor, new: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        whole = torch.cat([past, new.permute(2, 0, 1, 3)], 0)
        return whole.permute(1, 2, 0, 3), whole

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, past_key: Tensor, past_value: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        self.length = past_key.shape[0]
        return Decoder.forward(self, input_ids, attention_mask, past_key, past_value)


class FirstRowForAll(Decoder):
    """The cache of the first row comes back for every row."""

    def kept(self, past: Tensor, new: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        whole = torch.cat([past, new], 2)
        return whole, whole[:1].expand_as(whole) + 0


class HalfCache(Decoder):
    """Right: the cache is kept in float16."""

    def kept(self, past: Tensor, new: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        whole = torch.cat([past, new.half()], 2)
        return whole.float(), whole


def decoder(module: nn.Module | None = None, **example: Any) -> Looping:
    """The decoder as a user would export it."""
    past = torch.randn(B, 2, P, 8, generator=torch.Generator().manual_seed(5))
    dims = {0: "batch", 2: "past"}
    return Looping(
        module=module or seeded(Decoder()),
        example=(
            torch.arange(1, B * T + 1).reshape(B, T),
            torch.ones(B, P + T, dtype=torch.int64),
            past,
            past + 1,
        ),
        inputs=["input_ids", "attention_mask", "past_key", "past_value"],
        outputs=["logits", "present_key", "present_value"],
        dims=({0: "batch", 1: "seq"}, {0: "batch", 1: "total"}, dims, dims),
    )


class StaticDecoder(nn.Module):
    """A buffer of fixed length with a slot index: (input_ids [rows, 1], cache_position [1], keys, values) -> logits, keys, values."""

    def __init__(self, most: int = 24, width: int = 16) -> None:
        super().__init__()
        self.most = most
        self.tokens = nn.Embedding(40, width)
        self.places = nn.Parameter(torch.zeros(most, width))
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.head = nn.Linear(width, 40)

    def slot(self, position: Tensor) -> Tensor:
        return position

    def forward(
        self, input_ids: Tensor, cache_position: Tensor, key_cache: Tensor, value_cache: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        x = self.tokens(input_ids) + self.places[cache_position]
        here = (torch.arange(self.most) == self.slot(cache_position))[None, :, None]
        keys = torch.where(here, self.k(x), key_cache)
        values = torch.where(here, self.v(x), value_cache)
        scores = self.q(x) @ keys.transpose(1, 2) / 4
        seen = torch.arange(self.most) <= cache_position
        mixed = torch.where(seen, scores, -1e9).softmax(-1) @ values
        return self.head(torch.tanh(x + mixed)), keys, values


class SlotBehind(StaticDecoder):
    """Each token is written over the one before it."""

    def slot(self, position: Tensor) -> Tensor:
        return (position - 1).clamp(min=0)


def static_decoder() -> Looping:
    """The decoder with a buffer, one token a call."""
    cache = torch.zeros(B, 24, 16)
    return Looping(
        module=seeded(StaticDecoder()),
        example=(torch.ones(B, 1, dtype=torch.int64), torch.tensor([3]), cache + 0.1, cache + 0.2),
        inputs=["input_ids", "cache_position", "key_cache", "value_cache"],
        outputs=["logits", "new_key_cache", "new_value_cache"],
        dims=({0: "batch"}, {}, {0: "batch"}, {0: "batch"}),
    )


class Recurrent(nn.Module):
    """A streaming GRU: (x, h_in) -> y, h_out."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.read = nn.GRU(5, 12, batch_first=True), nn.Linear(12, 4)

    def back(self, before: Tensor, after: Tensor) -> Tensor:
        return after

    def forward(self, x: Tensor, h_in: Tensor) -> tuple[Tensor, Tensor]:
        y, h = self.cell(x, h_in)
        return self.read(y), self.back(h_in, h)


class StateHeld(Recurrent):
    """The state that comes back is the one that went in."""

    def back(self, before: Tensor, after: Tensor) -> Tensor:
        return before + 0 * after


def recurrent() -> Looping:
    """The GRU with chunks of frames."""
    return Looping(
        module=seeded(Recurrent()),
        example=(torch.randn(B, T, 5), torch.randn(1, B, 12)),
        inputs=["x", "h_in"],
        outputs=["y", "h_out"],
        dims=({0: "batch", 1: "time"}, {1: "batch"}),
    )


class CausalConv(nn.Module):
    """A causal convolution with its last frames as state: (frames [rows, channels, time], buffer) -> y, new_buffer."""

    def __init__(self, taps: int = 5) -> None:
        super().__init__()
        self.taps = taps
        self.conv, self.read = nn.Conv1d(6, 6, taps), nn.Conv1d(6, 3, 1)

    def back(self, whole: Tensor) -> Tensor:
        return whole[:, :, -(self.taps - 1) :]

    def forward(self, frames: Tensor, buffer: Tensor) -> tuple[Tensor, Tensor]:
        whole = torch.cat([buffer, frames], 2)
        return self.read(torch.tanh(self.conv(whole))), self.back(whole)


class BufferEarly(CausalConv):
    """The state is one frame too old."""

    def back(self, whole: Tensor) -> Tensor:
        return whole[:, :, -self.taps : -1]


def causal_conv() -> Looping:
    """The convolution with chunks of any length."""
    return Looping(
        module=seeded(CausalConv()),
        example=(torch.randn(B, 6, T), torch.randn(B, 6, 4)),
        inputs=["frames", "buffer"],
        outputs=["y", "new_buffer"],
        dims=({0: "batch", 2: "time"}, {0: "batch"}),
    )


class Scan(nn.Module):
    """A selective scan of one step: (u [rows, width], ssm_state, conv_state) -> y, states."""

    def __init__(self, width: int = 6, states: int = 4, taps: int = 3) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.zeros(width, states))
        self.step, self.b, self.c = (
            nn.Linear(width, width),
            nn.Linear(width, states),
            nn.Linear(width, states),
        )
        self.conv = nn.Parameter(torch.zeros(width, taps))

    def shifted(self, state: Tensor, u: Tensor) -> Tensor:
        return torch.cat([state[:, :, 1:], u[:, :, None]], 2)

    def forward(
        self, u: Tensor, ssm_state: Tensor, conv_state: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        conv_state = self.shifted(conv_state, u)
        x = torch.nn.functional.silu((conv_state * self.conv).sum(-1))
        step = torch.nn.functional.softplus(self.step(x))[..., None]
        decay = torch.exp(-step * torch.exp(self.a))
        ssm_state = decay * ssm_state + step * self.b(x)[:, None] * x[..., None]
        return (ssm_state * self.c(x)[:, None]).sum(-1), ssm_state, conv_state


class ConvStateReversed(Scan):
    """New frames enter at the old end."""

    def shifted(self, state: Tensor, u: Tensor) -> Tensor:
        return torch.cat([u[:, :, None], state[:, :, :-1]], 2)


def scan() -> Looping:
    """The scan, one step a call."""
    return Looping(
        module=seeded(Scan()),
        example=(torch.randn(B, 6), torch.randn(B, 6, 4), torch.randn(B, 6, 3)),
        inputs=["u", "ssm_state", "conv_state"],
        outputs=["y", "ssm_state_out", "conv_state_out"],
        dims=({0: "batch"}, {0: "batch"}, {0: "batch"}),
    )


class Ring(nn.Module):
    """A ring buffer with a step counter: (x [rows, width], ring, count) -> y, ring, count."""

    def __init__(self, size: int = 7) -> None:
        super().__init__()
        self.size, self.mix, self.read = size, nn.Linear(4, 4), nn.Linear(4, 3)

    def place(self, count: Tensor) -> Tensor:
        return count.remainder(self.size)

    def counted(self, count: Tensor) -> Tensor:
        return count + 1

    def forward(
        self, x: Tensor, ring_in: Tensor, count_in: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        here = (torch.arange(self.size) == self.place(count_in))[None, :, None]
        ring = torch.where(here, self.mix(x)[:, None], ring_in)
        ages = (torch.arange(self.size) - count_in).remainder(self.size)
        weights = torch.exp(-ages.to(x.dtype) / 3)[None, :, None]
        return self.read(torch.tanh((ring * weights).sum(1))), ring, self.counted(count_in)


class RingTooLong(Ring):
    """The ring wraps one slot too late."""

    def place(self, count: Tensor) -> Tensor:
        return count.remainder(self.size + 1)


class CountStands(Ring):
    """The counter stops at 5."""

    def counted(self, count: Tensor) -> Tensor:
        return (count + 1).clamp(max=5)


def ring() -> Looping:
    """The ring, one frame a call."""
    return Looping(
        module=seeded(Ring()),
        example=(torch.randn(B, 4), torch.randn(B, 7, 4), torch.tensor([3])),
        inputs=["x", "ring_in", "count_in"],
        outputs=["y", "ring_out", "count_out"],
        dims=({0: "batch"}, {0: "batch"}, {}),
    )


class RunningNorm(nn.Module):
    """Normalised by an exponential mean of what came before: (x, mean_in, power_in) -> y, mean_out, power_out."""

    def __init__(self) -> None:
        super().__init__()
        self.read = nn.Linear(5, 4)

    def back(self, before: Tensor, now: Tensor) -> Tensor:
        return 0.9 * before + 0.1 * now

    def forward(
        self, x: Tensor, mean_in: Tensor, power_in: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        mean = self.back(mean_in, x.mean(1))
        power = self.back(power_in, (x * x).mean(1))
        deviation = (power - mean * mean).clamp(min=1e-2).sqrt()
        return torch.tanh(self.read((x - mean[:, None]) / deviation[:, None])), mean, power


class MomentumSwapped(RunningNorm):
    """0.1 of the past and 0.9 of the present."""

    def back(self, before: Tensor, now: Tensor) -> Tensor:
        return 0.1 * before + 0.9 * now


def running_norm() -> Looping:
    """The norm with chunks of frames."""
    return Looping(
        module=seeded(RunningNorm()),
        example=(torch.randn(B, T, 5), torch.randn(B, 5), 2 + torch.rand(B, 5)),
        inputs=["x", "mean_in", "power_in"],
        outputs=["y", "mean_out", "power_out"],
        dims=({0: "batch", 1: "time"}, {0: "batch"}, {0: "batch"}),
    )
