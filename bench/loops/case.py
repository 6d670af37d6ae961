"""A looping model with a right and a wrong file, and how it is called over many steps."""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import ModelProto, numpy_helper
from torch import Tensor, nn

VOCABULARY = 64
PROMPT = 4
STEPS = 44


def seeded(module: nn.Module, seed: int, gain: float = 1.0) -> nn.Module:
    """The module with weights that matter, in eval mode."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in module.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        with torch.no_grad():
            if parameter.dim() < 2:
                parameter.copy_(0.2 * noise + float("norm" in name))
            elif "embed" in name:
                parameter.copy_(noise)
            else:
                parameter.copy_(gain * noise / math.sqrt(parameter[0].numel()))
    return module.eval()


@dataclass(frozen=True, kw_only=True)
class Input:
    """An input of a looping model; `B`, `T`, `P` and `S` in a shape are rows, what a call consumes, what came before, and both."""

    name: str
    kind: str
    """tokens, mask, positions, start, frames, state."""
    shape: tuple[int | str, ...]
    dtype: torch.dtype = torch.float32

    @property
    def dims(self) -> dict[int, str]:
        words = {"B": "batch", "T": "seq", "P": "past", "S": "total"}
        return {k: words[size] for k, size in enumerate(self.shape) if isinstance(size, str)}

    def sized(self, **sizes: int) -> list[int]:
        return [sizes[size] if isinstance(size, str) else size for size in self.shape]


@dataclass(frozen=True, kw_only=True)
class Interface:
    """How a looping model is called."""

    inputs: tuple[Input, ...]
    outputs: tuple[str, ...]
    loop: Mapping[str, str]
    chunk: int | None = None
    """What every call consumes, where that is fixed."""

    def first_call(self, rows: int = 2, length: int = 3, past: int = 4) -> tuple[Tensor, ...]:
        """Inputs for an export: random states of that length."""
        length = self.chunk or length
        generator = torch.Generator().manual_seed(11)
        sizes = {"B": rows, "T": length, "P": past, "S": past + length}
        call = self._call(generator, sizes, past)
        for each in self.inputs:
            if each.kind == "state":
                random = torch.randn(each.sized(**sizes), generator=generator)
                if "power" in each.name:
                    random = random.abs() + 1
                if not each.dtype.is_floating_point:
                    random = torch.full(each.sized(**sizes), past)
                call[each.name] = random.to(each.dtype)
        return tuple(call[each.name] for each in self.inputs)

    def _call(
        self, generator: torch.Generator, sizes: Mapping[str, int], begin: int
    ) -> dict[str, Tensor]:
        call = {}
        for each in self.inputs:
            shape = each.sized(**sizes)
            if each.kind == "tokens":
                call[each.name] = torch.randint(1, VOCABULARY, shape, generator=generator)
            elif each.kind == "mask":
                call[each.name] = torch.ones(shape, dtype=torch.int64)
            elif each.kind == "positions":
                places = torch.arange(begin, begin + sizes["T"])
                call[each.name] = places.expand(*shape).contiguous()
            elif each.kind == "start":
                call[each.name] = torch.full(shape, begin, dtype=torch.int64)
            elif each.kind == "frames":
                call[each.name] = torch.randn(shape, generator=generator)
            elif each.kind == "rows":
                call[each.name] = torch.arange(sizes["B"]).flip(0)
        return call

    def roll(
        self, run: Callable[[list[Tensor]], list[Tensor]], lengths: Sequence[int], left: int = 0
    ) -> list[Tensor]:
        """The first answer of every call, each call with the states of the one before."""
        rows, generator = 2, torch.Generator().manual_seed(5)
        states = {
            each.name: torch.zeros(each.sized(B=rows, T=0, P=0, S=0), dtype=each.dtype)
            for each in self.inputs
            if each.kind == "state"
        }
        hidden = torch.ones(rows, sum(lengths), dtype=torch.int64)
        hidden[0, :left] = 0
        begin, answers = 0, []
        for length in lengths:
            sizes = {"B": rows, "T": length, "P": begin, "S": begin + length}
            call = self._call(generator, sizes, begin)
            for each in self.inputs:
                if each.kind == "mask":
                    call[each.name] = hidden[:, : begin + length]
                if each.kind == "positions":
                    places = (hidden.cumsum(1) - 1).clamp(min=0)
                    call[each.name] = places[:, begin : begin + length]
            outputs = run([{**call, **states}[each.name] for each in self.inputs])
            by_name = dict(zip(self.outputs, outputs, strict=True))
            states = {target: by_name[source] for source, target in self.loop.items()}
            answer = by_name[next(name for name in self.outputs if name not in self.loop)]
            if left and answer.dim() == 3:
                answer = answer * hidden[:, begin : begin + length, None]
            answers.append(answer)
            begin += length
        return answers


@dataclass(frozen=True, kw_only=True)
class Case:
    """What a user hands to `verify`, twice."""

    model: Any
    example: tuple[Any, ...] | None
    dims: tuple[dict[int, str], ...] | None
    right: Path
    wrong: Path | None = None
    """None of a healthy case."""
    loop: Mapping[str, str] | None = None
    """Given where names do not tell."""
    guilty: Sequence[str] = ()
    file: str = ""
    """The guilty file of a folder."""
    first_bad: int | None = None
    """Tokens or frames consumed with the first call that is wrong, by a plain loop."""
    first_bad_step: int | None = None
    """The number of that call; 0 is the first."""
    causes: Sequence[str] = ()
    """Codes that are right."""


@dataclass(frozen=True, kw_only=True)
class Planted:
    """A module and its wrong (or differently kept) twin."""

    module: nn.Module
    other: nn.Module
    interface: Interface
    other_interface: Interface | None = None
    lengths: Sequence[int] = (PROMPT, *[1] * STEPS)
    left: int = 0
    give_loop: bool = False
    causes: Sequence[str] = ()
    dynamo: bool = False
    edit: Callable[[ModelProto], None] | None = None
    """Changes the other file once it is written."""
    healthy: bool = False
    name: str = field(default="model")

    def build(self, folder: Path) -> Case:
        """Write both files and measure where the plain loop parts."""
        folder.mkdir(parents=True, exist_ok=True)
        right, other = folder / "right.onnx", folder / "other.onnx"
        interface = self.interface
        if not self.healthy:
            write(self.module, interface, right, dynamo=self.dynamo)
        write(self.other, self.other_interface or interface, other, dynamo=self.dynamo)
        if self.edit is not None:
            model = onnx.load(other)
            self.edit(model)
            onnx.save(model, other)
        case = Case(
            model=self.module,
            example=interface.first_call(),
            dims=tuple(each.dims for each in interface.inputs),
            right=other if self.healthy else right,
            wrong=None if self.healthy else other,
            loop=interface.loop if self.give_loop else None,
            causes=self.causes,
        )
        if self.healthy:
            return case
        step, length = self._first_bad(right, other)
        guilty = changed_nodes(other, right)
        return replace(case, guilty=guilty, first_bad_step=step, first_bad=length)

    def _first_bad(self, right: Path, wrong: Path) -> tuple[int | None, int | None]:
        """The first call that differs by more than a thousandth: its number, and what was consumed with it."""
        lengths = list(self.lengths)
        if self.interface.chunk:
            lengths = [self.interface.chunk] * sum(lengths)
        one = self.interface.roll(runner(right, self.interface), lengths, self.left)
        try:
            other = self.interface.roll(runner(wrong, self.interface), lengths, self.left)
        except Exception:  # the file refuses a call: the first that it refuses is asked for below
            other = refused_from(self.interface, wrong, lengths, self.left)
        for k, answer in enumerate(one):
            size = float(answer.abs().max())
            if k >= len(other) or not torch.allclose(answer, other[k], rtol=1e-3, atol=1e-3 * size):
                return k, sum(lengths[: k + 1])
        return None, None


def refused_from(
    interface: Interface, path: Path, lengths: Sequence[int], left: int
) -> list[Tensor]:
    """The answers up to the call that a file refuses."""
    for calls in range(len(lengths) - 1, 0, -1):
        try:
            return interface.roll(runner(path, interface), lengths[:calls], left)
        except Exception:  # one call less
            continue
    return []


def runner(path: Path, interface: Interface) -> Callable[[list[Tensor]], list[Tensor]]:
    """A file as a function of tensors."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    known = {port.name for port in session.get_inputs()}

    def run(inputs: list[Tensor]) -> list[Tensor]:
        pairs = zip(interface.inputs, inputs, strict=True)
        feeds = {each.name: tensor.numpy() for each, tensor in pairs if each.name in known}
        return [torch.from_numpy(np.array(array)) for array in session.run(None, feeds)]

    return run


def write(module: nn.Module, interface: Interface, path: Path, *, dynamo: bool = False) -> None:
    """Export as most users do."""
    names = [each.name for each in interface.inputs]
    options: dict[str, Any] = {"dynamic_axes": {e.name: e.dims for e in interface.inputs if e.dims}}
    if dynamo:
        auto = torch.export.Dim.DYNAMIC
        shapes = tuple(dict.fromkeys(each.dims, auto) for each in interface.inputs)
        options = {"dynamic_shapes": shapes, "external_data": False, "verbose": False}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module.eval(),
            interface.first_call(),
            str(path),
            dynamo=dynamo,
            input_names=names,
            output_names=list(interface.outputs),
            opset_version=18,
            **options,
        )


def changed_nodes(wrong: Path, right: Path, most: int = 8) -> list[str]:
    """The first nodes of a file that compute what no node of the other computes, by structure."""
    known = {digest for _, digest in _digests(right)}
    return [name for name, digest in _digests(wrong) if digest not in known and name][:most]


def _digests(path: Path) -> list[tuple[str, int]]:
    graph = onnx.load(path).graph
    digests: dict[str, int] = {port.name: hash(port.name) for port in graph.input}
    for initializer in graph.initializer:
        array = numpy_helper.to_array(initializer)
        digests[initializer.name] = hash((str(array.dtype), array.shape, array.tobytes()))
    outputs = {port.name for port in graph.output}
    rows = []
    for node in graph.node:
        attributes = tuple(sorted(a.SerializeToString() for a in node.attribute))
        shown = tuple(name for name in node.output if name in outputs)
        inputs = tuple(digests.get(name, 0) for name in node.input)
        digest = hash((node.op_type, inputs, attributes))
        if node.op_type not in ("Constant", "Shape", "Unsqueeze", "Cast", "Identity"):
            rows.append((node.name, hash((digest, shown))))
        for k, name in enumerate(node.output):
            digests[name] = hash((digest, k))
    return rows
