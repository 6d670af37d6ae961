"""Preprocessing as a part of the model: one module that takes raw inputs, under the names of the preprocessing's own parameters."""

import inspect
from collections.abc import Mapping
from typing import Any


def compose(module: Any, preprocess: Any) -> Any:
    """The module behind its preprocessing; both run in torch, so both can be exported, and the truth can be computed in float64."""
    import torch

    class Preprocessed(torch.nn.Module):
        """Raw inputs in, the module's outputs out."""

        def __init__(self) -> None:
            super().__init__()
            self.module = module
            self.preprocess = preprocess

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            """The module on the tensors that the preprocessing computes from the raw inputs."""
            positional, named = as_arguments(self.preprocess(*args, **kwargs))
            return self.module(*positional, **named)

    function = preprocess
    if isinstance(preprocess, torch.nn.Module):
        function = preprocess.forward
    signature = inspect.signature(function)
    self_parameter = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = [self_parameter, *signature.parameters.values()]
    # the inputs of the composed module get the names of the preprocessing's parameters
    forward: Any = Preprocessed.forward
    forward.__signature__ = signature.replace(parameters=parameters)
    return Preprocessed().train(module.training)


def as_arguments(result: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What a preprocessing returned, as the arguments of a call: a tuple, a dict of keywords, or one value."""
    if isinstance(result, Mapping):
        return (), {str(name): value for name, value in result.items()}
    if isinstance(result, list | tuple):
        return tuple(result), {}
    return (result,), {}
