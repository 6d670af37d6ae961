"""Leave a module as it was found: training flags, buffers, plain attributes and the random state."""

from typing import Any, Self

import torch

_SEED = 20240229
_OWN = frozenset({"_parameters", "_buffers", "_modules", "training", "_non_persistent_buffers_set"})


class Keeper:
    """A context for one forward pass: eval mode and a fixed seed inside, everything put back after.

    Buffers are copied once; a pass that writes into one is noticed by the tensor's version counter, undone, and
    remembered in `changed`, since a module which keeps state between calls can't be exported faithfully.
    """

    def __init__(self, module: Any) -> None:
        self._modules: list[Any] = list(module.modules()) if hasattr(module, "modules") else []
        self._names = {id(m): name for name, m in module.named_modules()} if self._modules else {}
        self._training = [m.training for m in self._modules]
        self._buffers = [dict(m._buffers.items()) for m in self._modules]
        self._plain = [_plain(m) for m in self._modules]
        held = [t for b in self._buffers for t in b.values() if t is not None]
        held += [value for plain in self._plain for value, _ in plain.values() if isinstance(value, torch.Tensor)]
        self._copies = [(tensor, tensor.detach().clone()) for tensor in held]
        self._versions: list[int] = []
        self.changed: set[str] = set()

    def __enter__(self) -> Self:
        self._state = torch.random.get_rng_state()
        self._versions = [tensor._version for tensor, _ in self._copies]
        for module in self._modules:
            module.training = False
        torch.manual_seed(_SEED)
        return self

    def __exit__(self, *_: object) -> None:
        torch.random.set_rng_state(self._state)
        with torch.no_grad():
            for (tensor, copy), version in zip(self._copies, self._versions, strict=True):
                if tensor._version != version:
                    tensor.copy_(copy)
                    self.changed.add("a buffer written in place")
        for module, training, buffers, plain in zip(self._modules, self._training, self._buffers, self._plain, strict=True):
            module.training = training
            if isinstance(module, torch.jit.ScriptModule):
                continue
            if any(module._buffers.get(name) is not tensor for name, tensor in buffers.items()):
                self.changed.add(f"a buffer of `{self._names[id(module)]}`")
            module._buffers.update(buffers)
            self._restore(module, plain)

    def _restore(self, module: Any, plain: dict[str, tuple[Any, Any]]) -> None:
        for name in module.__dict__.keys() - plain.keys() - _OWN:
            self.changed.add(f"`{self._names[id(module)]}.{name}`".replace("`.", "`"))
            del module.__dict__[name]
        for name, (value, copy) in plain.items():
            if module.__dict__.get(name) is not value:
                self.changed.add(f"`{self._names[id(module)]}.{name}`".replace("`.", "`"))
                module.__dict__[name] = value
            if copy is not None and value != copy:
                self.changed.add(f"`{self._names[id(module)]}.{name}`".replace("`.", "`"))
                value.clear()
                value.extend(copy) if isinstance(value, list) else value.update(copy)


def _plain(module: Any) -> dict[str, tuple[Any, Any]]:
    """Plain attributes with a copy of the small containers among them: a cache is often a list that grows."""
    if isinstance(module, torch.jit.ScriptModule):
        return {}
    return {name: (value, value.copy() if _is_container(name, value) else None) for name, value in module.__dict__.items() if name not in _OWN}


def _is_container(name: str, value: Any) -> bool:
    """Containers of plain values only: comparing tensors inside one would not give a yes or no."""
    if not isinstance(value, list | dict | set) or name.startswith("_"):
        return False
    items = value.values() if isinstance(value, dict) else value
    return not any(isinstance(item, torch.Tensor) for item in items)
