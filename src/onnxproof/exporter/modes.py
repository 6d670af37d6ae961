"""Layers that behave differently in training, state that a module keeps between calls, and random numbers in eval mode."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

import torch

from onnxproof.exporter.example import Example
from onnxproof.reference import tree
from onnxproof.reference.restore import RestoreModule
from onnxproof.results import Finding

Leaves = list[tuple[str, Any]]
_MAX_SHOWN = 6
_MAX_LINES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingLayers:
    """The layers whose output depends on their training flag."""

    layers: tuple[str, ...] = ()
    """`drop (Dropout)` for each of them, in the order of the forward pass."""
    arrived_training: tuple[str, ...] = ()
    """Those of them that were in training mode when the module was handed over."""

    @property
    def warnings(self) -> list[str]:
        """What the user should read: nothing where the module came in eval mode, which is what is exported."""
        if not self.arrived_training:
            return []
        layers = _format_list(self.arrived_training)
        return [
            f"the module was in training mode, and these layers answer differently there: {layers}; the export is of eval mode"
        ]


def find_training_layers(example: Example, *, seconds: float = 10.0) -> TrainingLayers:
    """One forward pass in which each layer that reads its training flag is run again, alone, with the flag set.

    Only layers whose code mentions `training` are run again, each on the input that it gets in the pass. Layers without children
    cost one more pass together; those with children are run again while the time lasts.
    """
    labels = _label_candidates(example.session.module)
    if not labels:
        return TrainingLayers()
    training = {layer for layer in labels if layer.training}
    differing = _find_differing(example, list(labels), time.monotonic() + seconds)
    labels = {layer: labels[layer] for layer in differing}
    arrived_training = [label for layer, label in labels.items() if layer in training]
    return TrainingLayers(layers=tuple(labels.values()), arrived_training=tuple(arrived_training))


def _label_candidates(module: Any) -> dict[torch.nn.Module, str]:
    """`drop (Dropout)` for each layer that reads its training flag."""
    if not isinstance(module, torch.nn.Module) or isinstance(module, torch.jit.ScriptModule):
        return {}
    return {
        layer: f"{name or 'the module itself'} ({type(layer).__name__})"
        for name, layer in module.named_modules()
        if _reads_training_flag(layer)
    }


def _find_differing(
    example: Example,
    layers: Sequence[torch.nn.Module],
    deadline: float,
) -> list[torch.nn.Module]:
    """The layers whose output differs in training mode, in the order of the forward pass."""
    probe = _TrainingProbe(deadline=deadline)
    hooks = [layer.register_forward_hook(probe, with_kwargs=True) for layer in layers]
    try:
        example.call({})
    finally:
        for hook in hooks:
            hook.remove()
    return probe.differing


class _TrainingProbe:
    """A forward hook: runs the layer once more with its training flag set, and restores its buffers."""

    def __init__(self, *, deadline: float) -> None:
        self.differing: list[torch.nn.Module] = []
        self._deadline = deadline
        self._busy = False

    def __call__(
        self,
        layer: torch.nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        output: Any,
    ) -> None:
        if self._busy or layer in self.differing or self._is_too_late(layer):
            return
        if not _can_repeat((args, kwargs)):
            return
        buffers = {name: buffer.clone() for name, buffer in layer.named_buffers(recurse=False)}
        self._busy = layer.training = True
        try:
            training_output = layer.forward(*args, **kwargs)
        except Exception:  # a BatchNorm refuses to train on one row: that is a difference
            training_output = None
        finally:
            self._busy = layer.training = False
            for name, copy in buffers.items():
                getattr(layer, name).copy_(copy)
        if not _equal_leaves(_flatten(output), _flatten(training_output)):
            self.differing.append(layer)

    def _is_too_late(self, layer: torch.nn.Module) -> bool:
        return time.monotonic() > self._deadline and any(True for _ in layer.children())


def _can_repeat(value: Any) -> bool:
    """False if a layer gets an object of another class, such as a cache: a second call would change it."""
    if isinstance(value, dict):
        return all(_can_repeat(item) for item in value.values())
    if isinstance(value, list | tuple):
        return all(_can_repeat(item) for item in value)
    return value is None or isinstance(
        value,
        torch.Tensor | int | float | bool | str | torch.dtype | torch.device,
    )


def _reads_training_flag(layer: torch.nn.Module) -> bool:
    if isinstance(layer, torch.jit.ScriptModule):
        return False
    for base in type(layer).__mro__:
        if base in (torch.nn.Module, object):
            continue
        for value in vars(base).values():
            if isinstance(value, FunctionType) and "training" in _names_in(value.__code__):
                return True
    return False


def _names_in(code: CodeType) -> Iterator[str]:
    """The names that a function and the functions inside of it use."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)


def find_state(example: Example) -> list[Finding]:
    """Call the module twice without restoring it: what changed, and whether the second answer did."""
    module = example.session.module
    keeper = RestoreModule(module)
    before = {name: buffer.clone() for name, buffer in _buffers(module).items()}
    args, kwargs = example.arguments({})
    second_args, second_kwargs = example.arguments({})
    with keeper, torch.no_grad():
        seed = torch.random.get_rng_state()
        first = [(name, _copy(leaf)) for name, leaf in tree.flatten(module(*args, **kwargs))]
        torch.random.set_rng_state(seed)
        second = _flatten(module(*second_args, **second_kwargs))
        after = _buffers(module)
        written = [name for name, old in before.items() if not _equal(after.get(name), old)]
    changed = [f"the buffer `{name}`" for name in written]
    changed += sorted(what for what in keeper.changed if "buffer" not in what)
    if not changed:
        return []
    answer = "the second call with the same inputs answers differently"
    if _equal_leaves(first, second):
        answer = "the answers stay the same on this example"
    return [
        Finding(
            code="state",
            what=f"the module keeps state between calls: forward changes {_format_list(changed)}; {answer}",
            help="an exported graph keeps none: pass the state in as an input and hand it back as an output",
        )
    ]


def _buffers(module: Any) -> dict[str, torch.Tensor]:
    if isinstance(module, torch.nn.Module):
        return dict(module.named_buffers())
    return {}


def find_random_nodes(program: Any) -> list[Finding]:
    """Operations that draw random numbers although the module is in eval mode."""
    random = [node for node in program.graph.nodes if _draws_random_numbers(node)]
    if not random:
        return []
    lines = {_last_line(node.meta.get("stack_trace") or "") for node in random} - {""}
    where = ""
    if lines:
        where = f" at {', '.join(sorted(lines)[:_MAX_LINES])}"
    names = sorted({str(node.target) for node in random})
    return [
        Finding(
            code="random",
            what=f"the module draws random numbers in eval mode: {', '.join(names)}{where}",
            help="pass `training=self.training` to functional dropout, or hand the noise in as an input",
        )
    ]


def _draws_random_numbers(node: Any) -> bool:
    """Dropout that is switched off is in the graph, too, and draws nothing."""
    tags = getattr(node.target, "tags", ())
    if node.op != "call_function" or torch.Tag.nondeterministic_seeded not in tags:
        return False
    name = str(node.target)
    if "dropout" in name:
        return any(argument is True for argument in node.args)
    if "scaled_dot_product" in name:
        dropout = node.args[4] if len(node.args) > 4 else None
        return bool(dropout or node.kwargs.get("dropout_p"))
    return not any(word in name for word in ("lstm", "gru", "rnn"))


def _last_line(trace: str) -> str:
    """The innermost `file:line` of a stack trace, or nothing."""
    lines = [line.strip() for line in trace.splitlines()]
    frames = [line for line in lines if line.startswith("File ")]
    if not frames:
        return ""
    file, _, rest = frames[-1].removeprefix('File "').partition('", line ')
    return f"{file.rpartition('/')[2]}:{rest.partition(',')[0]}"


def _copy(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return leaf.clone()
    return leaf


def _flatten(value: Any) -> Leaves:
    return list(tree.flatten(value))


def _equal_leaves(first: Leaves, second: Leaves) -> bool:
    if len(first) != len(second):
        return False
    return all(_equal(a, b) for (_, a), (_, b) in zip(first, second, strict=True))


def _equal(a: Any, b: Any) -> bool:
    """Equal bit by bit; NaN equals NaN."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())
    if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
        return False
    return bool(a == b)


def _format_list(words: Sequence[str]) -> str:
    text = ", ".join(words[:_MAX_SHOWN])
    if len(words) > _MAX_SHOWN:
        text += f" and {len(words) - _MAX_SHOWN} more"
    return text


def find_dropped_cache(module: Any) -> list[Finding]:
    """A model that generates, exported without the cache that it generates with."""
    generates = getattr(module, "can_generate", lambda: False)
    config = getattr(module, "config", None)
    if getattr(config, "use_cache", None) is not False or not generates():
        return []
    return [
        Finding(
            code="cache-dropped",
            what="the file has no cache: for every new token it computes the whole text again",
            help="`onnxproof export MODEL -o FOLDER --with-cache` writes a folder whose decoder takes its cache",
        )
    ]
