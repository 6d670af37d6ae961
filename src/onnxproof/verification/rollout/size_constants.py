"""Sizes that a loop may run into: windows, position tables, buffers."""

from collections.abc import Iterator
from typing import Any

from onnxproof.inputs.space import Space
from onnxproof.reference.protocol import Reference
from onnxproof.verification.rollout.loop import Loop
from onnxproof.verification.rollout.state_names import words_of

_LEAST, _MOST = 6, 4000
"""Sizes that a rollout crosses (not measured)."""
_TELLING = frozenset(
    [
        "window",
        "max",
        "maximum",
        "position",
        "positions",
        "len",
        "length",
        "context",
        "cache",
        "block",
        "span",
        "limit",
        "buffer",
        "table",
        "memory",
    ]
)
"""Words of an attribute that is a length."""
_CONTEXT = ("max_position_embeddings", "n_positions", "max_target_positions")
"""What Hugging Face's configurations call the longest input."""


def size_constants(space: Space, loop: Loop, reference: Reference) -> list[int]:
    """The sizes, the likeliest first: attributes of the module, tables that are looked up, states, what the graph compares with, its other constants."""
    session = reference.session
    module = session.module if session is not None else None
    found: list[float] = []
    found += _attributes(module)
    found += [rows for slot in space.slots for rows in slot.tables[1:]]
    for slot in space.slots:
        if slot.name in loop.inputs:
            found += [dim for dim in slot.info.dims if isinstance(dim, int)]
    found += space.bounds
    found += space.constants
    sizes = [int(abs(value)) for value in found if float(value).is_integer()]
    return list(dict.fromkeys(size for size in sizes if _LEAST <= size <= _MOST))


def declared_context(config: Any) -> int | None:
    """The tokens that a model's configuration says it was made for: what comes beyond is never served."""
    if hasattr(config, "get_text_config"):
        config = config.get_text_config(decoder=True)
    known = [getattr(config, name, None) for name in _CONTEXT]
    return min((size for size in known if isinstance(size, int) and size > 0), default=None)


def _attributes(module: Any) -> Iterator[int]:
    """Whole numbers that a module or its configuration keeps under a telling name."""
    if module is None:
        return
    holders = [*getattr(module, "modules", lambda: [])(), getattr(module, "config", None)]
    for holder in holders:
        for name, value in getattr(holder, "__dict__", {}).items():
            whole = isinstance(value, int) and not isinstance(value, bool)
            if whole and _TELLING & set(words_of(name)):
                yield value
    for name, buffer in [
        *getattr(module, "named_parameters", lambda: [])(),
        *getattr(module, "named_buffers", lambda: [])(),
    ]:
        if _TELLING & set(words_of(name)) or "pos" in name:
            yield from (int(size) for size in buffer.shape)
