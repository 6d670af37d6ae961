"""Ordinary inputs beside a subject's example: numbers of its spread, ids of its range, masks with padding, other sizes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from bench.mutants.graph import Array

COUNT = 4
DELTAS = (0, 0, 1, 3)
"""What is added to every open size in each of the samples."""


def call(module: torch.nn.Module, inputs: Any) -> list[Array]:
    """The module's outputs as a flat list of arrays."""
    with torch.no_grad():
        if isinstance(inputs, dict):
            answer = module(**inputs)
        else:
            answer = module(*inputs)
    leaves = pytree.tree_leaves(_plain(answer))
    return [leaf.detach().numpy() for leaf in leaves if isinstance(leaf, Tensor)]


def _plain(answer: Any) -> Any:
    """A ModelOutput or dataclass as the tuple of what it holds."""
    if hasattr(answer, "to_tuple"):
        return answer.to_tuple()
    if hasattr(answer, "__dataclass_fields__"):
        return tuple(getattr(answer, name) for name in answer.__dataclass_fields__)
    return answer


def truth(module: torch.nn.Module, inputs: Any) -> list[Array]:
    """The module in float64 where it runs so, else as it is."""
    plain = call(module, inputs)
    if any(parameter.dtype != torch.float32 for parameter in module.parameters()):
        return plain
    module.double()
    try:
        wide = call(module, pytree.tree_map(_widen, inputs))
    except (RuntimeError, TypeError, ValueError):
        return plain
    finally:
        module.float()
    if [value.shape for value in wide] != [value.shape for value in plain]:
        return plain
    return wide


def _widen(leaf: Any) -> Any:
    if isinstance(leaf, Tensor) and leaf.is_floating_point():
        return leaf.double()
    return leaf


def feed(model: onnx.ModelProto, inputs: Any) -> dict[str, Array]:
    """Inputs of the module under the names of the file, by position."""
    leaves = [leaf for leaf in pytree.tree_leaves(inputs) if isinstance(leaf, Tensor)]
    names = [value.name for value in _real_inputs(model)]
    if len(names) != len(leaves):
        raise ValueError(f"{len(leaves)} inputs of the module, {len(names)} of the file")
    return {name: leaf.numpy() for name, leaf in zip(names, leaves, strict=True)}


def _real_inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    held = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in held]


def samples(model: onnx.ModelProto, inputs: Any, seed: int) -> list[Any]:
    """`COUNT` other inputs; the later ones have other sizes where the file leaves sizes open."""
    return [_sample(model, inputs, seed + place, delta) for place, delta in enumerate(DELTAS)]


def _sample(model: onnx.ModelProto, inputs: Any, seed: int, delta: int) -> Any:
    generator = torch.Generator().manual_seed(seed)
    leaves, form = pytree.tree_flatten(inputs)
    described = iter(_real_inputs(model))
    drawn = []
    for leaf in leaves:
        if isinstance(leaf, Tensor):
            shape = _shape(leaf, next(described), delta)
            drawn.append(_draw(leaf, shape, generator))
        else:
            drawn.append(leaf)
    return pytree.tree_unflatten(drawn, form)


def _shape(leaf: Tensor, described: onnx.ValueInfoProto, delta: int) -> Sequence[int]:
    dims = described.type.tensor_type.shape.dim
    return [
        size + delta * int(bool(dim.dim_param)) for size, dim in zip(leaf.shape, dims, strict=True)
    ]


def _draw(leaf: Tensor, shape: Sequence[int], generator: torch.Generator) -> Tensor:
    if leaf.is_floating_point():
        wide = leaf.double()
        spread = float(wide.std(correction=0)) or 1.0
        drawn = torch.randn(shape, generator=generator).double() * spread + float(wide.mean())
        return drawn.to(leaf.dtype)
    low, high = int(leaf.min()), int(leaf.max())
    if _is_mask(leaf, low, high):
        return _lengths(shape, generator).to(leaf.dtype)
    return torch.randint(low, high + 1, list(shape), generator=generator).to(leaf.dtype)


def _is_mask(leaf: Tensor, low: int, high: int) -> bool:
    """Zeros and ones that fall along the last axis: padding on the right."""
    if leaf.dim() < 2 or low < 0 or high > 1:
        return False
    whole = leaf.long()
    return bool((whole[..., 1:] <= whole[..., :-1]).all())


def _lengths(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    longest = shape[-1]
    lengths = torch.randint(
        max(1, longest // 2), longest + 1, [*shape[:-1], 1], generator=generator
    )
    return torch.arange(longest) < lengths


def as_arrays(feeds: Sequence[dict[str, Array]]) -> dict[str, Array]:
    """Feeds as one flat dict for a npz file."""
    return {f"{k}/{name}": value for k, one in enumerate(feeds) for name, value in one.items()}


def from_arrays(stored: Any) -> list[dict[str, Array]]:
    """The feeds back from a npz file."""
    feeds: dict[int, dict[str, Array]] = {}
    for key in stored.files:
        place, _, name = key.partition("/")
        feeds.setdefault(int(place), {})[name] = np.array(stored[key])
    return [feeds[place] for place in sorted(feeds)]
