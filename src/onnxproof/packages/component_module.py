"""The part of a Hugging Face model that one file of a folder is meant to be, with the file's own input and output names."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from onnxproof.packages.cache_names import CachePlace, cache_place, cache_places, nest
from onnxproof.packages.caches import cache_tensors, make_cache
from onnxproof.packages.examples import hidden_size
from onnxproof.packages.package import Role
from onnxproof.reference import tree


class EncoderModule(nn.Module):
    """The encoder alone."""

    def __init__(self, model: Any, output_names: Sequence[str]) -> None:
        super().__init__()
        self.encoder = model.get_encoder()
        self._output_names = tuple(output_names)

    def forward(self, **inputs: Any) -> dict[str, Tensor]:
        """The hidden states, under the file's first output name."""
        hidden = self.encoder(**inputs, return_dict=True).last_hidden_state
        return {self._output_names[0]: hidden}


class DecoderModule(nn.Module):
    """A decoder's call: with the cache that its inputs hold, or without one."""

    def __init__(
        self, model: Any, role: Role, output_names: Sequence[str], *, padding: bool = True
    ) -> None:
        super().__init__()
        self.model = model
        self._role = role
        self._padding = padding
        self._two_parts = bool(model.config.is_encoder_decoder)
        self._output_names = tuple(output_names)

    def forward(self, **inputs: Any) -> dict[str, Any]:
        """Logits and the new cache, under the file's output names."""
        leaves = dict(tree.flatten(inputs))
        places = cache_places(leaves)
        tensors = {place: leaves.pop(name) for name, place in places.items()}
        _check_mask(leaves, tensors)
        if not self._padding:
            _check_unpadded(leaves, tensors)
        cache = None
        if tensors or any(cache_place(name) for name in self._output_names):
            cache = make_cache(tensors, two_parts=self._two_parts)
        arguments = self._arguments(leaves, tensors)
        if cache is not None:
            arguments |= {"past_key_values": cache, "use_cache": True}
        answer = self.model(**arguments, return_dict=True)
        return nest(self._named(answer))

    def _arguments(
        self, leaves: Mapping[str, Tensor], tensors: Mapping[CachePlace, Tensor]
    ) -> dict[str, Any]:
        """The file's inputs by the names that the whole model's `forward` has for them."""
        arguments: dict[str, Any] = dict(leaves)
        if not self._two_parts:
            return arguments
        hidden = arguments.pop("encoder_hidden_states", None)
        if hidden is None:
            hidden = self._unused_hidden_states(tensors)
        arguments["encoder_outputs"] = (hidden,)
        renamed = {
            "input_ids": "decoder_input_ids",
            "attention_mask": "decoder_attention_mask",
            "encoder_attention_mask": "attention_mask",
        }
        return {renamed.get(name, name): value for name, value in arguments.items()}

    def _unused_hidden_states(self, tensors: Mapping[CachePlace, Tensor]) -> Tensor:
        """Zeros of the encoder's length: with a cross-attention cache nobody reads them, and `forward` asks for them."""
        keys = tensors[CachePlace(layer=0, cross=True)]
        return keys.new_zeros(keys.shape[0], keys.shape[2], hidden_size(self.model.config))

    def _named(self, answer: Any) -> dict[str, Any]:
        """What the file returns; a cross-attention cache that only passes through is left out."""
        cached: Mapping[CachePlace, Any] = {}
        if answer.get("past_key_values") is not None:
            cached = cache_tensors(answer.past_key_values)
        named: dict[str, Any] = {}
        for name in self._output_names:
            place = cache_place(name)
            if place is None:
                named[name] = answer[name]
            elif not (place.cross and self._role is Role.STEP):
                named[name] = cached[place]
        return named


def _check_mask(leaves: Mapping[str, Tensor], tensors: Mapping[CachePlace, Tensor]) -> None:
    """Refuse a mask that does not cover past and tokens: what such a call would mean nobody has said."""
    keys = tensors.get(CachePlace(layer=0))
    mask, ids = leaves.get("attention_mask"), leaves.get("input_ids")
    if keys is None or mask is None or ids is None:
        return
    torch._check(
        mask.shape[1] == keys.shape[2] + ids.shape[1],
        lambda: "the mask must cover the past and the tokens",
    )


def _check_unpadded(leaves: Mapping[str, Tensor], tensors: Mapping[CachePlace, Tensor]) -> None:
    """Refuse what GroupQueryAttention is not made for: hidden tokens, and several rows that each go on with several tokens."""
    ids, mask = leaves["input_ids"], leaves.get("attention_mask")
    if mask is not None and not bool(mask.all()):
        raise ValueError("a decoder of GroupQueryAttention takes no mask that hides tokens")
    keys = tensors.get(CachePlace(layer=0))
    if keys is None or not keys.shape[2]:
        return
    if ids.shape[0] > 1 and ids.shape[1] > 1:
        raise ValueError("a batch goes on token by token: only one row may go on with several")
