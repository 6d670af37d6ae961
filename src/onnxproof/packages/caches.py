"""Caches of transformers from tensors by place, and back."""

from collections.abc import Mapping
from typing import Any

from onnxproof.packages.cache_names import CachePlace


def make_cache(tensors: Mapping[CachePlace, Any], *, two_parts: bool) -> Any:
    """A cache that holds these tensors; an empty one where there are none.

    It keeps every token: a cache that forgets what left the window is another layout of the same.
    """
    import transformers

    own = _dynamic({place: t for place, t in tensors.items() if not place.cross})
    if not two_parts:
        return own
    cross = _dynamic({place: t for place, t in tensors.items() if place.cross})
    return transformers.EncoderDecoderCache(own, cross)


def _dynamic(tensors: Mapping[CachePlace, Any]) -> Any:
    import transformers

    cache = transformers.DynamicCache()
    for place, keys in sorted(tensors.items()):
        if place.values:
            continue
        values = tensors[CachePlace(layer=place.layer, cross=place.cross, values=True)]
        cache.update(keys, values, place.layer)
    return cache


def cache_tensors(cache: Any) -> dict[CachePlace, Any]:
    """Every tensor of a cache by its place."""
    if hasattr(cache, "cross_attention_cache"):
        own = _layer_tensors(cache.self_attention_cache, cross=False)
        return {**own, **_layer_tensors(cache.cross_attention_cache, cross=True)}
    return _layer_tensors(cache, cross=False)


def _layer_tensors(cache: Any, *, cross: bool) -> dict[CachePlace, Any]:
    tensors: dict[CachePlace, Any] = {}
    for number, layer in enumerate(cache.layers):
        tensors[CachePlace(layer=number, cross=cross)] = layer.keys
        tensors[CachePlace(layer=number, cross=cross, values=True)] = layer.values
    return tensors
