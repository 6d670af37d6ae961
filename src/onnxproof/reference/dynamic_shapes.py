"""The user's `dynamic_shapes`: which dims of the inputs may vary, and by which names and sizes."""

import re
from collections.abc import Mapping
from typing import Any

from onnxproof.errors import InputError
from onnxproof.reference import tree as nest

_NO_MAXIMUM = 1 << 40
"""From here on torch's upper bound of a Dim is only the end of its integers."""


def dim_specs(tree: Any, dynamic_shapes: Any) -> dict[str, dict[int, Any]]:
    """The user's `dynamic_shapes` by leaf and axis: dicts, tuples and None, nested as the inputs are."""
    if dynamic_shapes is None or tree is None:
        return {}
    if not isinstance(dynamic_shapes, Mapping):
        dynamic_shapes = dict(zip(tree, dynamic_shapes, strict=False))
    unknown = [name for name in dynamic_shapes if name not in tree]
    if unknown:
        raise InputError(
            "unknown-input",
            f"dynamic_shapes names `{unknown[0]}`, which the reference does not take",
            notes=[f"it takes {', '.join(tree)}"],
        )
    specs: dict[str, dict[int, Any]] = {}
    for name, value in tree.items():
        _collect(value, dynamic_shapes.get(name), name, specs)
    return specs


def _collect(
    value: Any,
    spec: Any,
    path: str,
    specs: dict[str, dict[int, Any]],
) -> None:
    """Add the specs of one input, or of everything in a container."""
    if value is None or spec is None:
        return
    leaves = list(nest.flatten(value))
    if len(leaves) == 1 and leaves[0][0] == "":
        axes = spec.items() if isinstance(spec, Mapping) else enumerate(spec)
        specs[path] = {int(axis): entry for axis, entry in axes}
        return
    for key, child in nest.children_of(value) or ():
        _collect(child, _child_spec(spec, key), f"{path}.{key}", specs)


def _child_spec(spec: Any, key: Any) -> Any:
    if isinstance(spec, Mapping):
        return spec.get(key)
    if isinstance(key, int) and key < len(spec):
        return spec[key]
    return None


def spec_kind(spec: Any) -> str:
    """open (a name, a Dim, DYNAMIC), auto (the file decides), or closed."""
    if spec is None or isinstance(spec, int):
        return "closed"
    if isinstance(spec, str):
        return "open"
    text = str(getattr(spec, "type", spec)).upper()
    if "AUTO" in text:
        return "auto"
    return "closed" if "STATIC" in text else "open"


def spec_name(spec: Any) -> str:
    """The name that a spec gives its dim, if any."""
    if isinstance(spec, str):
        return spec
    name = getattr(spec, "__name__", "")
    return name if isinstance(name, str) and name.isidentifier() else ""


def spec_sum(spec: Any) -> str:
    """The sum of other dims that a spec says, with spaces: `past + seq`; empty where it is a name.

    >>> spec_sum("past+seq"), spec_sum("seq")
    ('past + seq', '')
    """
    if not isinstance(spec, str) or spec.isidentifier():
        return ""
    return " ".join(re.findall(r"\w+|[+-]", spec))


def spec_range(spec: Any) -> tuple[int, int | None]:
    """The sizes that a spec allows."""
    low, high = getattr(spec, "min", None), getattr(spec, "max", None)
    if not isinstance(low, int):
        low = 0
    if isinstance(high, int) and high < _NO_MAXIMUM:
        return low, int(high)
    return low, None
