"""BERT as the transformers library writes it, with random weights: keyword inputs, a ModelOutput with named fields."""

from pathlib import Path

import torch
from transformers import BertConfig, BertModel

from bench.clean._healthy import healthy, integers, lengths_mask
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="embedding", about="two-layer BertModel with pooler, ids, mask and segment ids")


def build(folder: Path) -> Built:
    config = BertConfig(
        vocab_size=99,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=64,
    )
    config._attn_implementation = (
        "eager"  # SDPA exports a wrong answer for rows whose mask is all false
    )
    inputs = {
        "input_ids": integers(99, 2, 10),
        "attention_mask": lengths_mask([10, 6], 10).long(),
        "token_type_ids": torch.tensor([[0] * 5 + [1] * 5] * 2),
    }
    axes = {name: {0: "batch", 1: "length"} for name in inputs}
    return healthy(
        folder / "huggingface_bert.onnx",
        give_weights(BertModel(config), 130),
        inputs,
        axes,
        dynamo=True,
    )
