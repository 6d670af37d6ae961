"""Layers that behave differently in training, and state that a module keeps between calls; both found by calling it."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

import torch

from onnxproof.exporter.example import Example
from onnxproof.reference import tree
from onnxproof.reference.restore import RestoreModule
from onnxproof.results import Finding

_SHOWN = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Modes:
    """What depends on the training flag."""

    layers: tuple[str, ...]
    """`drop (Dropout)` for each layer whose answer changes with its flag, in the order of the forward pass."""
    arrived_training: tuple[str, ...]
    """Those of them that were in training mode when the module was handed over."""

    @property
    def warnings(self) -> list[str]:
        """What the user should read."""
        if self.arrived_training:
            return [
                f"the module was in training mode, and these layers answer differently there: {_list(self.arrived_training)}; the export is of eval mode"
            ]
        return (
            [
                f"these layers answer differently in training mode: {_list(self.layers)}; the export is of eval mode"
            ]
            if self.layers
            else []
        )


def modes(example: Example, *, seconds: float = 10.0) -> Modes:
    """One forward pass in which each layer that looks at its training flag is asked again, alone, with the flag set.

    Only layers whose code mentions `training` are asked, each on the input that it really gets. Layers without children cost
    one more pass together; those with children are asked while the time lasts.
    """
    module = example.session.module
    if not isinstance(module, torch.nn.Module) or isinstance(module, torch.jit.ScriptModule):
        return Modes(layers=(), arrived_training=())
    names = {layer: name or "the module itself" for name, layer in module.named_modules()}
    asked = [
        layer
        for layer in names
        if _mentions_training(type(layer)) and not isinstance(layer, torch.jit.ScriptModule)
    ]
    if not asked:
        return Modes(layers=(), arrived_training=())
    arrived = {layer for layer in asked if layer.training}
    differing: dict[torch.nn.Module, str] = {}
    ask = _Ask(names, differing, until=time.monotonic() + seconds)
    hooks = [layer.register_forward_hook(ask, with_kwargs=True) for layer in asked]
    try:
        example.call({})
    finally:
        for hook in hooks:
            hook.remove()
    told = {layer: f"{name} ({type(layer).__name__})" for layer, name in differing.items()}
    return Modes(
        layers=tuple(told.values()),
        arrived_training=tuple(text for layer, text in told.items() if layer in arrived),
    )


class _Ask:
    """The hook: calls the layer's forward once more with its own flag set, and puts its buffers back."""

    def __init__(
        self,
        names: dict[torch.nn.Module, str],
        differing: dict[torch.nn.Module, str],
        *,
        until: float,
    ) -> None:
        self._names, self._differing, self._until = names, differing, until
        self._busy = False

    def __call__(
        self, layer: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> None:
        late = time.monotonic() > self._until and any(True for _ in layer.children())
        if self._busy or layer in self._differing or late or not _repeatable((args, kwargs)):
            return
        buffers = {name: buffer.clone() for name, buffer in layer.named_buffers(recurse=False)}
        self._busy = layer.training = True
        try:
            other = layer.forward(*args, **kwargs)
        except Exception:  # a BatchNorm refuses to train on one row: that is a difference
            other = None
        finally:
            self._busy = layer.training = False
            for name, copy in buffers.items():
                getattr(layer, name).copy_(copy)
        if not _equal(output, other):
            self._differing[layer] = self._names[layer]


def _repeatable(value: Any) -> bool:
    """False where a layer is handed an object of its own kind, such as a cache: calling it again would change that."""
    if isinstance(value, dict):
        return all(_repeatable(item) for item in value.values())
    if isinstance(value, list | tuple):
        return all(_repeatable(item) for item in value)
    return value is None or isinstance(
        value, torch.Tensor | int | float | bool | str | torch.dtype | torch.device
    )


def _mentions_training(kind: type) -> bool:
    functions = (
        value
        for base in kind.__mro__
        if base not in (torch.nn.Module, object)
        for value in vars(base).values()
        if isinstance(value, FunctionType)
    )
    return any("training" in names for function in functions for names in _names(function.__code__))


def _names(code: CodeType) -> Iterator[tuple[str, ...]]:
    yield code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def state(example: Example) -> list[Finding]:
    """Call the module twice without putting anything back: what changed, and whether the second answer did."""
    module = example.session.module
    keeper = RestoreModule(module)
    before = (
        {name: buffer.clone() for name, buffer in module.named_buffers()}
        if isinstance(module, torch.nn.Module)
        else {}
    )
    args, kwargs = example.arguments({})
    again, more = example.arguments({})
    with keeper, torch.no_grad():
        seed = torch.random.get_rng_state()
        first = _copied(module(*args, **kwargs))
        torch.random.set_rng_state(seed)
        second = module(*again, **more)
        written = [
            name
            for name, buffer in before.items()
            if not _same(dict(module.named_buffers()).get(name), buffer)
        ]
    changed = [f"the buffer `{name}`" for name in written]
    changed += sorted(what for what in keeper.changed if "buffer" not in what)
    if not changed:
        return []
    answer = (
        "the second call with the same inputs answers differently"
        if not _equal(first, second)
        else "the answers stay the same on this example"
    )
    return [
        Finding(
            code="state",
            what=f"the module keeps state between calls: forward changes {_list(changed)}; {answer}",
            help="an exported graph keeps none: pass the state in as an input and hand it back as an output",
        )
    ]


def random_nodes(program: Any) -> list[Finding]:
    """Operations that draw random numbers although the module is in eval mode."""
    tag = torch.Tag.nondeterministic_seeded
    found = [
        node
        for node in program.graph.nodes
        if node.op == "call_function" and tag in getattr(node.target, "tags", ()) and _draws(node)
    ]
    if not found:
        return []
    lines = {line for node in found if (line := _last_line(node.meta.get("stack_trace") or ""))}
    where = f" at {', '.join(sorted(lines)[:3])}" if lines else ""
    names = sorted({str(node.target) for node in found})
    return [
        Finding(
            code="random",
            what=f"the module draws random numbers in eval mode: {', '.join(names)}{where}",
            help="pass `training=self.training` to functional dropout, or hand the noise in as an input",
        )
    ]


def _draws(node: Any) -> bool:
    """Dropout that is switched off is in the graph, too, and draws nothing."""
    if "dropout" in str(node.target):
        return any(argument is True for argument in node.args)
    if "scaled_dot_product" in str(node.target):
        return (len(node.args) > 4 and bool(node.args[4])) or bool(node.kwargs.get("dropout_p"))
    return not any(word in str(node.target) for word in ("lstm", "gru", "rnn"))


def _last_line(trace: str) -> str:
    lines = [line.strip() for line in trace.splitlines() if line.strip().startswith("File ")]
    if not lines:
        return ""
    file, _, rest = lines[-1].removeprefix('File "').partition('", line ')
    return f"{file.rpartition('/')[2]}:{rest.partition(',')[0]}"


def _copied(value: Any) -> list[Any]:
    return [
        (name, leaf.clone() if isinstance(leaf, torch.Tensor) else leaf)
        for name, leaf in tree.flatten(value)
    ]


def _equal(first: Any, second: Any) -> bool:
    a = (
        first
        if isinstance(first, list) and first and isinstance(first[0], tuple)
        else list(tree.flatten(first))
    )
    b = list(tree.flatten(second))
    return len(a) == len(b) and all(_same(x, y) for (_, x), (_, y) in zip(a, b, strict=True))


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())
    return isinstance(a, torch.Tensor) == isinstance(b, torch.Tensor) and (
        isinstance(a, torch.Tensor) or a == b
    )


def _list(words: tuple[str, ...] | list[str]) -> str:
    more = f" and {len(words) - _SHOWN} more" if len(words) > _SHOWN else ""
    return ", ".join(words[:_SHOWN]) + more
