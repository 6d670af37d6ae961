"""Preprocessing as a part of the model: one module that takes raw inputs, under the names of the preprocessing's own parameters."""

import inspect
from collections.abc import Mapping
from typing import Any


def compose(module: Any, preprocess: Any) -> Any:
    """The module behind its preprocessing; both run in torch, so both can be exported, and the truth can be had in float64."""
    import torch

    class Preprocessed(torch.nn.Module):
        """Raw inputs in, the module's outputs out."""

        def __init__(self) -> None:
            super().__init__()
            self.module = module
            self.preprocess = preprocess

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            """The module on what the preprocessing makes of the raw inputs."""
            positional, named = as_arguments(self.preprocess(*args, **kwargs))
            return self.module(*positional, **named)

    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    taken = inspect.signature(
        preprocess.forward if isinstance(preprocess, torch.nn.Module) else preprocess
    )
    forward: Any = Preprocessed.forward
    forward.__signature__ = taken.replace(
        parameters=[own, *taken.parameters.values()]
    )  # input names are those of the preprocessing
    return Preprocessed().train(module.training)


def as_arguments(made: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What a preprocessing returned, as the arguments of a call: a tuple, a dict of keywords, or one value."""
    if isinstance(made, Mapping):
        return (), {str(name): value for name, value in made.items()}
    return (tuple(made), {}) if isinstance(made, list | tuple) else ((made,), {})
