"""Nested containers to named leaves and back: tuples, lists, dicts, named tuples, dataclasses, and what torch's pytree knows."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def flatten(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf with its path, in order; None is no leaf.

    >>> list(flatten({"a": (1, 2), "b": None}))
    [('a.0', 1), ('a.1', 2)]
    """
    if value is None:
        return
    children = children_of(value)
    if children is None:
        yield prefix, value
        return
    for key, child in children:
        yield from flatten(child, _path(prefix, key))


def rebuild(value: Any, leaves: Mapping[str, Any], prefix: str = "") -> Any:
    """The same containers with the leaves of those paths replaced; other leaves stay.

    >>> rebuild({"a": (1, 2)}, {"a.1": 5})
    {'a': (1, 5)}
    """
    if value is None:
        return None
    children = children_of(value)
    if children is None:
        return leaves.get(prefix, value)
    rebuilt = {key: rebuild(child, leaves, _path(prefix, key)) for key, child in children}
    return _container_like(value, rebuilt)


def _path(prefix: str, key: Any) -> str:
    if not prefix:
        return str(key)
    return f"{prefix}.{key}"


def children_of(value: Any) -> Sequence[tuple[Any, Any]] | None:
    """What a container holds, by key or place; None for a leaf."""
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return list(zip(value._fields, value, strict=True))
    if isinstance(value, list | tuple):
        return list(enumerate(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(f.name, getattr(value, f.name)) for f in dataclasses.fields(value)]
    return _registered_children(value)


def _registered_children(value: Any) -> Sequence[tuple[Any, Any]] | None:
    """Children of a class registered with torch's pytree, such as a KV cache of transformers."""
    node = _pytree_node(value)
    if node is None:
        return None
    children, _ = node.flatten_fn(value)
    return list(enumerate(children))


def _container_like(value: Any, children: Mapping[Any, Any]) -> Any:
    if isinstance(value, Mapping):
        try:
            return type(value)(children)  # type: ignore[call-arg]
        except TypeError:
            return dict(children)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(**children)
    if isinstance(value, list | tuple):
        return type(value)(children.values())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.replace(value, **children)
    node = _pytree_node(value)
    _, context = node.flatten_fn(value)
    return node.unflatten_fn(list(children.values()), context)


def _pytree_node(value: Any) -> Any:
    import sys

    torch = sys.modules.get("torch")
    if torch is None or isinstance(value, torch.Tensor | int | float | str | bool | bytes):
        return None
    _register_cache(type(value), torch.utils._pytree)
    return torch.utils._pytree.SUPPORTED_NODES.get(type(value))


def _register_cache(kind: type, pytree: Any) -> None:
    """Tell torch's pytree what a cache of transformers holds: its layers, and of each the keys and the values."""
    is_cache = kind.__module__ == "transformers.cache_utils"
    if not is_cache or kind in pytree.SUPPORTED_NODES:
        return
    if kind.__name__ == "DynamicCache":
        pytree.register_pytree_node(kind, _flatten_cache, _restore_cache)
    elif kind.__name__ == "EncoderDecoderCache":

        def restore(caches: Any, _: Any) -> Any:
            return kind(*caches)

        pytree.register_pytree_node(kind, _flatten_two_caches, restore)


def _flatten_cache(cache: Any) -> tuple[list[Any], Any]:
    layers = [(layer.keys, layer.values) for layer in cache.layers if layer.is_initialized]
    windows = tuple(getattr(layer, "sliding_window", None) for layer in cache.layers)
    return layers, (type(cache), windows)


def _restore_cache(layers: Any, context: Any) -> Any:
    """A new cache: a pass adds to the one that it is handed."""
    from transformers import cache_utils

    kind, windows = context
    cache = kind()
    for window, (keys, values) in zip(windows, layers, strict=False):
        layer = _new_layer(cache_utils, window)
        layer.update(keys, values)
        cache.layers.append(layer)
    return cache


def _new_layer(caches: Any, window: int | None) -> Any:
    if window is None:
        return caches.DynamicLayer()
    return caches.DynamicSlidingWindowLayer(window)


def _flatten_two_caches(cache: Any) -> tuple[list[Any], None]:
    return [cache.self_attention_cache, cache.cross_attention_cache], None
