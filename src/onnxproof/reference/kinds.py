"""What an object is as a reference: a module of PyTorch, or something that is called with arrays."""

import sys
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from onnxproof.reference import factory, loaders, tree


def is_module(value: Any) -> bool:
    """Whether it is a module of PyTorch; torch is not imported to find out."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


def is_model(value: Any) -> bool:
    """Whether it is something that can be proven."""
    return is_module(value) or loaders.find(value) is not None


def is_reference(value: Any, declared: Collection[str]) -> bool:
    """Whether what a name stands for is the reference itself and no factory: an estimator, a model, or a function of the declared inputs."""
    if isinstance(value, type) or is_module(value):
        return False
    if loaders.is_special(value):
        return True
    return callable(value) and bool(declared) and factory.takes(value, list(declared))


def takes_arrays(module: Any, example: Any, *, functions: bool) -> bool:
    """Whether a reference is called with arrays: of plain functions, which may be PyTorch's too, that is found out by calling them."""
    if module is None or is_module(module):
        return False
    if loaders.is_special(module):
        return True
    torch = sys.modules.get("torch")
    if torch is None or example is None or not functions:
        return torch is None
    args, kwargs = plain_arguments(example)
    if not all(isinstance(value, np.ndarray) for value in (*args, *kwargs.values())):
        return False
    try:
        answer = module(*args, **kwargs)
    except Exception:  # a function of PyTorch refuses arrays in many ways
        return False
    return not any(isinstance(leaf, torch.Tensor) for _, leaf in tree.flatten(answer))


def plain_arguments(example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Inputs of a graph or of a function of arrays, as they are: torch may not be there."""
    if example is None or isinstance(example, Mapping):
        return (), dict(example or {})
    if isinstance(example, list | tuple):
        return tuple(example), {}
    return (example,), {}


def name_of(source: Any) -> str:
    """A function's own name, or that of an object's class."""
    return str(getattr(source, "__name__", type(source).__name__))
