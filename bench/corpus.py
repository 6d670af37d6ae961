"""What a benchmark case is, and the few steps every case needs: export quietly, edit a graph, give weights.

A case is one file with a `META` and a `build(folder)`. Healthy models live in `bench/clean`, faults with their correct
twins in `bench/faults`. The file's name is the case's name; nothing in `src/` knows any of them.
"""

import contextlib
import importlib
import io
import logging
import math
import pkgutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper

logging.getLogger("torch.onnx").setLevel(logging.ERROR)
logging.getLogger("onnxscript").setLevel(logging.ERROR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Meta:
    """What is known about a case before it is built."""

    kind: str
    """The architecture: conv, transformer, rnn, unet, detector, embedding, audio, tabular, causal-lm, vit, graph, operator."""
    about: str
    cause: str | None = None
    """The cause code for a fault; None for a healthy model."""
    also: tuple[str, ...] = ()
    """Other codes that are as true of it: a mask ignored because a branch was frozen has two names."""
    stage: str | None = None
    """export, graph, optimizer, runtime, precision or signature; None for a healthy model."""
    domain: str | None = None
    """nan, inf, ties or empty where the fault lives only there: it then counts as caught by a note of that domain."""
    native: bool = False
    """True when today's exporter or runtime does this by itself, without an edited graph."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """What a user would hand to `onnxproof.verify`, and what we know about it."""

    model: torch.nn.Module
    example_inputs: Any
    dynamic_shapes: Any = None
    faulty: Path | None = None
    correct: Path | None = None
    guilty: Sequence[str] = field(default_factory=tuple)
    """ONNX node names, most guilty first; for an absence, the nearest surviving node."""
    trigger: Any = None
    """Inputs that reveal the fault: for understanding a miss, never for the tool."""


def cases(package: str) -> Iterator[tuple[str, Meta, Callable[[Path], Built]]]:
    """Every case of `bench.clean` or `bench.faults`, by file name."""
    root = importlib.import_module(package)
    for info in sorted(pkgutil.iter_modules(root.__path__), key=lambda info: info.name):
        if not info.name.startswith("_"):
            module = importlib.import_module(f"{package}.{info.name}")
            yield info.name, module.META, module.build


def give_weights(model: torch.nn.Module, seed: int) -> torch.nn.Module:
    """Seeded weights of a trained model's size, BatchNorm statistics away from their defaults, eval mode."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            if name.endswith("running_mean"):
                buffer.copy_(torch.randn(buffer.shape, generator=generator) * 0.4)
            elif name.endswith("running_var"):
                buffer.copy_(torch.rand(buffer.shape, generator=generator) * 1.2 + 0.4)
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() >= 2:
                parameter.copy_(noise / math.sqrt(max(1, parameter[0].numel())))
            else:
                parameter.copy_(noise * 0.15 + (1.0 if name.endswith("weight") else 0.0))
    return model.eval()


def export(
    model: torch.nn.Module,
    inputs: tuple[Any, ...],
    path: Path,
    dynamic_shapes: Any = None,
    *,
    dynamo: bool = True,
    opset: int | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    **options: Any,
) -> Path:
    """Call either exporter of torch without its chatter; `dynamic_shapes` is a tuple of {axis: name} for both.

    A file that is there already is kept: a bench that verifies a model many times exports it once.
    """
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    quiet = io.StringIO()
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(quiet),
        contextlib.redirect_stderr(quiet),
        torch.no_grad(),
    ):
        warnings.simplefilter("ignore")
        if dynamo:
            torch.onnx.export(
                model,
                inputs,
                path,
                dynamo=True,
                dynamic_shapes=dynamic_shapes,
                external_data=False,
                verbose=False,
                opset_version=opset,
                input_names=input_names,
                output_names=output_names,
                **options,
            )
        else:
            names = list(input_names or (f"in{k}" for k in range(len(inputs))))
            axes = {n: dict(d) for n, d in zip(names, dynamic_shapes or (), strict=False) if d}
            torch.onnx.export(
                model,
                inputs,
                str(path),
                dynamo=False,
                dynamic_axes=axes,
                input_names=names,
                output_names=output_names,
                opset_version=opset or 17,
                **options,
            )
    return path


def edit(
    source: Path, target: Path, change: Callable[[onnx.GraphProto], Sequence[str]]
) -> list[str]:
    """Write `source` with one change to `target`; the change returns the names of the nodes it made guilty."""
    model = onnx.load(source)
    guilty = list(change(model.graph))
    del model.graph.value_info[:]
    onnx.save(model, target)
    return guilty


def nodes(graph: onnx.GraphProto, *op_types: str) -> list[onnx.NodeProto]:
    return [node for node in graph.node if node.op_type in op_types]


def set_attributes(node: onnx.NodeProto, **values: Any) -> None:
    """Set attributes; None removes one."""
    for name, value in values.items():
        for old in [a for a in node.attribute if a.name == name]:
            node.attribute.remove(old)
        if value is not None:
            node.attribute.append(helper.make_attribute(name, value))


def read_constant(graph: onnx.GraphProto, name: str) -> np.ndarray:
    """The value of an initializer or of a Constant node's output."""
    for tensor in graph.initializer:
        if tensor.name == name:
            return np.array(numpy_helper.to_array(tensor))
    for node in graph.node:
        if node.op_type == "Constant" and node.output[0] == name:
            return np.array(numpy_helper.to_array(node.attribute[0].t))
    raise KeyError(name)


def write_constant(graph: onnx.GraphProto, name: str, value: np.ndarray) -> None:
    """Replace the value of an initializer or Constant node, or add an initializer of that name."""
    proto = numpy_helper.from_array(np.ascontiguousarray(value), name)
    for tensor in graph.initializer:
        if tensor.name == name:
            tensor.CopyFrom(proto)
            return
    for node in graph.node:
        if node.op_type == "Constant" and node.output[0] == name:
            node.attribute[0].t.CopyFrom(proto)
            return
    graph.initializer.append(proto)


def producer(graph: onnx.GraphProto, value: str) -> onnx.NodeProto | None:
    return next((node for node in graph.node if value in node.output), None)


def rewire(graph: onnx.GraphProto, old: str, new: str, *, keep: Sequence[str] = ()) -> None:
    """Let every consumer of `old` read `new`, except the nodes named in `keep`."""
    for node in graph.node:
        if node.name not in keep:
            for position, name in enumerate(node.input):
                if name == old:
                    node.input[position] = new
