"""One file a recipe: a change that costs no speed and may save decibels. The file's name is its key; nothing is imported until it is tried.

A recipe has `ABOUT` and `apply(trials) -> Applied | str`: the changed float graph or quantized graph, or the reason why it does not apply.
"""

from typing import TYPE_CHECKING, Protocol

from onnxproof.registry import Registry

if TYPE_CHECKING:
    from onnxproof.quantization.trials import Applied, QuantizationTrials


class Recipe(Protocol):
    """What the file of a recipe defines."""

    ABOUT: str

    def apply(self, trials: "QuantizationTrials") -> "Applied | str":
        """The change, or the reason why it does not apply."""


RECIPES: Registry[Recipe] = Registry("recipe", __name__, Recipe, group="onnxproof.recipes")


def names() -> list[str]:
    """Every recipe."""
    return RECIPES.names()


def load(name: str) -> Recipe:
    """The recipe of that name."""
    return RECIPES.load(name)
