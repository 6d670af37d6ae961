"""A text file as data for a language model: cut into sequences of the length that the graph takes, with what else the graph wants to know about them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from onnxproof.errors import InputError
from onnxproof.onnxmodel.onnx_file import Port
from onnxproof.system.user_files import require_regular

Array = np.ndarray[Any, Any]
_LENGTH = 256
"""Tokens of a sequence where the graph takes any number (not measured)."""
_MOST = 512
"""Sequences that are taken, evenly from the whole file: no more are kept for judging either."""
_FILE = "tokenizer.json"


def read_text(
    text: Path, tokenizer: Path | None, ports: Sequence[Port], beside: Path | None
) -> dict[str, Array]:
    """Token ids with masks and positions, by the graph's input names; the tokenizer lies beside the model unless it is named."""
    require_regular(text, InputError)
    ids = _encode(text, find_tokenizer(tokenizer, beside))
    shape = next((port.dims for port in ports if "ids" in port.name and port.dims), None)
    length = _LENGTH
    if shape is not None and isinstance(shape[-1], int):
        length = shape[-1]
    count = len(ids) // length
    if not count:
        raise InputError(
            "text-too-short",
            f"`{text}` has {len(ids)} tokens, and one sequence has {length}",
            help="give a longer text",
        )
    sequences = ids[: count * length].reshape(count, length)
    chosen = sequences[np.linspace(0, count - 1, min(count, _MOST)).astype(int)]
    return {port.name: _array(port, chosen) for port in ports}


def find_tokenizer(tokenizer: Path | None, beside: Path | None) -> Path:
    """The file of the tokenizer."""
    place = tokenizer or beside
    if place is not None and place.is_dir():
        place = place / _FILE
    if place is None or (tokenizer is None and not place.is_file()):
        raise InputError(
            "no-tokenizer",
            f"there is no `{_FILE}` beside the model",
            help="name it with `--tokenizer PATH`, or give token ids with `--calibration tokens.npz`",
        )
    return require_regular(place, InputError)


def _encode(text: Path, tokenizer: Path) -> Array:
    try:
        from tokenizers import Tokenizer
    except ImportError as why:
        raise InputError(
            "tokenizers-missing",
            f"reading `{text}` as tokens needs the package tokenizers",
            help="pip install tokenizers, or give token ids with `--calibration tokens.npz`",
        ) from why
    try:
        encoder = Tokenizer.from_file(str(tokenizer))
    except Exception as why:  # tokenizers raises Exception itself
        raise InputError(
            "bad-tokenizer", f"`{tokenizer}` is no tokenizer: {why}", where=str(tokenizer)
        ) from why
    content = text.read_text(encoding="utf-8", errors="replace")
    return np.asarray(encoder.encode(content, add_special_tokens=False).ids, np.int64)


def _array(port: Port, ids: Array) -> Array:
    """What an input of that name is about the sequences."""
    if "mask" in port.name:
        return np.ones_like(ids)
    if "position" in port.name:
        return np.broadcast_to(np.arange(ids.shape[1]), ids.shape).copy()
    if "ids" in port.name and "type" not in port.name:
        return ids
    raise InputError(
        "input-unknown",
        f"a text says nothing about the input `{port.name}`",
        help="give all inputs with `--calibration tokens.npz`",
    )
