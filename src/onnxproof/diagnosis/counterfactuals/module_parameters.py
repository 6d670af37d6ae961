"""The module's parameters as they may stand in a file: as they are, transposed, and with the BatchNorm that follows folded in."""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
NamedArray = tuple[str, Array]
_FOLDING_ERROR = 1e-6
"""Relative to the largest element: folding is done in float32. Not measured."""


def is_same_weight(one: Array, other: Array) -> bool:
    """Equal but for the rounding of a fold."""
    difference = np.abs(one.astype(np.float64) - other).max(initial=0)
    return bool(difference <= _FOLDING_ERROR * np.abs(other).max(initial=0))


def module_parameters(module: Any, *, copies: bool = True) -> Iterator[NamedArray]:
    """Every parameter and buffer of floats in each form, with a name for it: in float64, or (`copies` is false) views of the module's own memory."""
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    for name, tensor in tensors.items():
        if tensor.is_floating_point():
            yield from _layouts(name, _wide(tensor) if copies else _own(tensor))
    named = module.named_modules()
    layers = [(name, layer) for name, layer in named if not list(layer.children())]
    for (layer_name, layer), (norm_name, norm) in itertools.pairwise(layers):
        if _has_statistics(norm) and _has_matrix(layer):
            yield from _fold_norm(layer_name, layer, norm_name, norm)


def _layouts(name: str, array: Array) -> Iterator[NamedArray]:
    yield name, array
    if array.ndim == 2:
        yield f"{name} transposed", _transposed(array)
    if array.ndim == 1:
        yield f"{name} as a column", array.reshape(-1, 1, 1)


def _transposed(array: Array) -> Array:
    if array.flags.writeable:
        return np.ascontiguousarray(array.T)
    return array.T  # a view of a view


def _has_statistics(layer: Any) -> bool:
    return getattr(layer, "running_var", None) is not None


def _has_matrix(layer: Any) -> bool:
    """True for a layer with weights that is no norm itself."""
    weight = getattr(layer, "weight", None)
    if hasattr(layer, "running_var") or weight is None:
        return False
    return bool(weight.dim() >= 2)


def _fold_norm(layer_name: str, layer: Any, norm_name: str, norm: Any) -> Iterator[NamedArray]:
    """Weight and bias of a layer with its norm folded in."""
    weight = _wide(layer.weight)
    mean = _wide(norm.running_mean)
    filters = 1 if getattr(layer, "transposed", False) else 0
    if mean.shape[0] != weight.shape[filters]:
        return
    deviation = np.sqrt(_wide(norm.running_var) + norm.eps)
    scale = _wide(norm.weight, missing=1.0) / deviation
    bias = _wide(layer.bias, missing=0.0)
    shift = _wide(norm.bias, missing=0.0)
    shape = [1] * weight.ndim
    shape[filters] = -1
    by_filter = scale.reshape(shape)
    yield f"{layer_name}.weight folded with {norm_name}", weight * by_filter
    yield f"{layer_name}.bias folded with {norm_name}", (bias - mean) * scale + shift


def _wide(tensor: Any, *, missing: float = 0.0) -> Array:
    """A tensor in float64; a number where there is none."""
    if tensor is None:
        return np.asarray(missing)
    from onnxproof.reference.torch_session import to_numpy

    return np.asarray(to_numpy(tensor), np.float64)


def _own(tensor: Any) -> Array:
    """The module's own memory, not to be written into; of half precision a copy in float32, with which numpy can count."""
    if tensor.dtype.itemsize < 4:
        tensor = tensor.float()
    from onnxproof.reference.torch_session import to_numpy

    array: Array = to_numpy(tensor).view()
    array.flags.writeable = False
    return array
