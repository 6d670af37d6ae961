"""Tiny Hugging Face models with random weights, saved as transformers saves them, and a tokenizer."""

import math
from pathlib import Path
from typing import Any

_WORDS = ("a", "b", "the", "model", "word", "fox", "42", "é", "emoji", "caps", "line", "def", "key")


def tiny_model(kind: str, *, seed: int = 0) -> Any:
    """A model whose weights are large enough that its answers depend on every token."""
    import torch
    import transformers

    torch.manual_seed(seed)
    config, model = _CONFIGS[kind]
    made = getattr(transformers, model)(getattr(transformers, config[0])(**config[1])).eval()
    with torch.no_grad():
        for name, weight in made.named_parameters():
            if weight.dim() < 2:
                continue
            table = any(word in name for word in ("embed", "shared", "wte"))
            scale = 1.0 if table else 1 / math.sqrt(weight[0].numel())
            weight.copy_(torch.randn(weight.shape) * scale)
    made.tie_weights()
    return made


def save_tokenizer(folder: Path, *, shift: int = 0) -> None:
    """A tokenizer of words; `shift` gives every word another id."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    ids = {"<unk>": 0, "<s>": 1, "</s>": 2}
    ids |= {word: 3 + (place + shift) % len(_WORDS) for place, word in enumerate(_WORDS)}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    )
    fast.save_pretrained(folder)


_SMALL = {
    "vocab_size": 64,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_PAIR = {
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "decoder_start_token_id": 2,
}
_CONFIGS: dict[str, tuple[tuple[str, dict[str, Any]], str]] = {
    "llama": (
        (
            "LlamaConfig",
            _SMALL
            | {
                "hidden_size": 16,
                "intermediate_size": 24,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
                "num_key_value_heads": 1,
            },
        ),
        "LlamaForCausalLM",
    ),
    "bart": (("BartConfig", _SMALL | _PAIR), "BartForConditionalGeneration"),
    "t5": (
        (
            "T5Config",
            {
                "vocab_size": 64,
                "d_model": 16,
                "d_kv": 8,
                "d_ff": 24,
                "num_layers": 1,
                "num_decoder_layers": 1,
                "num_heads": 2,
                "decoder_start_token_id": 0,
            },
        ),
        "T5ForConditionalGeneration",
    ),
    "whisper": (
        (
            "WhisperConfig",
            {name: value for name, value in _SMALL.items() if "max_position" not in name}
            | _PAIR
            | {
                "max_source_positions": 20,
                "max_target_positions": 64,
                "num_mel_bins": 8,
                "suppress_tokens": [],
                "begin_suppress_tokens": [],
            },
        ),
        "WhisperForConditionalGeneration",
    ),
}
