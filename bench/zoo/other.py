"""Images, sound, sequences, graphs and tables."""

from typing import Any

import torch
from torch import Tensor, nn

from bench import architectures as a
from bench.zoo._entry import (
    BATCH,
    IMAGE,
    SMALL,
    TEXT,
    OfSound,
    configured,
    entry,
    ids,
    images,
    normal,
    ready,
    transformers,
)

# ---------------------------------------------------------------- vision


@entry("vision", BATCH, attention=True)
def vit() -> tuple[nn.Module, Any]:
    """ViT."""
    return images(
        "ViTModel",
        "ViTConfig",
        image_size=32,
        patch_size=8,
        **{k: v for k, v in SMALL.items() if k != "vocab_size"},
    )


@entry("vision", BATCH, attention=True)
def deit() -> tuple[nn.Module, Any]:
    """DeiT, with its distillation token."""
    return images(
        "DeiTModel",
        "DeiTConfig",
        image_size=32,
        patch_size=8,
        **{k: v for k, v in SMALL.items() if k != "vocab_size"},
    )


@entry("vision", BATCH)
def swin() -> tuple[nn.Module, Any]:
    """Swin: shifted windows."""
    return images(
        "SwinModel",
        "SwinConfig",
        image_size=32,
        patch_size=2,
        embed_dim=16,
        depths=[1, 1],
        num_heads=[2, 2],
        window_size=4,
    )


@entry("vision", IMAGE)
def convnext() -> tuple[nn.Module, Any]:
    """ConvNeXt."""
    return images(
        "ConvNextModel", "ConvNextConfig", hidden_sizes=[8, 16], depths=[1, 1], num_stages=2
    )


@entry("vision", IMAGE)
def resnet() -> tuple[nn.Module, Any]:
    """ResNet."""
    return images(
        "ResNetModel",
        "ResNetConfig",
        "pooler_output",
        embedding_size=8,
        hidden_sizes=[8, 16],
        depths=[1, 1],
        layer_type="basic",
    )


@entry("vision", IMAGE)
def mobilenet_v2() -> tuple[nn.Module, Any]:
    """MobileNet v2: depthwise convolutions, ReLU6."""
    return images(
        "MobileNetV2Model",
        "MobileNetV2Config",
        "pooler_output",
        depth_multiplier=0.25,
        image_size=32,
    )


@entry("vision", BATCH)
def segformer() -> tuple[nn.Module, Any]:
    """SegFormer."""
    return images(
        "SegformerModel",
        "SegformerConfig",
        num_encoder_blocks=2,
        depths=[1, 1],
        sr_ratios=[2, 1],
        hidden_sizes=[8, 16],
        patch_sizes=[7, 3],
        strides=[4, 2],
        num_attention_heads=[1, 2],
        mlp_ratios=[2, 2],
    )


@entry("vision", BATCH, attention=True)
def clip_vision() -> tuple[nn.Module, Any]:
    """CLIP's image tower."""
    return images(
        "CLIPVisionModel",
        "CLIPVisionConfig",
        "pooler_output",
        image_size=32,
        patch_size=8,
        **{k: v for k, v in SMALL.items() if k != "vocab_size"},
    )


@entry("vision", BATCH)
def vit_by_hand() -> tuple[nn.Module, Any]:
    """A vision transformer by hand."""
    return ready(a.VisionTransformer(2)), (normal(2, 3, 32, 32),)


@entry("vision", IMAGE)
def conv_net() -> tuple[nn.Module, Any]:
    """A residual conv net by hand, BatchNorm and ReLU."""
    return ready(a.ConvNet("batch", depth=3)), (normal(2, 3, 16, 16),)


@entry("vision", IMAGE)
def unet_bilinear() -> tuple[nn.Module, Any]:
    """A UNet with bilinear upsampling."""
    return ready(a.UNet("bilinear")), (normal(2, 3, 16, 16),)


@entry("vision", IMAGE)
def unet_nearest() -> tuple[nn.Module, Any]:
    """A UNet with nearest upsampling and instance norms."""
    return ready(a.UNet("nearest", norm="instance")), (normal(2, 3, 16, 16),)


@entry("vision", BATCH)
def detector() -> tuple[nn.Module, Any]:
    """A detector head: boxes and scores, the best ten."""
    return ready(a.Detector()), (normal(2, 3, 32, 32),)


@entry("vision", BATCH)
def mlp_mixer() -> tuple[nn.Module, Any]:
    """An MLP mixer: linear layers over the patches."""

    class Mixer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patches, self.norm = nn.Conv2d(3, 16, 8, 8), nn.LayerNorm(16)
            self.across, self.along, self.out = (
                nn.Linear(16, 16),
                nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)),
                nn.Linear(16, 5),
            )

        def forward(self, x: Tensor) -> Tensor:
            x = self.patches(x).flatten(2).transpose(1, 2)
            x = x + self.across(self.norm(x).transpose(1, 2)).transpose(1, 2)
            return self.out((x + self.along(x)).mean(1))

    return ready(Mixer()), (normal(2, 3, 32, 32),)


@entry("vision", IMAGE)
def superresolution() -> tuple[nn.Module, Any]:
    """Sub-pixel upscaling."""
    return ready(
        nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1),
            nn.PReLU(),
            nn.Conv2d(16, 12, 3, padding=1),
            nn.PixelShuffle(2),
        )
    ), (normal(2, 3, 12, 12),)


@entry("vision", ("batch", "depth", "height", "width"))
def video_conv() -> tuple[nn.Module, Any]:
    """3-D convolutions over a clip."""
    return ready(
        nn.Sequential(
            nn.Conv3d(3, 6, 3, padding=1),
            nn.BatchNorm3d(6),
            nn.ReLU(),
            nn.AdaptiveAvgPool3d(1),
            nn.Flatten(),
            nn.Linear(6, 4),
        )
    ), (normal(2, 3, 5, 12, 12),)


# ---------------------------------------------------------------- sound and sequences


@entry("sound", BATCH, attention=True)
def whisper_encoder() -> tuple[nn.Module, Any]:
    """Whisper's encoder."""
    library = transformers()
    config = library.WhisperConfig(
        vocab_size=97,
        d_model=32,
        encoder_layers=2,
        encoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_layers=1,
        decoder_attention_heads=4,
        decoder_ffn_dim=64,
        num_mel_bins=8,
        max_source_positions=16,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    return OfSound(
        ready(configured(library.WhisperModel, config).get_encoder()), "last_hidden_state"
    ), (normal(2, 8, 32),)


@entry("sound", ("batch",), attention=True)
def wav2vec2() -> tuple[nn.Module, Any]:
    """wav2vec 2.0: convolutions over the wave, then a transformer."""
    library = transformers()
    config = library.Wav2Vec2Config(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        conv_dim=(16, 16),
        conv_stride=(5, 2),
        conv_kernel=(10, 3),
        num_conv_pos_embeddings=8,
        num_conv_pos_embedding_groups=4,
        num_feat_extract_layers=2,
    )
    return OfSound(ready(configured(library.Wav2Vec2Model, config)), "last_hidden_state"), (
        normal(2, 400),
    )


@entry("sound", BATCH)
def log_mel() -> tuple[nn.Module, Any]:
    """An audio front end: frames, DFT, mel bands, logarithm."""
    return ready(a.LogMel()), (normal(2, 400),)


@entry("sound", ("batch",))
def wavenet() -> tuple[nn.Module, Any]:
    """Dilated causal convolutions with gates."""

    class WaveNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inside = nn.Conv1d(1, 16, 1)
            self.layers = nn.ModuleList(
                nn.Conv1d(16, 32, 2, dilation=2**depth) for depth in range(3)
            )

        def forward(self, x: Tensor) -> Tensor:
            x = self.inside(x)
            for depth, layer in enumerate(self.layers):
                x = x + nn.functional.glu(layer(nn.functional.pad(x, (2**depth, 0))), 1)
            return x.mean(1)

    return ready(WaveNet()), (normal(2, 1, 40),)


@entry("sequence", TEXT)
def lstm_tagger() -> tuple[nn.Module, Any]:
    """A bidirectional LSTM over token ids."""
    return ready(a.RecurrentTagger(nn.LSTM)), (ids(53, 2, 9),)


@entry("sequence", TEXT)
def gru_tagger() -> tuple[nn.Module, Any]:
    """A GRU over token ids."""
    return ready(a.RecurrentTagger(nn.GRU)), (ids(53, 2, 9),)


@entry("sequence", TEXT)
def transformer_layer() -> tuple[nn.Module, Any]:
    """torch's own transformer encoder layer."""
    return ready(
        nn.TransformerEncoder(
            nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2, enable_nested_tensor=False
        )
    ), (normal(2, 9, 32),)


@entry("sequence", TEXT)
def rnn_by_hand() -> tuple[nn.Module, Any]:
    """A recurrent net whose loop is Python: the length is unrolled unless scripting helps."""

    class Steps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inside, self.again = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            state = torch.zeros(x.shape[0], 8)
            for step in range(x.shape[1]):
                state = torch.tanh(self.inside(x[:, step]) + self.again(state))
            return state

    return ready(Steps()), (normal(2, 6, 8),)


# ---------------------------------------------------------------- graphs and tables


@entry("graph", ())
def message_passing() -> tuple[nn.Module, Any]:
    """A graph network by scatter-add; nodes and edges vary."""
    edges = ids(7, 2, 12)
    return ready(a.MessagePassing()), (normal(7, 16), edges)


@entry("table", BATCH)
def tabular() -> tuple[nn.Module, Any]:
    """Embeddings for categories beside numbers."""
    return ready(a.Tabular()), (
        torch.stack([ids(size, 4) for size in (7, 12, 31)], 1),
        normal(4, 6),
    )


@entry("table", BATCH)
def cross_network() -> tuple[nn.Module, Any]:
    """Deep and cross: products of features."""

    class Cross(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.out = (
                nn.Linear(10, 10),
                nn.Linear(10, 10),
                nn.Linear(10, 1),
            )

        def forward(self, x: Tensor) -> Tensor:
            y = x * self.first(x) + x
            return torch.sigmoid(self.out(x * self.second(y) + y))

    return ready(Cross()), (normal(4, 10),)


@entry("table", BATCH)
def two_towers() -> tuple[nn.Module, Any]:
    """Two towers and their cosine."""

    class Towers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.user, self.item = (
                nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 8)),
                nn.EmbeddingBag(50, 8),
            )

        def forward(self, user: Tensor, items: Tensor) -> Tensor:
            return nn.functional.cosine_similarity(self.user(user), self.item(items), dim=-1)

    return ready(Towers()), (normal(4, 6), ids(50, 4, 5))


@entry("table", BATCH)
def autoencoder() -> tuple[nn.Module, Any]:
    """A variational autoencoder in eval mode: the mean, decoded."""

    class Vae(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encode, self.mean, self.spread, self.decode = (
                nn.Linear(12, 16),
                nn.Linear(16, 4),
                nn.Linear(16, 4),
                nn.Linear(4, 12),
            )

        def forward(self, x: Tensor) -> dict[str, Tensor]:
            h = torch.relu(self.encode(x))
            mean, spread = self.mean(h), self.spread(h)
            z = mean + torch.randn_like(mean) * (0.5 * spread).exp() if self.training else mean
            return {"decoded": self.decode(z), "mean": mean, "spread": spread}

    return ready(Vae()), (normal(4, 12),)


@entry("table", BATCH)
def neural_ode() -> tuple[nn.Module, Any]:
    """A fixed number of Runge-Kutta steps."""

    class Ode(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.slope = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 4))

        def forward(self, x: Tensor) -> Tensor:
            for _ in range(8):
                k1 = self.slope(x)
                k2 = self.slope(x + 0.05 * k1)
                x = x + 0.1 * k2
            return x

    return ready(Ode()), (normal(4, 4),)
