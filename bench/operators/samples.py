"""A sample of an operator as a module: its tensors are inputs, everything else is frozen."""

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

_DTYPES = (torch.float32, torch.int64, torch.bool, torch.complex64, torch.float16)
"""An operator is tried in the first of these that it supports."""
_LOOKED_AT = 40
"""Samples of an operator among which some are drawn: the later ones repeat the earlier (not measured)."""
_MOST_ELEMENTS = 4096
"""Elements of all tensors of a sample: more costs time and shows nothing new (not measured)."""
_MOST_TENSORS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One call of an operator."""

    operator: str
    number: int
    """Its place among the operator's samples."""
    module: nn.Module
    inputs: tuple[torch.Tensor, ...]
    about: str

    @property
    def key(self) -> tuple[str, int]:
        """What it is a sample of, and which."""
        return self.operator, self.number


class Call(nn.Module):
    """Calls an operator with the tensors that it is given put back between the frozen arguments."""

    def __init__(self, operator: Any, leaves: Sequence[Any], structure: pytree.TreeSpec) -> None:
        super().__init__()
        self._operator = operator
        self._leaves = list(leaves)
        self._structure = structure

    def call(self, tensors: Sequence[torch.Tensor]) -> Any:
        """The operator's answer."""
        rest = iter(tensors)
        leaves = [next(rest) if _is_tensor(leaf) else leaf for leaf in self._leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self._structure)
        return self._operator(*args, **kwargs)


def operators(only: str) -> Iterator[Any]:
    """The entries of torch's database whose name is one of the comma-separated ones, or all."""
    from torch.testing._internal.common_methods_invocations import op_db

    wanted = set(only.split(",")) - {""}
    for info in op_db:
        if not wanted or wanted & {info.name, full_name(info)}:
            yield info


def full_name(info: Any) -> str:
    """The operator's name with its variant."""
    return ".".join(part for part in (info.name, info.variant_test_name) if part)


def draw(info: Any, seed: int, count: int) -> list[Sample]:
    """A few small samples of an operator, drawn by the seed; none where all are empty or large."""
    dtype = next((dtype for dtype in _DTYPES if dtype in info.dtypes), None)
    if dtype is None:
        return []
    name = full_name(info)
    random_numbers = random.Random(f"{name} {seed}")
    torch.manual_seed(random_numbers.randrange(1 << 32))
    made = info.sample_inputs("cpu", dtype, requires_grad=False, set_seed=False)
    usable = []
    for number, sample in enumerate(itertools.islice(made, _LOOKED_AT)):
        leaves, structure = pytree.tree_flatten(((sample.input, *sample.args), sample.kwargs))
        tensors = tuple(leaf for leaf in leaves if _is_tensor(leaf))
        if _is_usable(tensors):
            usable.append((number, leaves, structure, tensors))
    chosen = random_numbers.sample(usable, min(count, len(usable)))
    return [
        Sample(
            operator=name,
            number=number,
            module=_module(info.op, leaves, structure, len(tensors)),
            inputs=tensors,
            about=_describe(leaves),
        )
        for number, leaves, structure, tensors in sorted(chosen, key=lambda entry: entry[0])
    ]


def _is_tensor(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor)


def _is_usable(tensors: Sequence[torch.Tensor]) -> bool:
    if not 1 <= len(tensors) <= _MOST_TENSORS:
        return False
    if any(tensor.layout != torch.strided for tensor in tensors):
        return False
    sizes = [tensor.numel() for tensor in tensors]
    return min(sizes) > 0 and sum(sizes) <= _MOST_ELEMENTS


def _module(
    operator: Any, leaves: Sequence[Any], structure: pytree.TreeSpec, count: int
) -> nn.Module:
    """The module with one named parameter of `forward` for each tensor, as a user writes it."""
    names = ", ".join(f"x{place}" for place in range(count))
    scope: dict[str, Any] = {}
    exec(f"def forward(self, {names}):\n    return self.call([{names}])", scope)  # noqa: S102
    kind = type("Operator", (Call,), {"forward": scope["forward"]})
    module: nn.Module = kind(operator, leaves, structure)
    return module.eval()


def _describe(leaves: Sequence[Any]) -> str:
    words = [
        f"{str(leaf.dtype).removeprefix('torch.')}{list(leaf.shape)}"
        if _is_tensor(leaf)
        else str(leaf)
        for leaf in leaves
    ]
    return ", ".join(words)[:200]
