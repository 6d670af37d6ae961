"""One file a recipe: a change that costs no speed and may save decibels. The file's name is its key; nothing is imported until it is tried.

A recipe has `ABOUT` and `apply(trials) -> Applied | str`: the changed float graph or quantized graph, or the reason why it does not apply.
"""

import importlib
import pkgutil
from types import ModuleType

from onnxproof.errors import UsageError


def names() -> list[str]:
    """Every recipe."""
    return [
        info.name.replace("_", "-")
        for info in pkgutil.iter_modules(__path__)
        if not info.name.startswith("_")
    ]


def load(name: str) -> ModuleType:
    """The recipe of that name."""
    if name not in names():
        raise UsageError(
            "unknown-recipe",
            f"there is no recipe `{name}`",
            notes=[f"known are {', '.join(names())}"],
        )
    return importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
