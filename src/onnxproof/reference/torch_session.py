"""The reference: a PyTorch module in its own precision, left exactly as it was found."""

import inspect
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import ml_dtypes
import numpy as np
import torch
from torch import Tensor

from onnxproof.reference import tree
from onnxproof.reference.lazy_float64 import widen
from onnxproof.reference.restore import RestoreModule

Array = np.ndarray[Any, Any]


def to_numpy(tensor: Tensor) -> Array:
    """A numpy array of the tensor's own dtype; bfloat16 by way of its bits."""
    tensor = widen(tensor).detach().cpu().contiguous()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.resolve_conj().resolve_neg().numpy()


def from_numpy(array: Array) -> Tensor:
    """A tensor that owns its memory, so that a module which writes into its input spoils nothing."""
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(np.array(array).view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(np.array(array))


def bind(module: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs by the parameter names of `forward`, in the order of its signature.

    A parameter `*xs` gives `xs.0`, `xs.1`; where the signature can't be read, positions serve as names.
    """
    try:
        bound = inspect.signature(_forward_of(module)).bind(*args, **kwargs)
    except (TypeError, ValueError):
        by_position = {f"input{k}": value for k, value in enumerate(args)}
        return {**by_position, **kwargs}
    named: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        if bound.signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            named.update(value)
        else:
            named[name] = value
    return named


def _forward_of(module: Any) -> Any:
    """The method whose signature names the inputs; a plain function is its own."""
    return getattr(module, "forward", module)


class TorchSession:
    """Calls the module with arrays by leaf name; eval mode, no gradients, a fixed seed, and no trace left behind."""

    def __init__(
        self,
        module: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        written: Collection[str] | None = None,
    ) -> None:
        self.module = module
        self._args = tuple(args)
        self._kwargs = dict(kwargs)
        self._names = bind(module, args, kwargs)
        self.example = {
            path: leaf for path, leaf in tree.flatten(self._names) if isinstance(leaf, Tensor)
        }
        self.input_names: Sequence[str] = list(self.example)
        self.output_names: Sequence[str] = []
        self._restore = RestoreModule(module, written)
        self._gradients = False

    def run(self, inputs: Mapping[str, Array]) -> list[Array | None]:
        """The module's outputs for these arrays, flattened."""
        tensors = {name: from_numpy(array) for name, array in inputs.items()}
        return [to_numpy(value) for _, value in self.call(tensors)]

    def call(self, tensors: Mapping[str, Tensor]) -> list[tuple[str, Tensor]]:
        """The same with tensors: named leaves of whatever `forward` returned."""
        args, kwargs = self.arguments(tensors)
        with self._restore, torch.set_grad_enabled(self._gradients):
            returned = self.module(*args, **kwargs)
        outputs = [
            (path or "output", _as_tensor(leaf))
            for path, leaf in tree.flatten(returned)
            if isinstance(leaf, Tensor | int | float | bool)
        ]
        self.output_names = [path for path, _ in outputs]
        return outputs

    @property
    def drew(self) -> bool:
        """Whether a pass took random numbers from torch."""
        return self._restore.drew

    @property
    def written(self) -> Collection[str] | None:
        """The parameters that a pass wrote into; None before the first."""
        return self._restore.written

    @property
    def changed_state(self) -> Collection[str]:
        """The buffers, attributes and parameters that a pass changed."""
        return self._restore.changed

    def undo_changes(self) -> RestoreModule:
        """A context for passes that the caller runs: eval mode and a fixed seed inside, the module's state put back after it."""
        return self._restore

    @contextmanager
    def with_settings(self, *, seed: int | None = None, gradients: bool = False) -> Iterator[None]:
        """For passes with other random numbers, or in the mode of training code: with gradients, and so without fused fast paths."""
        usual_seed = self._restore.seed
        fast = torch.backends.mha.get_fastpath_enabled()
        if seed is not None:
            self._restore.seed = seed
        self._gradients = gradients
        torch.backends.mha.set_fastpath_enabled(fast and not gradients)
        try:
            yield
        finally:
            self._restore.seed = usual_seed
            self._gradients = False
            torch.backends.mha.set_fastpath_enabled(fast)

    @contextmanager
    def restore_by_content(self) -> Iterator[None]:
        """For passes in which calls are changed: whatever they write is noticed by its content, and put back."""
        self._restore.by_content = True
        try:
            yield
        finally:
            self._restore.by_content = False

    def arguments(
        self,
        tensors: Mapping[str, Tensor],
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The example's containers around these tensors."""
        named = tree.rebuild(self._names, tensors)
        return bind_back(self.module, self._args, self._kwargs, named)

    def close(self) -> None:
        """Nothing is held that the caller does not own."""


def _as_tensor(leaf: Any) -> Tensor:
    if isinstance(leaf, Tensor):
        return leaf
    return torch.as_tensor(leaf)


def bind_back(
    module: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    named: Mapping[str, Any],
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Values by parameter name back to positional and keyword arguments, as the example had them."""
    keywords = {name: named[name] for name in kwargs if name in named}
    if not args:
        return (), keywords
    try:
        parameters = inspect.signature(_forward_of(module)).parameters
    except (TypeError, ValueError):
        return _by_position(named, len(args)), keywords
    positional: list[Any] = []
    for name, parameter in parameters.items():
        if name in keywords or name not in named:
            continue
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            positional.extend(named[name])
        elif parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            positional.append(named[name])
    return tuple(positional) or _by_position(named, len(args)), keywords


def _by_position(named: Mapping[str, Any], count: int) -> tuple[Any, ...]:
    return tuple(named[f"input{k}"] for k in range(count))
