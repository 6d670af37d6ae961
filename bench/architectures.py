"""Small models of the kinds people deploy: the building blocks of the benchmark cases.

Each is written the way practitioners write it, at a size that runs in milliseconds. Weights are random; call
`corpus.give_weights` to seed them.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

Activation = Callable[[], nn.Module]


class ChannelsFirstLayerNorm(nn.Module):
    """LayerNorm over the channels of an image, as ConvNeXt has it."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


NORMS: dict[str, Callable[[int], nn.Module]] = {
    "batch": nn.BatchNorm2d,
    "group": lambda channels: nn.GroupNorm(4, channels),
    "instance": lambda channels: nn.InstanceNorm2d(channels, affine=True),
    "layer": ChannelsFirstLayerNorm,
    "none": lambda channels: nn.Identity(),
}


class ConvNet(nn.Module):
    """Residual conv blocks with a chosen norm and activation, then a pooled linear head."""

    def __init__(
        self,
        norm: str = "batch",
        activation: Activation = nn.ReLU,
        *,
        width: int = 16,
        depth: int = 3,
        classes: int = 10,
    ) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, stride=2, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, width, 3, padding=1), NORMS[norm](width), activation())
            for _ in range(depth)
        )
        self.head = nn.Linear(width, classes)

    def forward(self, image: Tensor) -> Tensor:
        x = self.stem(image)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x.mean((2, 3)))


class SelfAttention(nn.Module):
    """Multi-head attention spelled out: two matmuls and a softmax; `mask` is true where a key may be seen."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            self.qkv(x)
            .view(batch, length, 3, self.heads, width // self.heads)
            .permute(2, 0, 3, 1, 4)
        )
        scores = q @ k.transpose(-2, -1) / math.sqrt(width // self.heads)
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None, None, :], -1e4)
        mixed = scores.softmax(-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class SdpaAttention(SelfAttention):
    """The same attention through `scaled_dot_product_attention`, causal by choice."""

    def __init__(self, width: int, heads: int, *, causal: bool = False) -> None:
        super().__init__(width, heads)
        self.causal = causal

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            self.qkv(x)
            .view(batch, length, 3, self.heads, width // self.heads)
            .permute(2, 0, 3, 1, 4)
        )
        seen = None if mask is None else mask[:, None, None, :]
        mixed = functional.scaled_dot_product_attention(
            q, k, v, attn_mask=seen, is_causal=self.causal
        )
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class TransformerBlock(nn.Module):
    """Attention and a feed-forward part, normalised before (pre-LN) or after (post-LN) each."""

    def __init__(
        self,
        width: int,
        attention: nn.Module,
        *,
        pre_norm: bool = True,
        activation: Activation = nn.GELU,
    ) -> None:
        super().__init__()
        self.pre_norm = pre_norm
        self.attention = attention
        self.feed = nn.Sequential(
            nn.Linear(width, 2 * width), activation(), nn.Linear(2 * width, width)
        )
        self.norm1 = nn.LayerNorm(width)
        self.norm2 = nn.LayerNorm(width)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if self.pre_norm:
            x = x + self.attention(self.norm1(x), mask)
            return x + self.feed(self.norm2(x))
        x = self.norm1(x + self.attention(x, mask))
        return self.norm2(x + self.feed(x))


class TransformerStack(nn.Module):
    """`depth` blocks over ready-made features."""

    def __init__(
        self,
        depth: int,
        *,
        width: int = 32,
        heads: int = 4,
        pre_norm: bool = True,
        activation: Activation = nn.GELU,
    ) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            TransformerBlock(
                width, SelfAttention(width, heads), pre_norm=pre_norm, activation=activation
            )
            for _ in range(depth)
        )
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return self.norm(x)


class TextEncoder(nn.Module):
    """Token ids and a mask in, one mean-pooled vector a text out: the sentence-embedding shape."""

    def __init__(
        self,
        depth: int,
        *,
        vocabulary: int = 97,
        width: int = 32,
        heads: int = 4,
        pre_norm: bool = True,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(128, width)
        self.blocks = nn.ModuleList(
            TransformerBlock(width, SelfAttention(width, heads), pre_norm=pre_norm)
            for _ in range(depth)
        )

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x, mask)
        weight = mask.unsqueeze(-1).to(x.dtype)
        return (x * weight).sum(1) / weight.sum(1).clamp(min=1)


class RmsNorm(nn.Module):
    """Root-mean-square norm with a gain."""

    def __init__(self, width: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def rotate(x: Tensor, angles: Tensor) -> Tensor:
    """Rotary position embedding: rotate each half-pair of the last axis by its angle."""
    first, second = x.chunk(2, -1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([first * cos - second * sin, first * sin + second * cos], -1)


class RotaryBlock(nn.Module):
    """RMSNorm, rotary causal attention and a SwiGLU feed-forward part: the block of today's language models."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = RmsNorm(width), RmsNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate = nn.Linear(width, 2 * width, bias=False)
        self.up = nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)
        size = width // heads
        self.register_buffer(
            "rates", 10000.0 ** (-torch.arange(0, size, 2) / size), persistent=False
        )

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            self.qkv(self.norm1(x))
            .view(batch, length, 3, self.heads, width // self.heads)
            .permute(2, 0, 3, 1, 4)
        )
        angles = torch.arange(length, device=x.device).to(x.dtype)[:, None] * self.rates
        causal = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
        scores = (
            rotate(q, angles) @ rotate(k, angles).transpose(-2, -1) / math.sqrt(width // self.heads)
        )
        mixed = scores.masked_fill(~causal, -1e4).softmax(-1) @ v
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        hidden = self.norm2(x)
        return x + self.down(functional.silu(self.gate(hidden)) * self.up(hidden))


class CachedCausalLM(nn.Module):
    """One decoding step: new ids and the keys and values so far in, logits and the grown cache out."""

    def __init__(
        self, *, vocabulary: int = 61, width: int = 32, heads: int = 4, layers: int = 2
    ) -> None:
        super().__init__()
        self.heads = heads
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(256, width)
        self.qkv = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(layers))
        self.out = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers + 1))

    def forward(self, ids: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        """`past` is (layers, 2, batch, heads, seen, size)."""
        batch, length = ids.shape
        seen = past.shape[4]
        position = torch.arange(length, device=ids.device) + seen
        causal = torch.arange(seen + length, device=ids.device)[None, :] <= position[:, None]
        x = self.tokens(ids) + self.positions(position)
        cache = []
        for layer, (qkv, out) in enumerate(zip(self.qkv, self.out, strict=True)):
            q, k, v = (
                qkv(self.norms[layer](x))
                .view(batch, length, 3, self.heads, past.shape[-1])
                .permute(2, 0, 3, 1, 4)
            )
            k, v = torch.cat([past[layer, 0], k], 2), torch.cat([past[layer, 1], v], 2)
            scores = (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).masked_fill(~causal, -1e4)
            x = x + out((scores.softmax(-1) @ v).transpose(1, 2).reshape(x.shape))
            cache.append(torch.stack([k, v]))
        return functional.linear(self.norms[-1](x), self.tokens.weight), torch.stack(cache)


class VisionTransformer(nn.Module):
    """Patches by a strided conv, a class token, learned positions."""

    def __init__(
        self, depth: int = 4, *, image: int = 32, patch: int = 8, width: int = 32, classes: int = 10
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, (image // patch) ** 2 + 1, width))
        self.stack = TransformerStack(depth, width=width)
        self.head = nn.Linear(width, classes)

    def forward(self, image: Tensor) -> Tensor:
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.positions
        return self.head(self.stack(x)[:, 0])


class UNet(nn.Module):
    """Two levels down by pooling, two up by `interpolate`, with skips; height and width must divide by four."""

    def __init__(
        self,
        mode: str = "bilinear",
        *,
        align_corners: bool | None = None,
        width: int = 8,
        norm: str = "batch",
    ) -> None:
        super().__init__()
        self.mode, self.align_corners = mode, align_corners

        def stage(before: int, after: int) -> nn.Sequential:
            return nn.Sequential(
                nn.Conv2d(before, after, 3, padding=1), NORMS[norm](after), nn.ReLU()
            )

        self.down1, self.down2, self.bottom = (
            stage(3, width),
            stage(width, 2 * width),
            stage(2 * width, 4 * width),
        )
        self.up2, self.up1 = stage(6 * width, 2 * width), stage(3 * width, width)
        self.head = nn.Conv2d(width, 2, 1)

    def grow(self, x: Tensor) -> Tensor:
        return functional.interpolate(
            x, scale_factor=2.0, mode=self.mode, align_corners=self.align_corners
        )

    def forward(self, image: Tensor) -> Tensor:
        first = self.down1(image)
        second = self.down2(functional.max_pool2d(first, 2))
        bottom = self.bottom(functional.max_pool2d(second, 2))
        x = self.up2(torch.cat([self.grow(bottom), second], 1))
        return self.head(self.up1(torch.cat([self.grow(x), first], 1)))


class RecurrentTagger(nn.Module):
    """Embedding, a stack of LSTM, GRU or RNN layers, a label a token."""

    def __init__(
        self,
        cell: type[nn.RNNBase],
        *,
        layers: int = 2,
        bidirectional: bool = True,
        hidden: int = 24,
        labels: int = 7,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(53, 16)
        self.recurrent = cell(
            16, hidden, num_layers=layers, bidirectional=bidirectional, batch_first=True
        )
        self.head = nn.Linear(hidden * (2 if bidirectional else 1), labels)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.recurrent(self.tokens(ids))[0])


class Detector(nn.Module):
    """A conv backbone and a dense head: the `keep` best boxes, clamped to the image, with score and label."""

    def __init__(self, *, classes: int = 5, width: int = 12, keep: int = 10) -> None:
        super().__init__()
        self.classes, self.keep = classes, keep
        self.backbone = nn.Sequential(
            nn.Conv2d(3, width, 3, 2, 1), nn.SiLU(), nn.Conv2d(width, width, 3, 2, 1), nn.SiLU()
        )
        self.scores = nn.Conv2d(width, classes, 1)
        self.boxes = nn.Conv2d(width, 4, 1)

    def dense(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Scores (batch, places, classes) and boxes (batch, places, 4) before anything is chosen."""
        x = self.backbone(image)
        return self.scores(x).flatten(2).transpose(1, 2).sigmoid(), self.boxes(x).flatten(
            2
        ).transpose(1, 2)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        scores, boxes = self.dense(image)
        best, label = scores.max(-1)
        kept, index = best.topk(self.keep, dim=1)
        chosen = boxes.gather(1, index.unsqueeze(-1).expand(-1, -1, 4)) * 32 + 16
        return chosen.clamp(0, 32), kept, label.gather(1, index)


class Spectrum(nn.Module):
    """A short-time Fourier transform as two convolutions: real and imaginary part, without complex numbers."""

    def __init__(self, window: int = 64, hop: int = 16) -> None:
        super().__init__()
        self.hop = hop
        time = torch.arange(window, dtype=torch.float64)
        angles = (
            2
            * math.pi
            * torch.arange(window // 2 + 1, dtype=torch.float64)[:, None]
            * time
            / window
        )
        taper = torch.hann_window(window, dtype=torch.float64)
        self.register_buffer("real", (angles.cos() * taper).float()[:, None])
        self.register_buffer("imaginary", (-angles.sin() * taper).float()[:, None])

    def forward(self, wave: Tensor) -> tuple[Tensor, Tensor]:
        wave = wave[:, None]
        return functional.conv1d(wave, self.real, stride=self.hop), functional.conv1d(
            wave, self.imaginary, stride=self.hop
        )


class LogMel(nn.Module):
    """Power spectrum, a triangular filter bank, a logarithm: the front end of most speech models."""

    def __init__(self, bands: int = 12, floor: float = 1e-6) -> None:
        super().__init__()
        self.spectrum = Spectrum()
        self.floor = floor
        centres = torch.linspace(1, 32, bands + 2)
        bins = torch.arange(33.0)
        rising = (bins - centres[:-2, None]) / (centres[1:-1] - centres[:-2])[:, None]
        falling = (centres[2:, None] - bins) / (centres[2:] - centres[1:-1])[:, None]
        self.register_buffer("filters", torch.minimum(rising, falling).clamp(min=0))

    def forward(self, wave: Tensor) -> Tensor:
        real, imaginary = self.spectrum(wave)
        return torch.log(self.filters @ (real**2 + imaginary**2) + self.floor)


class Tabular(nn.Module):
    """Category embeddings beside normalised numbers, then an MLP."""

    def __init__(
        self, sizes: tuple[int, ...] = (7, 12, 31), numbers: int = 6, *, outputs: int = 3
    ) -> None:
        super().__init__()
        self.embeddings = nn.ModuleList(nn.Embedding(size, 8) for size in sizes)
        self.norm = nn.BatchNorm1d(numbers)
        self.mlp = nn.Sequential(
            nn.Linear(8 * len(sizes) + numbers, 48),
            nn.ReLU(),
            nn.BatchNorm1d(48),
            nn.Linear(48, outputs),
        )

    def forward(self, categories: Tensor, numbers: Tensor) -> Tensor:
        embedded = [embedding(categories[:, k]) for k, embedding in enumerate(self.embeddings)]
        return self.mlp(torch.cat([*embedded, self.norm(numbers)], 1))


class MessagePassing(nn.Module):
    """Each node adds what its neighbours send: `scatter_add` or `index_add` with repeated indices."""

    def __init__(self, width: int = 16, layers: int = 3, *, use_scatter: bool = True) -> None:
        super().__init__()
        self.use_scatter = use_scatter
        self.send = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(layers))
        self.update = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(layers))

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        source, target = edges[0], edges[1]
        for send, update in zip(self.send, self.update, strict=True):
            message = torch.relu(send(torch.cat([nodes[source], nodes[target]], 1)))
            zero = torch.zeros_like(nodes)
            if self.use_scatter:
                gathered = zero.scatter_add(0, target[:, None].expand_as(message), message)
            else:
                gathered = zero.index_add(0, target, message)
            nodes = torch.tanh(update(torch.cat([nodes, gathered], 1)))
        return nodes


class MixtureOfExperts(nn.Module):
    """A router picks `top` experts a token; all run, the unchosen weigh zero, as exportable code does it."""

    def __init__(self, width: int = 24, experts: int = 6, top: int = 2) -> None:
        super().__init__()
        self.top = top
        self.router = nn.Linear(width, experts)
        self.inner = nn.Parameter(torch.randn(experts, width, 2 * width))
        self.outer = nn.Parameter(torch.randn(experts, 2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        logits = self.router(x)
        best, index = logits.topk(self.top, dim=-1)
        weights = torch.zeros_like(logits).scatter(-1, index, best.softmax(-1))
        hidden = functional.gelu(torch.einsum("btw,ewh->bteh", x, self.inner))
        return torch.einsum("bteh,ehw,bte->btw", hidden, self.outer, weights)
