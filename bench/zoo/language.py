"""Encoders and decoders of text."""

from typing import Any

import torch
from torch import Tensor, nn

from bench import architectures as a
from bench.zoo._entry import (
    LM,
    SMALL,
    TEXT,
    OfText,
    configured,
    entry,
    ids,
    normal,
    padded,
    ready,
    text,
    transformers,
)

# ---------------------------------------------------------------- text


@entry("text", TEXT, attention=True)
def bert() -> tuple[nn.Module, Any]:
    """BERT."""
    return text("BertModel", "BertConfig", max_position_embeddings=64, **SMALL)


@entry("text", TEXT, attention=True)
def roberta() -> tuple[nn.Module, Any]:
    """RoBERTa, whose positions are counted from the padding."""
    return text(
        "RobertaModel", "RobertaConfig", max_position_embeddings=64, pad_token_id=1, **SMALL
    )


@entry("text", TEXT, attention=True)
def distilbert() -> tuple[nn.Module, Any]:
    """DistilBERT."""
    return text(
        "DistilBertModel",
        "DistilBertConfig",
        vocab_size=97,
        dim=32,
        hidden_dim=64,
        n_layers=2,
        n_heads=4,
        max_position_embeddings=64,
    )


@entry("text", TEXT, attention=True)
def albert() -> tuple[nn.Module, Any]:
    """ALBERT: one layer, used twice."""
    return text(
        "AlbertModel", "AlbertConfig", embedding_size=16, max_position_embeddings=64, **SMALL
    )


@entry("text", TEXT, attention=True)
def electra() -> tuple[nn.Module, Any]:
    """ELECTRA."""
    return text(
        "ElectraModel", "ElectraConfig", embedding_size=16, max_position_embeddings=64, **SMALL
    )


@entry("text", TEXT)
def deberta_v2() -> tuple[nn.Module, Any]:
    """DeBERTa v2: attention with relative positions."""
    return text(
        "DebertaV2Model",
        "DebertaV2Config",
        max_position_embeddings=64,
        relative_attention=True,
        pos_att_type=["p2c", "c2p"],
        **SMALL,
    )


@entry("text", TEXT, attention=True)
def t5_encoder() -> tuple[nn.Module, Any]:
    """T5's encoder: relative position buckets, RMS norms."""
    return text(
        "T5EncoderModel",
        "T5Config",
        vocab_size=97,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_heads=4,
    )


@entry("text", TEXT, attention=True)
def t5_decoder() -> tuple[nn.Module, Any]:
    """T5's decoder over given encoder states."""
    library = transformers()

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            config = library.T5Config(
                vocab_size=97,
                d_model=32,
                d_kv=8,
                d_ff=64,
                num_layers=2,
                num_heads=4,
                decoder_start_token_id=0,
            )
            self.model = configured(library.T5ForConditionalGeneration, config)

        def forward(
            self, decoder_input_ids: Tensor, encoder_hidden: Tensor, encoder_mask: Tensor
        ) -> Tensor:
            states = library.modeling_outputs.BaseModelOutput(last_hidden_state=encoder_hidden)
            return self.model(
                decoder_input_ids=decoder_input_ids,
                encoder_outputs=states,
                attention_mask=encoder_mask,
                use_cache=False,
            ).logits

    return ready(Decoder()), (ids(97, 2, 5), normal(2, 7, 32), padded(7))


@entry("text", TEXT, attention=True)
def bart_encoder() -> tuple[nn.Module, Any]:
    """BART's encoder: learned positions with an offset."""
    library = transformers()
    config = library.BartConfig(
        vocab_size=97,
        d_model=32,
        encoder_layers=2,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_position_embeddings=64,
    )
    return OfText(
        ready(configured(library.BartModel, config).get_encoder()), "last_hidden_state"
    ), (ids(97, 2, 9), padded(9))


@entry("text", TEXT)
def sentence_encoder() -> tuple[nn.Module, Any]:
    """A sentence embedding by hand: mask, mean, pre-norm blocks."""
    return ready(a.TextEncoder(2)), (ids(97, 2, 9), padded(9, torch.bool))


# ---------------------------------------------------------------- decoders


@entry("decoder", TEXT, attention=True)
def gpt2() -> tuple[nn.Module, Any]:
    """GPT-2."""
    return text(
        "GPT2LMHeadModel",
        "GPT2Config",
        "logits",
        vocab_size=97,
        n_positions=64,
        n_embd=32,
        n_layer=2,
        n_head=4,
        bos_token_id=0,
        eos_token_id=0,
    )


@entry("decoder", TEXT, attention=True)
def gpt_neox() -> tuple[nn.Module, Any]:
    """GPT-NeoX: partial rotary positions, parallel residual."""
    return text(
        "GPTNeoXForCausalLM",
        "GPTNeoXConfig",
        "logits",
        max_position_embeddings=64,
        bos_token_id=0,
        eos_token_id=0,
        **SMALL,
    )


@entry("decoder", TEXT, attention=True)
def opt() -> tuple[nn.Module, Any]:
    """OPT: learned positions from the mask."""
    return text(
        "OPTForCausalLM",
        "OPTConfig",
        "logits",
        vocab_size=97,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        ffn_dim=64,
        max_position_embeddings=64,
        word_embed_proj_dim=32,
        pad_token_id=1,
        bos_token_id=2,
        eos_token_id=2,
    )


@entry("decoder", TEXT, attention=True)
def llama() -> tuple[nn.Module, Any]:
    """Llama: rotary positions, grouped keys, gated feed-forward."""
    return text("LlamaForCausalLM", "LlamaConfig", "logits", **LM)


class WithPast(nn.Module):
    """A causal model that takes its cache as tensors and hands the new one back."""

    def __init__(self, model: nn.Module, layers: int) -> None:
        super().__init__()
        self.model, self.layers = model, layers

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        past_keys: list[Tensor],
        past_values: list[Tensor],
    ) -> dict[str, Any]:
        library = transformers()
        cache = library.DynamicCache()
        for layer in range(self.layers):
            cache.update(past_keys[layer], past_values[layer], layer)
        given = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            past_key_values=cache,
            use_cache=True,
        )
        kept = given.past_key_values
        return {
            "logits": given.logits,
            "keys": [layer.keys for layer in kept.layers],
            "values": [layer.values for layer in kept.layers],
        }


@entry("decoder", ("batch", "sequence", "past"), attention=True)
def llama_with_cache() -> tuple[nn.Module, Any]:
    """Llama with its KV cache as inputs and outputs."""
    library = transformers()
    model = configured(library.LlamaForCausalLM, library.LlamaConfig(**LM))
    past = [normal(2, 2, 6, 8) for _ in range(2)]
    return WithPast(ready(model), 2), (
        ids(97, 2, 3),
        padded(9),
        past,
        [tensor + 1 for tensor in past],
    )


@entry("decoder", TEXT, attention=True)
def mistral_sliding() -> tuple[nn.Module, Any]:
    """Mistral with a sliding window shorter than the text."""
    return text("MistralForCausalLM", "MistralConfig", "logits", sliding_window=4, **LM)


@entry("decoder", TEXT, attention=True)
def qwen2() -> tuple[nn.Module, Any]:
    """Qwen 2."""
    return text("Qwen2ForCausalLM", "Qwen2Config", "logits", **LM)


@entry("decoder", TEXT, attention=True)
def gemma() -> tuple[nn.Module, Any]:
    """Gemma: scaled embeddings, one more than the RMS weight."""
    return text("GemmaForCausalLM", "GemmaConfig", "logits", head_dim=8, **LM)


@entry("decoder", TEXT, attention=True)
def phi() -> tuple[nn.Module, Any]:
    """Phi: partial rotary positions, LayerNorm, biases."""
    return text("PhiForCausalLM", "PhiConfig", "logits", **LM)


@entry("decoder", TEXT, attention=True)
def mixtral() -> tuple[nn.Module, Any]:
    """Mixtral: a mixture of experts, two of four for each token."""
    return text(
        "MixtralForCausalLM",
        "MixtralConfig",
        "logits",
        num_local_experts=4,
        num_experts_per_tok=2,
        **LM,
    )


@entry("decoder", TEXT, attention=True)
def qwen2_moe() -> tuple[nn.Module, Any]:
    """Qwen 2 MoE: experts beside one that all share."""
    return text(
        "Qwen2MoeForCausalLM",
        "Qwen2MoeConfig",
        "logits",
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=32,
        shared_expert_intermediate_size=32,
        **LM,
    )


@entry("decoder", TEXT)
def cached_by_hand() -> tuple[nn.Module, Any]:
    """A decoder step by hand; its cache is one tensor of six dims."""
    return ready(a.CachedCausalLM()), (ids(61, 2, 3), normal(2, 2, 2, 4, 6, 8))


@entry("decoder", TEXT)
def experts_by_hand() -> tuple[nn.Module, Any]:
    """A mixture of experts by hand: top two, gathered."""
    return ready(a.MixtureOfExperts()), (normal(2, 5, 24),)
