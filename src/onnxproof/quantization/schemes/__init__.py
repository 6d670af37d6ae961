"""One file a scheme: which types, and how the graph gets them. The file's name is its key; nothing is imported until it is chosen.

A scheme has `ABOUT`, and either `PLAN` (Q/DQ by ONNX Runtime's quantizer, open to every recipe), `build(model, stats) -> onnx.ModelProto`,
or `search(tuning, exclude, *, has_data) -> Tuning` where it finds its own way through a budget.
"""

from typing import Any, Protocol

from onnxproof.registry import Registry


class Scheme(Protocol):
    """What the file of a scheme defines: this, and `PLAN`, `build` or `search`."""

    ABOUT: str


SCHEMES: Registry[Scheme] = Registry("scheme", __name__, Scheme, group="onnxproof.schemes")


def names() -> list[str]:
    """Every scheme; ours by their file names."""
    return [name.replace("-", "_") for name in SCHEMES.names()]


def load(name: str) -> Any:
    """The scheme of that name."""
    return SCHEMES.load(name.replace("_", "-"))
