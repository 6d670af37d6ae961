"""GPT-2 as the transformers library writes it, with random weights, logits only: Conv1D layers, tanh GELU, causal mask."""

from pathlib import Path

from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel

from bench.clean._healthy import healthy, integers, lengths_mask
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="causal-lm", about="two-layer GPT-2 with a right-padded attention mask")


class Logits(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        config = GPT2Config(
            vocab_size=83,
            n_positions=64,
            n_embd=32,
            n_layer=2,
            n_head=4,
            use_cache=False,
            bos_token_id=0,
            eos_token_id=0,
        )
        config._attn_implementation = "eager"
        self.model = GPT2LMHeadModel(config)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        return self.model(input_ids=ids, attention_mask=mask, use_cache=False).logits


def build(folder: Path) -> Built:
    inputs = (integers(83, 2, 9), lengths_mask([9, 5], 9).long())
    axes = ({0: "batch", 1: "length"}, {0: "batch", 1: "length"})
    return healthy(
        folder / "huggingface_gpt2.onnx", give_weights(Logits(), 134), inputs, axes, dynamo=True
    )
