"""Inputs for one file of a folder: real caches and hidden states, made by the reference, and the dims that may vary."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from onnxproof.errors import InputError
from onnxproof.onnxmodel.onnx_file import Port
from onnxproof.packages.cache_names import CachePlace, cache_place, nest
from onnxproof.packages.caches import cache_tensors, make_cache

_BATCH, _TOKENS, _PAST, _SOURCE = 2, 3, 6, 17
"""Sizes of which no two add up to a third, but for the mask of past and tokens: relations between dims are learned from these."""
_FIRST_ID = 3
"""Ids below it are special tokens in most vocabularies."""
_AXES: dict[str, Mapping[int, str]] = {
    "input_ids": {0: "batch", 1: "sequence"},
    "position_ids": {0: "batch", 1: "sequence"},
    "attention_mask": {0: "batch", 1: "total"},
    "decoder_attention_mask": {0: "batch", 1: "total"},
    "encoder_attention_mask": {0: "batch", 1: "source"},
    "encoder_hidden_states": {0: "batch", 1: "source"},
}
_SOURCES: dict[str, Mapping[int, str]] = {
    "input_ids": {0: "batch", 1: "source"},
    "attention_mask": {0: "batch", 1: "source"},
    "inputs_embeds": {0: "batch", 1: "source"},
    "input_values": {0: "batch", 1: "samples"},
    "input_features": {0: "batch"},
    "pixel_values": {0: "batch"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """Inputs as the component's module takes them, and the names of their open dims."""

    inputs: dict[str, Any]
    dims: dict[str, Any]


def encoder_example(model: Any, ports: Sequence[Port]) -> Example:
    """What the encoder is called with."""
    tensors = {port.name: source_tensor(model, port.name, _BATCH, port.dims) for port in ports}
    return _example(tensors, ports, _SOURCES)


def decoder_example(
    model: Any, ports: Sequence[Port], *, padding: bool = True, past: int = _PAST
) -> Example:
    """What a decoder is called with, after `past` tokens where the file takes a cache.

    Without padding there is one row: a batch of GroupQueryAttention goes on token by token alone.
    """
    wanted = {port.name: port for port in ports}
    batch = _BATCH if padding else 1
    source = encoder_states(model, batch)
    if not any(cache_place(port.name) for port in ports):
        past = 0
    cached = _cached(model, source, batch, past)
    tokens = _tokens_per_call(wanted)
    tensors: dict[str, Tensor] = {}
    for port in ports:
        place = cache_place(port.name)
        if place is not None:
            tensors[port.name] = cached[place]
        else:
            tensors[port.name] = _decoder_tensor(model, port.name, source, (batch, past, tokens))
    axes = _AXES if padding else {name: _without_batch(named) for name, named in _AXES.items()}
    return _example(tensors, ports, axes)


def cache_shapes(model: Any) -> dict[CachePlace, tuple[int, int]]:
    """Heads and their width of every tensor of the model's cache."""
    cached = _cached(model, encoder_states(model, 1), 1, 1)
    return {place: (tensor.shape[1], tensor.shape[3]) for place, tensor in cached.items()}


def source_tensor(
    model: Any, name: str, batch: int, dims: Sequence[str | int | None] | None = None
) -> Tensor:
    """Random values for an input of the encoder."""
    generator = torch.Generator().manual_seed(batch)
    if name == "input_ids":
        return random_ids(model, (batch, _SOURCE), generator)
    if name == "attention_mask":
        return torch.ones(batch, _SOURCE, dtype=torch.int64)
    shape = _source_shape(model, name, batch)
    for axis, dim in enumerate(dims or ()):
        if isinstance(dim, int) and axis < len(shape):
            shape[axis] = dim
    return torch.randn(shape, generator=generator)


def _source_shape(model: Any, name: str, batch: int) -> list[int]:
    config = model.config
    if name == "input_features":
        bins = int(getattr(config, "num_mel_bins", 80))
        return [batch, bins, 2 * int(getattr(config, "max_source_positions", 50))]
    if name == "pixel_values":
        vision = getattr(config, "encoder", config)
        size = int(getattr(vision, "image_size", 32))
        return [batch, int(getattr(vision, "num_channels", 3)), size, size]
    if name == "input_values":
        return [batch, 1600]  # a tenth of a second at 16 kHz
    if name == "inputs_embeds":
        return [batch, _SOURCE, hidden_size(config)]
    raise _unknown(name)


def encoder_states(model: Any, batch: int) -> Tensor | None:
    """The encoder's answer to random inputs; None for a model without an encoder."""
    if not model.config.is_encoder_decoder:
        return None
    name = model.main_input_name
    with torch.no_grad():
        answer = model.get_encoder()(**{name: source_tensor(model, name, batch)}, return_dict=True)
    hidden: Tensor = answer.last_hidden_state
    return hidden


def random_ids(model: Any, shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """Ids of ordinary tokens."""
    count = int(model.config.get_text_config(decoder=True).vocab_size)
    return torch.randint(min(_FIRST_ID, count - 1), count, tuple(shape), generator=generator)


def hidden_size(config: Any) -> int:
    """The width of the hidden states."""
    return int(getattr(config, "hidden_size", 0) or config.d_model)


def _cached(model: Any, source: Tensor | None, batch: int, past: int) -> dict[CachePlace, Tensor]:
    """The cache after so many random tokens."""
    if not past:
        return {}
    ids = random_ids(model, (batch, past), torch.Generator().manual_seed(7))
    cache = make_cache({}, two_parts=source is not None)
    arguments: dict[str, Any] = {"input_ids": ids}
    if source is not None:
        arguments = {"decoder_input_ids": ids, "encoder_outputs": (source,)}
    with torch.no_grad():
        answer = model(**arguments, past_key_values=cache, use_cache=True, return_dict=True)
    return cache_tensors(answer.past_key_values)


def _tokens_per_call(ports: Mapping[str, Port]) -> int:
    """The tokens of one call: as many as the file has fixed, if it has."""
    port = ports.get("input_ids")
    if port is None or port.dims is None or not isinstance(port.dims[-1], int):
        return _TOKENS
    return port.dims[-1]


def _decoder_tensor(
    model: Any, name: str, source: Tensor | None, sizes: tuple[int, int, int]
) -> Tensor:
    batch, past, tokens = sizes
    if name == "input_ids":
        return random_ids(model, (batch, tokens), torch.Generator().manual_seed(8))
    if name == "position_ids":
        return torch.arange(past, past + tokens).expand(batch, -1).contiguous()
    if name in ("attention_mask", "decoder_attention_mask"):
        return torch.ones(batch, past + tokens, dtype=torch.int64)
    if source is not None and name == "encoder_attention_mask":
        return torch.ones(source.shape[:2], dtype=torch.int64)
    if source is not None and name == "encoder_hidden_states":
        return source
    raise _unknown(name)


def _without_batch(named: Mapping[int, str]) -> dict[int, str]:
    return {axis: name for axis, name in named.items() if name != "batch"}


def _example(
    tensors: Mapping[str, Tensor], ports: Sequence[Port], axes: Mapping[str, Mapping[int, str]]
) -> Example:
    dims = {port.name: _open_dims(port, axes) for port in ports}
    return Example(inputs=nest(tensors), dims=nest(dims))


def _open_dims(port: Port, axes: Mapping[str, Mapping[int, str]]) -> dict[int, str]:
    """The dims that may vary, but for those that the file has fixed."""
    place = cache_place(port.name)
    named = axes.get(port.name, {})
    if place is not None:
        rows = {0: "batch"} if "batch" in axes["input_ids"].values() else {}
        named = {**rows, 2: "source" if place.cross else "past"}
    fixed = [axis for axis, dim in enumerate(port.dims or ()) if isinstance(dim, int)]
    return {axis: name for axis, name in named.items() if axis not in fixed}


def _unknown(name: str) -> InputError:
    return InputError(
        "unknown-package-input",
        f"the file takes `{name}`, and onnxproof does not know what a model of this kind is fed there",
        help="verify that file by itself, with a factory: `onnxproof verify model.py:build file.onnx`",
    )
