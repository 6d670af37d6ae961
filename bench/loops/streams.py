"""Streaming nets and their faults: recurrent cells, convolutions, scans, predictors, static buffers, counters."""

import math

import torch
from torch import Tensor, nn

from bench.loops.case import VOCABULARY, Input, Interface, Planted, seeded


def planted(base: type[nn.Module], wrong: type[nn.Module], seed: int, **options: object) -> Planted:
    """A net and the same weights under a wrong class; the class says how it is called."""
    module, other = seeded(base(), seed), wrong()
    other.load_state_dict(module.state_dict())
    return Planted(module=module, other=other.eval(), interface=base.calls, **options)  # type: ignore[attr-defined]


def state(name: str, *shape: int | str, dtype: torch.dtype = torch.float32) -> Input:
    return Input(name=name, kind="state", shape=shape, dtype=dtype)


class DeepLstm(nn.Module):
    """Two layers: (x, h, c) -> y, h_next, c_next."""

    calls = Interface(
        inputs=(
            Input(name="x", kind="frames", shape=("B", "T", 6)),
            state("h", 2, "B", 12),
            state("c", 2, "B", 12),
        ),
        outputs=("y", "h_next", "c_next"),
        loop={"h_next": "h", "c_next": "c"},
    )

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.read = nn.LSTM(6, 12, 2, batch_first=True), nn.Linear(12, 5)

    def back(self, before: Tensor, after: Tensor) -> Tensor:
        return after

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        y, (h_next, c_next) = self.cell(x, (h, c))
        return self.read(y), self.back(h, h_next), self.back(c, c_next)


def second_layer_forgets() -> Planted:
    """The states of the second layer come back as they went in."""

    class Wrong(DeepLstm):
        def back(self, before: Tensor, after: Tensor) -> Tensor:
            return torch.cat([after[:1], before[1:]], 0)

    return planted(DeepLstm, Wrong, 31, causes=("cache", "state"))


def layers_exchanged() -> Planted:
    """The states of the two layers come back in each other's place."""

    class Wrong(DeepLstm):
        def back(self, before: Tensor, after: Tensor) -> Tensor:
            return after.flip(0)

    return planted(DeepLstm, Wrong, 32, causes=("cache", "state"))


class Separable(nn.Module):
    """Two causal convolutions, each with its last frames: (frames [rows, time, width], conv0_in, conv1_in)."""

    calls = Interface(
        inputs=(
            Input(name="frames", kind="frames", shape=("B", "T", 6)),
            state("conv0_in", "B", 6, 4),
            state("conv1_in", "B", 8, 2),
        ),
        outputs=("y", "conv0_out", "conv1_out"),
        loop={"conv0_out": "conv0_in", "conv1_out": "conv1_in"},
    )

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv1d(6, 8, 5), nn.Conv1d(8, 8, 3)
        self.read = nn.Linear(8, 4)

    def kept(self, whole: Tensor, count: int, layer: int) -> Tensor:
        return whole[:, :, -count:]

    def forward(self, frames: Tensor, conv0_in: Tensor, conv1_in: Tensor) -> tuple[Tensor, ...]:
        first = torch.cat([conv0_in, frames.transpose(1, 2)], 2)
        x = torch.tanh(self.one(first))
        second = torch.cat([conv1_in, x], 2)
        y = torch.tanh(self.two(second)).transpose(1, 2)
        return self.read(y), self.kept(first, 4, 0), self.kept(second, 2, 1)


def second_buffer_late() -> Planted:
    """The second buffer lacks the newest frame."""

    class Wrong(Separable):
        def kept(self, whole: Tensor, count: int, layer: int) -> Tensor:
            if layer:
                return whole[:, :, -count - 1 : -1]
            return whole[:, :, -count:]

    return planted(Separable, Wrong, 33, causes=("cache", "state"))


def short_call_padded() -> Planted:
    """The buffer is filled from the newest call alone, with zeros where that is too short."""

    class Wrong(Separable):
        def kept(self, whole: Tensor, count: int, layer: int) -> Tensor:
            new = whole[:, :, count:]
            zeros = torch.zeros_like(whole[:, :, :count])
            return torch.cat([zeros, new], 2)[:, :, -count:]

    return planted(Separable, Wrong, 34, causes=("cache", "state"))


class Predictor(nn.Module):
    """The predictor of a transducer: (token [rows, 1], h_in, c_in); a blank (0) leaves the state as it is."""

    calls = Interface(
        inputs=(
            Input(name="token", kind="tokens", shape=("B", 1)),
            state("h_in", 1, "B", 16),
            state("c_in", 1, "B", 16),
        ),
        outputs=("logits", "h_out", "c_out"),
        loop={"h_out": "h_in", "c_out": "c_in"},
        chunk=1,
    )

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 12)
        self.cell, self.read = nn.LSTM(12, 16, batch_first=True), nn.Linear(16, VOCABULARY)

    def keeps(self, token: Tensor) -> Tensor:
        return (token % 5 == 0).view(1, -1, 1)

    def forward(self, token: Tensor, h_in: Tensor, c_in: Tensor) -> tuple[Tensor, ...]:
        y, (h, c) = self.cell(self.embed(token), (h_in, c_in))
        stays = self.keeps(token)
        return self.read(y), torch.where(stays, h_in, h), torch.where(stays, c_in, c)


def blank_moves_state() -> Planted:
    """Every token moves the state, blanks too."""

    class Wrong(Predictor):
        def keeps(self, token: Tensor) -> Tensor:
            return (token < 0).view(1, -1, 1)

    return planted(Predictor, Wrong, 35, causes=("cache", "state", "comparison"))


class Mamba(nn.Module):
    """A selective scan over a call: (u [rows, time, width], conv_state, ssm_state)."""

    calls = Interface(
        inputs=(
            Input(name="u", kind="frames", shape=("B", 1, 6)),
            state("past_conv", "B", 6, 3),
            state("past_ssm", "B", 6, 4),
        ),
        outputs=("y", "present_conv", "present_ssm"),
        loop={"present_conv": "past_conv", "present_ssm": "past_ssm"},
        chunk=1,
    )

    def __init__(self) -> None:
        super().__init__()
        self.decay = nn.Parameter(torch.zeros(6, 4))
        self.step, self.b, self.c = nn.Linear(6, 6), nn.Linear(6, 4), nn.Linear(6, 4)
        self.taps = nn.Parameter(torch.zeros(6, 4))

    def kept(self, ssm: Tensor, decay: Tensor) -> Tensor:
        return ssm

    def window(self, whole: Tensor) -> Tensor:
        return whole[:, :, 1:]

    def forward(self, u: Tensor, past_conv: Tensor, past_ssm: Tensor) -> tuple[Tensor, ...]:
        whole = torch.cat([past_conv, u.transpose(1, 2)], 2)
        x = torch.nn.functional.silu((whole * self.taps).sum(-1))
        step = torch.nn.functional.softplus(self.step(x))[..., None]
        decay = torch.exp(-step * torch.exp(self.decay))
        ssm = decay * past_ssm + step * self.b(x)[:, None] * x[..., None]
        y = (ssm * self.c(x)[:, None]).sum(-1)
        return y[:, None], self.window(whole), self.kept(ssm, decay)


def decays_twice() -> Planted:
    """The state is decayed once more on its way back."""

    class Wrong(Mamba):
        def kept(self, ssm: Tensor, decay: Tensor) -> Tensor:
            return ssm * decay

    return planted(Mamba, Wrong, 36, causes=("cache", "state"))


def convolution_state_stands() -> Planted:
    """The convolution's frames are not shifted: the oldest one stays."""

    class Wrong(Mamba):
        def window(self, whole: Tensor) -> Tensor:
            return torch.cat([whole[:, :, :1], whole[:, :, 2:]], 2)

    return planted(Mamba, Wrong, 37, causes=("cache", "state"))


class Buffered(nn.Module):
    """A buffer of 20 slots that wraps: (input_ids [rows, 1], cache_position [1], key_cache, value_cache)."""

    size = 20
    calls = Interface(
        inputs=(
            Input(name="input_ids", kind="tokens", shape=("B", 1)),
            Input(name="cache_position", kind="start", shape=(1,)),
            state("key_cache", "B", 20, 16),
            state("value_cache", "B", 20, 16),
        ),
        outputs=("logits", "key_cache_out", "value_cache_out"),
        loop={"key_cache_out": "key_cache", "value_cache_out": "value_cache"},
        chunk=1,
    )

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 16)
        self.q, self.k, self.v = (nn.Linear(16, 16) for _ in range(3))
        self.read = nn.Linear(16, VOCABULARY)

    def slot(self, position: Tensor) -> Tensor:
        return position.remainder(self.size)

    def seen(self, position: Tensor) -> Tensor:
        return torch.arange(self.size) <= position

    def forward(
        self, input_ids: Tensor, cache_position: Tensor, key_cache: Tensor, value_cache: Tensor
    ) -> tuple[Tensor, ...]:
        x = self.embed(input_ids)
        here = (torch.arange(self.size) == self.slot(cache_position))[None, :, None]
        keys = torch.where(here, self.k(x), key_cache)
        values = torch.where(here, self.v(x), value_cache)
        scores = self.q(x) @ keys.transpose(1, 2) / math.sqrt(16)
        mixed = torch.where(self.seen(cache_position), scores, -1e9).softmax(-1) @ values
        return self.read(torch.tanh(x + mixed)), keys, values


def slot_ahead() -> Planted:
    """Tokens are written one slot further on."""

    class Wrong(Buffered):
        def slot(self, position: Tensor) -> Tensor:
            return (position + 1).remainder(self.size)

    return planted(Buffered, Wrong, 38, causes=("cache", "position"))


def buffer_never_wraps() -> Planted:
    """Beyond its end, the last slot is written again and again."""

    class Wrong(Buffered):
        def slot(self, position: Tensor) -> Tensor:
            return position.clamp(max=self.size - 1)

    return planted(Buffered, Wrong, 39, causes=("cache", "position"))


def newest_slot_unseen() -> Planted:
    """The newest token does not see itself."""

    class Wrong(Buffered):
        def seen(self, position: Tensor) -> Tensor:
            return torch.arange(self.size) < position

    return planted(Buffered, Wrong, 40, causes=("masking", "comparison"))


class Scheduled(nn.Module):
    """A net whose gain falls with a step counter: (x [rows, width], mem_in, step_in [1])."""

    calls = Interface(
        inputs=(
            Input(name="x", kind="frames", shape=("B", 5)),
            state("mem_in", "B", 8),
            state("step_in", 1, dtype=torch.int64),
        ),
        outputs=("y", "mem_out", "step_out"),
        loop={"mem_out": "mem_in", "step_out": "step_in"},
        chunk=1,
    )

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.read = nn.Linear(5, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def counted(self, step: Tensor) -> Tensor:
        return step + 1

    def gain(self, step: Tensor) -> Tensor:
        return 1 / (1 + step.to(self.read.weight.dtype) / 8)

    def forward(self, x: Tensor, mem_in: Tensor, step_in: Tensor) -> tuple[Tensor, ...]:
        memory = torch.tanh(self.a(x) + self.b(mem_in))
        memory = mem_in + self.gain(step_in) * (memory - mem_in)
        return self.read(memory), memory, self.counted(step_in)


def counter_wraps() -> Planted:
    """The counter wraps at 16."""

    class Wrong(Scheduled):
        def counted(self, step: Tensor) -> Tensor:
            return (step + 1) % 16

    return planted(Scheduled, Wrong, 41, causes=("cache", "state", "integer-width", "baked-value"))


def counter_frozen() -> Planted:
    """The gain was frozen at the example's step."""

    class Wrong(Scheduled):
        def gain(self, step: Tensor) -> Tensor:
            return torch.tensor(1 / 1.5)

    return planted(Scheduled, Wrong, 42, causes=("baked-value",))


class Beams(nn.Module):
    """A decoder step whose caches are first put in the order of the beams: (input_ids, beam_idx, past_k, past_v)."""

    calls = Interface(
        inputs=(
            Input(name="input_ids", kind="tokens", shape=("B", 1)),
            Input(name="beam_idx", kind="rows", shape=("B",), dtype=torch.int64),
            state("past_k", "B", "P", 16),
            state("past_v", "B", "P", 16),
        ),
        outputs=("logits", "present_k", "present_v"),
        loop={"present_k": "past_k", "present_v": "past_v"},
        chunk=1,
    )

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 16)
        self.q, self.k, self.v = (nn.Linear(16, 16) for _ in range(3))
        self.read = nn.Linear(16, VOCABULARY)

    def ordered(self, past: Tensor, beams: Tensor, role: str) -> Tensor:
        return past[beams]

    def forward(
        self, input_ids: Tensor, beam_idx: Tensor, past_k: Tensor, past_v: Tensor
    ) -> tuple[Tensor, ...]:
        x = self.embed(input_ids)
        keys = torch.cat([self.ordered(past_k, beam_idx, "k"), self.k(x)], 1)
        values = torch.cat([self.ordered(past_v, beam_idx, "v"), self.v(x)], 1)
        mixed = (self.q(x) @ keys.transpose(1, 2) / 4).softmax(-1) @ values
        return self.read(torch.tanh(x + mixed)), keys, values


def values_not_reordered() -> Planted:
    """The values stay in the order of the call before."""

    class Wrong(Beams):
        def ordered(self, past: Tensor, beams: Tensor, role: str) -> Tensor:
            return past[beams] if role == "k" else past + 0 * beams.sum()

    return planted(Beams, Wrong, 43, causes=("cache", "missing-op"))


class Energy(nn.Module):
    """Normalised by a running power: (x [rows, time, width], power_in [rows, 1], seen_in [rows, 1])."""

    calls = Interface(
        inputs=(
            Input(name="x", kind="frames", shape=("B", "T", 5)),
            state("power_in", "B", 1),
            state("seen_in", "B", 1),
        ),
        outputs=("y", "power_out", "seen_out"),
        loop={"power_out": "power_in", "seen_out": "seen_in"},
    )

    def __init__(self) -> None:
        super().__init__()
        self.read = nn.Linear(5, 4)

    def mixed(self, before: Tensor, now: Tensor, seen: Tensor, count: Tensor) -> Tensor:
        return (before * seen + now * count) / (seen + count)

    def forward(self, x: Tensor, power_in: Tensor, seen_in: Tensor) -> tuple[Tensor, ...]:
        count = torch.ones_like(x[:, :, :1]).sum(1)
        now = (x * x).mean((1, 2))[:, None]
        power = self.mixed(power_in, now, seen_in, count)
        y = torch.tanh(self.read(x / torch.sqrt(power + 1e-2)[:, None]))
        return y, power, seen_in + count


def calls_counted_alike() -> Planted:
    """Calls are averaged as if each had as many frames as all before it."""

    class Wrong(Energy):
        def mixed(self, before: Tensor, now: Tensor, seen: Tensor, count: Tensor) -> Tensor:
            fresh = (seen == 0).to(now.dtype)
            return fresh * now + (1 - fresh) * (before + now) / 2

    return planted(Energy, Wrong, 44, causes=("state", "cache"))


FAULTS = (
    second_layer_forgets,
    layers_exchanged,
    second_buffer_late,
    short_call_padded,
    blank_moves_state,
    decays_twice,
    convolution_state_stands,
    slot_ahead,
    buffer_never_wraps,
    newest_slot_unseen,
    counter_wraps,
    counter_frozen,
    values_not_reordered,
    calls_counted_alike,
)
