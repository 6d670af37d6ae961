"""Leave a module as it was found: training flags, parameters, buffers, plain attributes and the random state."""

from collections import deque
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from typing import Any, Self

import torch
from torch import Tensor

from onnxproof.reference.dispatch import Mode
from onnxproof.reference.operations import tensors_in

LARGE = 128 << 20
"""Bytes of parameters up to which all of them are copied for the first pass: a write from outside torch (numpy) is then seen too. Not measured."""
_SEED = 20240229
_OWN = frozenset({"_parameters", "_buffers", "_modules", "training", "_non_persistent_buffers_set"})
_TORCHS = frozenset(torch.nn.Module().__dict__) - _OWN
"""What every module has for torch's own use, such as hooks: whoever adds one takes it away."""


class RestoreModule:
    """A context for forward passes: eval mode and a fixed seed inside, everything put back after each.

    A pass that writes into a tensor is noticed by the tensor's version counter (in the first pass by its content too, since a write
    through `.data` does not count), undone, and remembered in `changed`: a module which keeps state between calls can't be exported
    faithfully. Buffers, and the tensors in plain attributes, are copied for good. Parameters are copied for the first pass alone:
    hardly any module writes into them, and a copy kept of all of them would double what a large model needs. Those of a large model
    are copied at the very operation that writes into one. Of a copy of a module whose passes were seen already, `written` names the
    parameters that need one.
    """

    def __init__(self, module: Any, written: Collection[str] | None = None) -> None:
        self._modules: list[Any] = []
        self._names: dict[int, str] = {}
        named_parameters: Iterable[tuple[str, Tensor]] = ()
        if hasattr(module, "modules"):
            self._modules = list(module.modules())
            self._names = {id(m): name for name, m in module.named_modules()}
            named_parameters = module.named_parameters()
        self._training = [m.training for m in self._modules]
        self._buffers = [dict(m._buffers.items()) for m in self._modules]
        self._plain = [_plain_attributes(m) for m in self._modules]
        self._containers = list(self._copy_containers())
        self._kept = self._keep_tensors()
        self._parameters = {
            name: _Kept(tensor, f"the parameter `{name}`")
            for name, tensor in named_parameters
            if written is None or name in written
        }
        self._is_large = sum(kept.nbytes for kept in self._parameters.values()) > LARGE
        self._watch: _CopyBeforeWrite | None = None
        self._passes = 0
        self.seed = _SEED
        """Of torch's random numbers in each pass; another one shows who draws them."""
        self.drew = False
        """Whether a pass took random numbers from torch."""
        self.by_content = False
        """Whether the content of every tensor is looked at after each pass: where calls are changed, batch norm may write its statistics without counting it."""
        self.changed: set[str] = set()

    def _copy_containers(self) -> Iterator[tuple[str, Any, Any]]:
        """Every container among the plain attributes: its label, itself, and a copy of what it holds."""
        for module, attributes in zip(self._modules, self._plain, strict=True):
            for name, value in attributes.items():
                for container, items in _containers_in(value):
                    yield self._label(module, name), container, items

    def _keep_tensors(self) -> "list[_Kept]":
        """Buffers and the tensors in plain attributes, each once."""
        kept: dict[int, _Kept] = {}
        for buffers in self._buffers:
            for tensor in buffers.values():
                if tensor is not None:
                    kept[id(tensor)] = _Kept(tensor, "a buffer written in place")
        for label, tensor in self._attribute_tensors():
            if id(tensor) not in kept:
                kept[id(tensor)] = _Kept(tensor, f"{label} written in place")
        return list(kept.values())

    def __enter__(self) -> Self:
        self._state = torch.random.get_rng_state()
        first = self._passes == 0
        for kept in self._kept:
            kept.before(copy=first)
        for kept in self._parameters.values():
            kept.before(copy=first and not self._is_large)
        for module in self._modules:
            module.training = False
        _seed_generators(self.seed)
        self._seeded = torch.random.get_rng_state()
        if first and self._is_large:
            self._watch = _CopyBeforeWrite(self._parameters.values())
            self._watch.__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *details: Any) -> None:
        if self._watch is not None:
            self._watch.__exit__(*details)  # type: ignore[no-untyped-call]
            self._watch = None
        self.drew |= not torch.equal(torch.random.get_rng_state(), self._seeded)
        torch.random.set_rng_state(self._state)
        with torch.no_grad():
            self._restore_tensors()
        if self._passes == 0:
            for kept in self._parameters.values():
                kept.forget()
        self._passes += 1
        for module, training, buffers, attributes in zip(
            self._modules,
            self._training,
            self._buffers,
            self._plain,
            strict=True,
        ):
            module.training = training
            if not isinstance(module, torch.jit.ScriptModule):
                self._restore_buffers(module, buffers)
                self._restore_attributes(module, attributes)
        for label, container, items in self._containers:
            if not _holds_same(container, items):
                self.changed.add(label)
                _refill(container, items)

    def _restore_tensors(self) -> None:
        by_content = self._passes == 0 or self.by_content
        for kept in [*self._kept, *self._parameters.values()]:
            if kept.written(by_content=by_content):
                self.changed.add(kept.restore())

    def _restore_buffers(self, module: Any, buffers: dict[str, Any]) -> None:
        if any(module._buffers.get(name) is not tensor for name, tensor in buffers.items()):
            self.changed.add(f"a buffer of `{self._names[id(module)]}`")
        module._buffers.update(buffers)

    @property
    def written(self) -> frozenset[str] | None:
        """The parameters that a pass wrote into; None before the first."""
        if not self._passes:
            return None
        return frozenset(name for name, kept in self._parameters.items() if kept.known)

    def _restore_attributes(self, module: Any, attributes: dict[str, Any]) -> None:
        for name in module.__dict__.keys() - attributes.keys() - _OWN - _TORCHS:
            self.changed.add(self._label(module, name))
            del module.__dict__[name]
        for name, value in attributes.items():
            if module.__dict__.get(name) is not value:
                self.changed.add(self._label(module, name))
                module.__dict__[name] = value

    def _label(self, module: Any, name: str) -> str:
        return f"`{self._names[id(module)]}.{name}`".replace("`.", "`")

    def _attribute_tensors(self) -> Iterator[tuple[str, Tensor]]:
        """The tensors among the plain attributes, also those in containers."""
        for module, attributes in zip(self._modules, self._plain, strict=True):
            for name, value in attributes.items():
                if isinstance(value, Tensor):
                    yield self._label(module, name), value
        for label, _, items in self._containers:
            for item in _values_of(items):
                if isinstance(item, Tensor):
                    yield label, item


def _seed_generators(seed: int) -> None:
    """`torch.manual_seed`, which formats the stack for every kind of device that the machine lacks: a quarter of a small model's passes."""
    if _has_accelerator():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)


@cache
def _has_accelerator() -> bool:
    return torch.accelerator.is_available()


class _CopyBeforeWrite(Mode):
    """Copies a parameter when an operation is about to write into its storage."""

    def __init__(self, parameters: "Iterable[_Kept]") -> None:
        super().__init__()
        self._by_storage: dict[int, list[_Kept]] = {}
        for kept in parameters:
            self._by_storage.setdefault(kept.storage, []).append(kept)

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Any = (),
        kwargs: Any = None,
    ) -> Any:
        """Look at what a writing operation is given, then run it."""
        kwargs = kwargs or {}
        if func._schema.is_mutable:
            for tensor in tensors_in((args, kwargs)):
                for kept in self._by_storage.pop(_storage(tensor), ()):
                    kept.copy_now()
        return func(*args, **kwargs)


class _Kept:
    """One tensor, how far its version counter was before a pass, and a copy of what it held."""

    def __init__(self, tensor: Tensor, what: str) -> None:
        self._tensor = tensor
        self._what = what
        self._copy: Tensor | None = None
        self.known = False
        """Whether a pass has written into it: then it is looked at after each."""

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor."""
        return self._tensor.numel() * self._tensor.element_size()

    @property
    def storage(self) -> int:
        """Where its numbers are."""
        return _storage(self._tensor)

    def before(self, copy: bool) -> None:
        """Remember the version, and with `copy` the content."""
        if copy:
            self.copy_now()
        self._version = _version(self._tensor)

    def copy_now(self) -> None:
        """Remember the content."""
        self._copy = self._tensor.detach().clone()

    def written(self, by_content: bool) -> bool:
        """Whether the pass wrote into it: by the version counter, or by what it holds."""
        if _version(self._tensor) != self._version:
            self.known = True
            return True
        if self._copy is None or not (by_content or self.known):
            return False
        differs = not equal(self._tensor, self._copy)
        self.known |= differs
        return differs

    def restore(self) -> str:
        """Put it back, and say what was written."""
        if self._copy is None:
            return f"{self._what}, which could not be put back"
        self._tensor.copy_(self._copy)
        return self._what

    def forget(self) -> None:
        """Let the copy go unless it was needed."""
        if not self.known:
            self._copy = None


def _storage(tensor: Tensor) -> int:
    """The address of a tensor's memory; 0 for one that has none of its own, such as a sparse one."""
    try:
        return tensor.untyped_storage().data_ptr()
    except (NotImplementedError, RuntimeError):
        return 0


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def equal(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors hold the same, NaN included."""
    try:
        return torch.equal(one, other) or bool(
            ((one == other) | ((one != one) & (other != other))).all()
        )
    except RuntimeError:
        # Sparse and quantized tensors know no equality: their version counter must do.
        return True


def _plain_attributes(module: Any) -> dict[str, Any]:
    """What the module's author put there; a ScriptModule has no such attributes."""
    if isinstance(module, torch.jit.ScriptModule):
        return {}
    return {
        name: value
        for name, value in module.__dict__.items()
        if name not in _OWN and name not in _TORCHS
    }


def _containers_in(value: Any) -> list[tuple[Any, Any]]:
    """Every container in an attribute with a copy of what it holds: a cache is often a list that grows, or a dict of such lists."""
    copies: dict[int, tuple[Any, Any]] = {}
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if _is_container(item) and id(item) not in copies:
            copies[id(item)] = (item, item.copy())
            waiting += _values_of(item)
        elif isinstance(item, tuple):
            waiting += item
    return list(copies.values())


def _is_container(item: Any) -> bool:
    return isinstance(item, list | dict | set | deque) and type(item).__module__ in (
        "builtins",
        "collections",
    )


def _values_of(container: Any) -> Iterable[Any]:
    if isinstance(container, dict):
        return container.values()
    return container  # type: ignore[no-any-return]


def _refill(container: Any, items: Any) -> None:
    container.clear()
    if isinstance(container, dict | set):
        container.update(items)
    else:
        container.extend(items)


def _holds_same(container: Any, items: Any) -> bool:
    """Whether a container holds what it held: the same objects, or equal plain values; asking a tensor for equality gives no yes or no."""
    if isinstance(container, set):
        return bool(container == items)
    if len(container) != len(items):
        return False
    if isinstance(container, dict) and list(container) != list(items):
        return False
    pairs = zip(_values_of(container), _values_of(items), strict=True)
    return all(_is_same(now, before) for now, before in pairs)


def _is_same(now: Any, before: Any) -> bool:
    if now is before:
        return True
    return type(now) is type(before) and isinstance(now, int | float | str) and now == before
