"""What a module keeps between calls: buffers, parameters and plain attributes, and how two copies of it differ."""

from collections.abc import Iterator
from typing import Any

import torch

from onnxproof.reference.restore import equal

Place = tuple[str, str]
"""The path of a submodule, and the name of an attribute of it."""
_BOOKKEEPING = frozenset({"_parameters", "_buffers", "_modules", "training"})
_DEPTH = 4
"""How deep attributes are compared. Not measured."""


def module_state(module: torch.nn.Module) -> dict[Place, Any]:
    """Buffers, parameters and plain attributes by module and name."""
    state: dict[Place, Any] = {}
    for path, part in module.named_modules():
        plain = {name: v for name, v in part.__dict__.items() if name not in _BOOKKEEPING}
        for name, value in {**part._buffers, **part._parameters, **plain}.items():
            state[path, name] = value
    return state


def state_differences(
    one: torch.nn.Module, other: torch.nn.Module
) -> Iterator[tuple[Place, Any, Any]]:
    """Each place at which two modules differ, with both values."""
    before = module_state(one)
    after = module_state(other)
    for place in {**before, **after}:
        old = before.get(place)
        new = after.get(place)
        if not is_same_data(old, new):
            yield place, old, new


def is_same_data(one: Any, other: Any, depth: int = _DEPTH) -> bool:
    """Whether two values are the same as far as they are data; what lies deeper, or is no data, was copied and counts as equal."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return one.shape == other.shape and one.dtype == other.dtype and equal(one, other)
    if isinstance(one, bool | int | float | str | set | None):
        return bool(one == other)
    if depth == 0 or callable(one):
        return True
    return _is_same_container(one, other, depth - 1)


def _is_same_container(one: Any, other: Any, depth: int) -> bool:
    if isinstance(one, list | tuple):
        if len(one) != len(other):
            return False
        return all(is_same_data(a, b, depth) for a, b in zip(one, other, strict=True))
    if isinstance(one, dict):
        if one.keys() != other.keys():
            return False
        return all(is_same_data(one[key], other[key], depth) for key in one)
    if hasattr(one, "__dict__"):
        return is_same_data(vars(one), vars(other), depth)
    return True


def describe_differences(start: torch.nn.Module, module: torch.nn.Module) -> tuple[str, ...]:
    """What is otherwise in a module, with both values where they are short."""
    return tuple(
        f"`{dotted_name(place)}` ({_short(new)} for {_short(old)})"
        for place, old, new in state_differences(start, module)
    )


def dotted_name(place: Place) -> str:
    """A place as `named_buffers` writes it."""
    return ".".join(filter(None, place))


def _short(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        if value.numel() == 1:
            return f"{value.item():.4g}"
        return f"a tensor {list(value.shape)}"
    if isinstance(value, int | float | bool | type(None)):
        return repr(value)
    if hasattr(value, "__len__"):
        return f"{len(value)} items"
    return type(value).__name__


def reset_state(module: torch.nn.Module, place: Place, count: int) -> None:
    """Set an attribute as it may have been after so many calls: numbers count, containers are empty, tensors are zero."""
    path, name = place
    owner = module.get_submodule(path)
    value = getattr(owner, name, None)
    if isinstance(value, torch.Tensor):
        _reset_tensor(owner, name, value, count)
    elif isinstance(value, bool):
        setattr(owner, name, False)
    elif value is None:
        setattr(owner, name, None)
    elif isinstance(value, int | float):
        setattr(owner, name, type(value)(count))
    elif isinstance(value, list | dict | set):
        value.clear()


def _reset_tensor(owner: torch.nn.Module, name: str, value: torch.Tensor, count: int) -> None:
    if name in owner.__dict__ and count == 0:
        setattr(owner, name, None)  # a cache that nobody has filled yet
        return
    with torch.no_grad():
        value.fill_(count if value.numel() == 1 else 0)
