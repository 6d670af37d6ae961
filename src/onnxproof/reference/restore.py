"""Leave a module as it was found: training flags, parameters, buffers, plain attributes and the random state."""

from collections import deque
from collections.abc import Collection, Iterator
from typing import Any, Self

import torch

_SEED = 20240229
_OWN = frozenset({"_parameters", "_buffers", "_modules", "training", "_non_persistent_buffers_set"})
_TORCHS = frozenset(torch.nn.Module().__dict__) - _OWN
"""What every module has for torch's own use, such as hooks: whoever adds one takes it away."""


class Keeper:
    """A context for forward passes: eval mode and a fixed seed inside, everything put back after each.

    A pass that writes into a tensor is noticed by the tensor's version counter (in the first pass by its content too, since a write
    through `.data` does not count), undone, and remembered in `changed`: a module which keeps state between calls can't be exported
    faithfully. Buffers, and the tensors in plain attributes, are copied for good. Parameters are copied for the first pass alone:
    hardly any module writes into them, and a copy kept of all of them would double what a large model needs. Of a copy of a module
    whose passes were seen already, `written` names the parameters that need one.
    """

    def __init__(self, module: Any, written: Collection[str] | None = None) -> None:
        self._modules: list[Any] = list(module.modules()) if hasattr(module, "modules") else []
        self._names = {id(m): name for name, m in module.named_modules()} if self._modules else {}
        self._training = [m.training for m in self._modules]
        self._buffers = [dict(m._buffers.items()) for m in self._modules]
        self._plain = [
            {} if isinstance(m, torch.jit.ScriptModule) else _plain(m) for m in self._modules
        ]
        self._inside = [
            (self._called(m, name), *kept)
            for m, plain in zip(self._modules, self._plain, strict=True)
            for name, value in plain.items()
            for kept in _contents(value)
        ]
        held = {
            id(t): (t, "a buffer written in place")
            for b in self._buffers
            for t in b.values()
            if t is not None
        }
        held |= {
            id(t): (t, f"{label} written in place")
            for label, t in self._tensors()
            if id(t) not in held
        }
        self._kept = [_Kept(tensor, what) for tensor, what in held.values()]
        named = module.named_parameters() if self._modules else ()
        self._parameters = {
            name: _Kept(tensor, f"the parameter `{name}`")
            for name, tensor in named
            if written is None or name in written
        }
        self._passes = 0
        self.seed = _SEED
        """Of torch's random numbers in each pass; another one shows who draws them."""
        self.drew = False
        """Whether a pass took random numbers from torch."""
        self.thorough = False
        """Whether the content of every tensor is looked at after each pass: where calls are changed, batch norm may write its statistics without counting it."""
        self.changed: set[str] = set()

    def __enter__(self) -> Self:
        self._state = torch.random.get_rng_state()
        for kept in [*self._kept, *self._parameters.values()]:
            kept.before(copy=self._passes == 0)
        for module in self._modules:
            module.training = False
        torch.manual_seed(self.seed)
        self._seeded = torch.random.get_rng_state()
        return self

    def __exit__(self, *_: object) -> None:
        self.drew |= not torch.equal(torch.random.get_rng_state(), self._seeded)
        torch.random.set_rng_state(self._state)
        with torch.no_grad():
            self.changed |= {
                kept.after()
                for kept in [*self._kept, *self._parameters.values()]
                if kept.written(look=self._passes == 0 or self.thorough)
            }
        for kept in self._parameters.values() if self._passes == 0 else ():
            kept.forget()
        self._passes += 1
        for module, training, buffers, plain in zip(
            self._modules, self._training, self._buffers, self._plain, strict=True
        ):
            module.training = training
            if isinstance(module, torch.jit.ScriptModule):
                continue
            if any(module._buffers.get(name) is not tensor for name, tensor in buffers.items()):
                self.changed.add(f"a buffer of `{self._names[id(module)]}`")
            module._buffers.update(buffers)
            self._restore(module, plain)
        for label, container, items in self._inside:
            if not _alike(container, items):
                self.changed.add(label)
                container.clear()
                container.update(items) if isinstance(container, dict | set) else container.extend(
                    items
                )

    @property
    def written(self) -> frozenset[str] | None:
        """The parameters that a pass wrote into; None before the first."""
        return (
            frozenset(name for name, kept in self._parameters.items() if kept.known)
            if self._passes
            else None
        )

    def _restore(self, module: Any, plain: dict[str, Any]) -> None:
        for name in module.__dict__.keys() - plain.keys() - _OWN - _TORCHS:
            self.changed.add(self._called(module, name))
            del module.__dict__[name]
        for name, value in plain.items():
            if module.__dict__.get(name) is not value:
                self.changed.add(self._called(module, name))
                module.__dict__[name] = value

    def _called(self, module: Any, name: str) -> str:
        return f"`{self._names[id(module)]}.{name}`".replace("`.", "`")

    def _tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The tensors among the plain attributes, also those in containers."""
        for module, plain in zip(self._modules, self._plain, strict=True):
            yield from (
                (self._called(module, name), value)
                for name, value in plain.items()
                if isinstance(value, torch.Tensor)
            )
        for label, _, items in self._inside:
            yield from (
                (label, item)
                for item in (items.values() if isinstance(items, dict) else items)
                if isinstance(item, torch.Tensor)
            )


class _Kept:
    """One tensor, how far its version counter was before a pass, and a copy of what it held."""

    def __init__(self, tensor: torch.Tensor, what: str) -> None:
        self._tensor, self._what = tensor, what
        self._copy: torch.Tensor | None = None
        self.known = False
        """Whether a pass has written into it: then it is looked at after each."""

    def before(self, copy: bool) -> None:
        if copy:
            self._copy = self._tensor.detach().clone()
        self._version = _version(self._tensor)

    def written(self, look: bool) -> bool:
        if _version(self._tensor) != self._version or (
            self._copy is not None and (look or self.known) and not equal(self._tensor, self._copy)
        ):
            self.known = True
            return True
        return False

    def after(self) -> str:
        """Put it back, and say what was written."""
        if self._copy is None:
            return f"{self._what}, which could not be put back"
        self._tensor.copy_(self._copy)
        return self._what

    def forget(self) -> None:
        """Let the copy go unless it was needed."""
        if not self.known:
            self._copy = None


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors hold the same, NaN included."""
    try:
        return torch.equal(one, other) or bool(
            ((one == other) | ((one != one) & (other != other))).all()
        )
    except (
        RuntimeError
    ):  # sparse and quantized tensors know no equality: their version counter must do
        return True


def _plain(module: Any) -> dict[str, Any]:
    return {
        name: value
        for name, value in module.__dict__.items()
        if name not in _OWN and name not in _TORCHS
    }


def _contents(value: Any) -> list[tuple[Any, Any]]:
    """Every container in an attribute with a copy of what it holds: a cache is often a list that grows, or a dict of such lists."""
    found: dict[int, tuple[Any, Any]] = {}
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if (
            isinstance(item, list | dict | set | deque)
            and type(item).__module__ in ("builtins", "collections")
            and id(item) not in found
        ):
            found[id(item)] = (item, item.copy())
            waiting += item.values() if isinstance(item, dict) else item
        elif isinstance(item, tuple):
            waiting += item
    return list(found.values())


def _alike(container: Any, items: Any) -> bool:
    """Whether a container holds what it held: the same objects, or equal plain values; asking a tensor for equality gives no yes or no."""
    if isinstance(container, set):
        return bool(container == items)
    if len(container) != len(items) or (
        isinstance(container, dict) and list(container) != list(items)
    ):
        return False
    pairs = (
        zip(container.values(), items.values(), strict=True)
        if isinstance(container, dict)
        else zip(container, items, strict=True)
    )
    return all(
        now is then
        or (type(now) is type(then) and isinstance(now, int | float | str) and now == then)
        for now, then in pairs
    )
