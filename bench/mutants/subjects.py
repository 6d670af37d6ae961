"""The models that are changed: healthy ones of `bench/clean`, small ones of `bench/zoo`, trained ones of other packages."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.corpus import Built

CLEAN = (
    "audio_log_mel",
    "causal_lm_cache",
    "conv_batchnorm_relu",
    "conv_elu_softplus",
    "conv_groupnorm_silu",
    "conv_hardswish_squeeze",
    "conv_instancenorm_leakyrelu",
    "conv_layernorm_gelu",
    "conv_mobile_relu6",
    "conv_superresolution_prelu",
    "conv_wavenet_glu",
    "detector_anchor_decode",
    "detector_topk",
    "discrete_thresholds",
    "experts_top_two",
    "forecast_two_scales",
    "graph_attention",
    "graph_scatter_add",
    "huggingface_bert",
    "huggingface_gpt2",
    "numeric_cosine_neighbours",
    "rnn_gru_deep",
    "rnn_lstm_bidirectional",
    "tabular_cross_network",
    "tabular_embeddings",
    "transformer_cross_keywords",
    "transformer_linear_attention",
    "transformer_pre_norm_six",
    "transformer_rotary_rmsnorm",
    "transformer_sentence_embedding",
    "transformer_stock_layer",
    "unet_aligned_corners",
    "unet_bicubic",
    "unet_nearest",
    "vit_shifted_windows",
    "vit_small",
)
ZOO = (
    "albert_eager",
    "clip_vision_eager",
    "convnext",
    "deberta_v2",
    "distilbert_eager",
    "gpt_neox_eager",
    "llama_eager",
    "mobilenet_v2",
    "qwen2_moe_eager",
    "resnet",
    "segformer",
    "swin",
    "t5_encoder_eager",
    "wav2vec2_eager",
    "whisper_encoder_eager",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectSource:
    """How a subject is built: `build(folder)` exports to the folder unless the file is there."""

    name: str
    build: Callable[[Path], Built]


class NotInstalled(Exception):
    """A package that carries a subject's weights is missing."""


def _clean(name: str, folder: Path) -> Built:
    import importlib

    built: Built = importlib.import_module(f"bench.clean.{name}").build(folder)
    return built


def _zoo(name: str, folder: Path) -> Built:
    import torch

    from bench.zoo import ENTRIES

    torch.manual_seed(0)
    module, inputs = ENTRIES[name].build()
    return export_once(folder / f"{name}.onnx", module, inputs)


def export_once(path: Path, module: Any, inputs: Any, dynamic_shapes: Any = None) -> Built:
    """Export as a user of onnxproof does, unless the file is there."""
    import onnxproof

    if not path.exists():
        onnxproof.export(
            module, inputs, path, dynamic_shapes=dynamic_shapes, explain=False, budget_s=20
        )
    return Built(model=module, example_inputs=inputs, dynamic_shapes=dynamic_shapes, correct=path)


def sources() -> dict[str, SubjectSource]:
    """Every subject by name."""
    from bench.mutants import derived, trained

    builders: dict[str, Callable[[Path], Built]] = {}
    builders.update({name: partial(_clean, name) for name in CLEAN})
    builders.update({f"zoo_{name}": partial(_zoo, name) for name in ZOO})
    builders.update(trained.BUILDERS)
    builders.update(derived.BUILDERS)
    return {name: SubjectSource(name=name, build=build) for name, build in sorted(builders.items())}
