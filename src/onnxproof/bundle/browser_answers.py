"""What a page sends of one call: a length, a JSON header and the tensors behind it; believed only as far as it adds up."""

import json
import math
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxproof.errors import Refused

Array = np.ndarray[Any, Any]
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_DTYPES = ("bool", *_INTEGERS, "float16", "float32", "float64")
_MOST_HEADER = 1 << 20
_MOST_DIMS = 32


class BadAnswer(ValueError):
    """The bytes are no answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The outputs of one call, or why there are none."""

    outputs: tuple[Array | None, ...] = ()
    seconds: float = 0.0
    overwritten: tuple[str, ...] = ()
    refused: str = ""

    def or_raise(self, backend: str) -> "Answer":
        """Itself, unless the runtime refused the call."""
        if self.refused:
            raise Refused("refused", f"`{backend}`: {self.refused}")
        return self


def parse(body: bytes, outputs: int) -> Answer:
    """The answer with so many outputs.

    Raises:
        BadAnswer: sizes, shapes or dtypes that do not fit the bytes.
    """
    header, data = _split(body)
    if "error" in header:
        return Answer(refused=str(header["error"])[:400] or "no reason was given")
    listed = header.get("outputs")
    if not isinstance(listed, list) or len(listed) != outputs:
        raise BadAnswer(f"the model has {outputs} outputs")
    overwritten = header.get("overwritten", [])
    if not isinstance(overwritten, list):
        raise BadAnswer("`overwritten` is no list")
    return Answer(
        outputs=tuple(_tensor(about, data) for about in listed),
        seconds=_seconds(header.get("seconds", 0.0)),
        overwritten=tuple(str(name)[:200] for name in overwritten[:100]),
    )


def _split(body: bytes) -> tuple[dict[str, Any], memoryview]:
    if len(body) < 8:
        raise BadAnswer("it has no header")
    (size,) = struct.unpack("<Q", body[:8])
    if size > min(_MOST_HEADER, len(body) - 8):
        raise BadAnswer("its header is longer than it")
    try:
        header = json.loads(body[8 : 8 + size])
    except (ValueError, RecursionError) as why:
        raise BadAnswer("its header is not JSON") from why
    if not isinstance(header, dict):
        raise BadAnswer("its header is no object")
    return header, memoryview(body)[8 + size :]


def _tensor(about: Any, data: memoryview) -> Array | None:
    if about is None:
        return None
    try:
        dtype, shape = about["dtype"], about["shape"]
        offset, length = about["offset"], about["bytes"]
    except (TypeError, KeyError) as why:
        raise BadAnswer("a tensor lacks its dtype, shape, offset or bytes") from why
    whole = isinstance(shape, list) and [*map(type, [*shape, offset, length])].count(int)
    if not isinstance(shape, list) or whole != len(shape) + 2 or dtype not in _DTYPES:
        raise BadAnswer("a tensor has another kind of shape or dtype")
    fits = min([0, *shape, offset, length]) >= 0 and offset + length <= len(data)
    itemsize = np.dtype(dtype).itemsize
    if not fits or len(shape) > _MOST_DIMS or math.prod(shape) * itemsize != length:
        raise BadAnswer("a tensor has another size than its shape says")
    return np.frombuffer(data[offset : offset + length], dtype).reshape(shape).copy()


def _seconds(value: Any) -> float:
    if isinstance(value, int | float) and 0 <= value < math.inf:
        return float(value)
    return 0.0
