"""Values that are no plain tensors as named arrays, and back: `probabilities[setosa]`, `boxes[2]`.

A map gives one array a key, a sequence one array an element and its length, rows of maps (a ZipMap) one column a key.
Strings are arrays of numpy's `str`; among outputs each distinct string is a number of its own (`encode`), so that they compare element by element
as integers do.
"""

import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
_NEXT_CODE = 1 << 32
"""Added to the number of a string as often as another string has it already."""
_texts: dict[int, str] = {}
"""The string behind each number so far."""
_LENGTH = re.compile(r"len\((?P<root>.+)\)")
_ELEMENT = re.compile(r"(?P<root>.+?)(?P<key>\[.*\])")


def flatten(name: str, value: Any) -> dict[str, Array]:
    """The named arrays that a value consists of; none where an optional holds nothing.

    >>> sorted(flatten("p", [{"a": 0.25}, {"a": 0.5}]))
    ['p[a]']
    >>> sorted(flatten("xs", [np.zeros(2), np.ones(3)]))
    ['len(xs)', 'xs[0]', 'xs[1]']
    """
    if value is None:
        return {}
    if isinstance(value, Mapping):
        return {f"{name}[{key}]": plain(item) for key, item in value.items()}
    if not isinstance(value, list | tuple):
        return {name: plain(value)}
    if value and all(isinstance(row, Mapping) for row in value):
        return flatten(name, columns(value))
    elements = {f"{name}[{place}]": plain(item) for place, item in enumerate(value)}
    return {**elements, f"len({name})": np.array(len(value), np.int64)}


def columns(rows: Sequence[Mapping[Any, Any]], dtype: Any = None) -> dict[Any, Array]:
    """One array a key out of rows of maps; NaN where a row lacks the key."""
    keys = dict.fromkeys(key for row in rows for key in row)
    return {key: plain([row.get(key, np.nan) for row in rows], dtype) for key in keys}


def plain(value: Any, dtype: Any = None) -> Array:
    """An array of numbers, or of numpy's `str`: an object array is one or the other."""
    array = np.asarray(value, dtype)
    if array.dtype.kind == "S":
        return np.char.decode(array, "utf-8")
    if array.dtype.kind != "O":
        return array
    if all(isinstance(item, int | float | bool | np.number) for item in array.reshape(-1)):
        return np.array(array.tolist())
    return np.array([_text(item) for item in array.reshape(-1)], np.str_).reshape(array.shape)


def _text(item: Any) -> str:
    if isinstance(item, bytes):
        return item.decode("utf-8", "replace")
    return str(item)


def encode(array: Array) -> Array:
    """Strings as integers, equal where the strings are, and far apart where they are not; anything else as it is."""
    if array.dtype.kind not in "OU":
        return array
    codes = [_code(str(text)) for text in plain(array).reshape(-1)]
    return np.array(codes, np.int64).reshape(array.shape)


def _code(text: str) -> int:
    code = zlib.crc32(text.encode("utf-8", "surrogatepass"))
    while _texts.setdefault(code, text) != text:
        code += _NEXT_CODE
    return code


def decode(code: int) -> str:
    """The string that a number of `encode` stands for.

    >>> decode(int(encode(np.array("setosa"))))
    'setosa'
    """
    return _texts.get(code, str(code))


def split(name: str) -> tuple[str, str]:
    """The port that a name belongs to, and its part of it.

    >>> split("p[setosa]"), split("len(xs)"), split("logits")
    (('p', '[setosa]'), ('xs', 'len'), ('logits', ''))
    """
    length = _LENGTH.fullmatch(name)
    if length is not None:
        return length["root"], "len"
    element = _ELEMENT.fullmatch(name)
    if element is not None:
        return element["root"], element["key"]
    return name, ""


def join(root: str, part: str) -> str:
    """The name of a part of a port: the inverse of `split`."""
    return f"len({root})" if part == "len" else f"{root}{part}"


def group(names: Iterable[str]) -> dict[str, list[str]]:
    """The parts of each port, in order."""
    parts: dict[str, list[str]] = {}
    for name in names:
        root, part = split(name)
        parts.setdefault(root, []).append(part)
    return parts


def assemble(arrays: Mapping[str, Array], kinds: Mapping[str, str]) -> dict[str, Any]:
    """Values by port out of their named parts; `kinds` says of a port in ONNX's words what it is, such as `seq(tensor(float))`."""
    values: dict[str, Any] = {}
    for root, parts in group(arrays).items():
        kind = kinds.get(root, "")
        if parts == [""] or root not in kinds:
            for part in parts:
                values[join(root, part)] = _single(arrays[join(root, part)], kind)
            continue
        named = {part[1:-1]: arrays[join(root, part)] for part in parts if part != "len"}
        values[root] = _container(named, kind)
    return values


def _single(array: Array, kind: str) -> Any:
    """An array, or a sequence of one for a port that takes sequences."""
    return [array] if kind.startswith("seq") else array


def _container(named: Mapping[str, Array], kind: str) -> Any:
    """A sequence, a map, or rows of maps."""
    if "map(" not in kind:
        return list(named.values())
    keys: Mapping[str, Any] = {key: key for key in named}
    if "map(int64" in kind:
        keys = {key: int(key) for key in named}
    if not kind.startswith("seq"):
        return {keys[key]: array.reshape(-1)[0].item() for key, array in named.items()}
    count = min(array.size for array in named.values())
    return [
        {keys[key]: array.reshape(-1)[row].item() for key, array in named.items()}
        for row in range(count)
    ]
