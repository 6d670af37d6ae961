"""The parts of a Hugging Face model as modules with the inputs that the files of a folder have."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from onnxproof.packages.component_module import DecoderModule, EncoderModule


class TextEncoder(nn.Module):
    """An encoder of tokens."""

    def __init__(self, core: EncoderModule) -> None:
        super().__init__()
        self.core = core

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
        """The hidden states."""
        return self.core(input_ids=input_ids, attention_mask=attention_mask)  # type: ignore[no-any-return]


class FeatureEncoder(nn.Module):
    """An encoder of a sound's features."""

    def __init__(self, core: EncoderModule) -> None:
        super().__init__()
        self.core = core

    def forward(self, input_features: Tensor) -> dict[str, Tensor]:
        """The hidden states."""
        return self.core(input_features=input_features)  # type: ignore[no-any-return]


class Decoder(nn.Module):
    """A decoder with its cache."""

    def __init__(self, core: DecoderModule) -> None:
        super().__init__()
        self.core = core

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, position_ids: Tensor, past_key_values: Any
    ) -> dict[str, Any]:
        """Logits and the new cache."""
        return self.core(  # type: ignore[no-any-return]
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=past_key_values,
        )


class FirstDecoder(nn.Module):
    """The first call of a decoder that listens to an encoder."""

    def __init__(self, core: DecoderModule) -> None:
        super().__init__()
        self.core = core

    def forward(
        self,
        input_ids: Tensor,
        encoder_hidden_states: Tensor,
        encoder_attention_mask: Tensor | None = None,
    ) -> dict[str, Any]:
        """Logits, and the caches of the tokens and of the encoder's answer."""
        masks = _given(encoder_attention_mask=encoder_attention_mask)
        return self.core(  # type: ignore[no-any-return]
            input_ids=input_ids, encoder_hidden_states=encoder_hidden_states, **masks
        )


class StepDecoder(nn.Module):
    """Every further call of it."""

    def __init__(self, core: DecoderModule) -> None:
        super().__init__()
        self.core = core

    def forward(
        self,
        input_ids: Tensor,
        past_key_values: Any,
        encoder_attention_mask: Tensor | None = None,
    ) -> dict[str, Any]:
        """Logits, and the new cache of the tokens."""
        masks = _given(encoder_attention_mask=encoder_attention_mask)
        return self.core(  # type: ignore[no-any-return]
            input_ids=input_ids, past_key_values=past_key_values, **masks
        )


def _given(**tensors: Tensor | None) -> dict[str, Tensor]:
    """Those that are there."""
    return {name: tensor for name, tensor in tensors.items() if tensor is not None}


def cache_names(layers: int, prefix: str, sides: Sequence[str] = ("",)) -> list[str]:
    """The names of a cache's tensors, as Optimum writes them.

    >>> cache_names(1, "present", ("decoder.",))
    ['present.0.decoder.key', 'present.0.decoder.value']
    """
    kinds = ("key", "value")
    return [
        f"{prefix}.{layer}.{side}{kind}"
        for layer in range(layers)
        for side in sides
        for kind in kinds
    ]
