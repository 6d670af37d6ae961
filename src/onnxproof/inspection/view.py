"""What the checks look at: the graph, its weights by content, and the module's parameters where one is given."""

import hashlib
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from onnxproof.onnxmodel import file_checks, onnx_file
from onnxproof.onnxmodel.onnx_file import OnnxFile
from onnxproof.reference import subject

_FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})
_MANY = 64
"""Elements from which on a Constant node counts as a weight whatever its type: shorter integers are shapes and axes."""


class Rating(StrEnum):
    """What a check thinks of a file, the best first."""

    GOOD = "good"
    ODD = "odd"
    """Works, and wastes something or hides a limit."""
    BAD = "bad"
    """Wrong, or will be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at."""

    name: str
    rating: Rating
    what: str
    help: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """One initializer (or large Constant) of the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int
    digest: str

    @property
    def elements(self) -> int:
        """How many numbers it holds."""
        return math.prod(self.shape)


class View:
    """A file to be looked at."""

    def __init__(self, file: OnnxFile, weights: tuple[Weight, ...], module: Any = None) -> None:
        self.file, self.weights, self.module = file, weights, module
        self.nodes = list(onnx_file.walk(file.model))
        self.operators: Counter[str] = Counter(_label(node) for node in self.nodes)

    @property
    def file_bytes(self) -> int:
        """The file and its external data."""
        beside = {self.file.path.parent / name for name in _locations(self.file.model)}
        return sum(path.stat().st_size for path in {self.file.path, *beside})

    @property
    def read(self) -> set[str]:
        """The values that a node reads or that a graph returns."""
        inside = {port.name for graph in _graphs(self.file.model) for port in graph.output}
        returned = {name for function in self.file.model.functions for name in function.output}
        return inside | returned | {name for node in self.nodes for name in node.input}

    @cached_property
    def constants(self) -> dict[str, np.ndarray[Any, Any]]:
        """Small constants by name."""
        return onnx_file.constants(self.file, largest=64)

    @cached_property
    def state(self) -> dict[str, Any]:
        """The module's parameters and buffers by name, shared ones once."""
        if self.module is None or not hasattr(self.module, "named_parameters"):
            return {}
        return {**dict(self.module.named_buffers()), **dict(self.module.named_parameters())}

    @cached_property
    def moving(self) -> set[str]:
        """Values that carry an input of the graph: whatever is computed from one, shapes apart."""
        found = {port.name for port in self.file.inputs}
        for node in self.file.model.graph.node:
            if node.op_type not in ("Shape", "Size") and found & set(node.input):
                found.update(node.output)
        return found


def open_view(path: Path, reference: Any = None) -> View:
    """Read the graph and hash its weights; those in a file beside it are read in pieces."""
    file = onnx_file.read(path)
    module = (
        subject.load(reference, require_example=False).module if reference is not None else None
    )
    return View(file, tuple(_weights(path)), module)


def _weights(path: Path) -> Iterator[Weight]:
    """Initializers, those of subgraphs too, and what Constant nodes hold beyond shapes and single numbers."""
    whole = onnx.load(path, load_external_data=False)
    for graph in _graphs(whole):
        for tensor in graph.initializer:
            yield _weight(tensor, tensor.name, path)
    for node in onnx_file.walk(whole):
        constant = file_checks.constant(node)
        if constant is not None:
            weight = _weight(constant, node.output[0], path)
            if weight.elements > (1 if weight.dtype in _FLOATS else _MANY):
                yield weight


def _weight(tensor: onnx.TensorProto, name: str, path: Path) -> Weight:
    return Weight(
        name=name,
        dtype=onnx_file.dtype_name(tensor.data_type),
        shape=tuple(tensor.dims),
        bytes=file_checks.byte_size(tensor.data_type, math.prod(tensor.dims)),
        digest=_digest(tensor, path.parent),
    )


def _graphs(model: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    yield model.graph
    for node in onnx_file.walk(model):
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield attribute.g
            yield from attribute.graphs


def _digest(tensor: onnx.TensorProto, folder: Path) -> str:
    digest = hashlib.blake2b(f"{tensor.data_type}{list(tensor.dims)}".encode(), digest_size=16)
    if tensor.data_location != onnx.TensorProto.EXTERNAL:
        digest.update(tensor.raw_data or onnx.numpy_helper.to_array(tensor).tobytes())
        return digest.hexdigest()
    entries = {entry.key: entry.value for entry in tensor.external_data}
    left = file_checks.byte_size(tensor.data_type, math.prod(tensor.dims))
    with (folder / entries["location"]).open("rb") as stream:
        stream.seek(int(entries.get("offset", 0)))
        while left > 0 and (piece := stream.read(min(left, 1 << 20))):
            digest.update(piece)
            left -= len(piece)
    return digest.hexdigest()


def _locations(model: onnx.ModelProto) -> Iterator[str]:
    for tensor in file_checks.tensors(model):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            yield from (entry.value for entry in tensor.external_data if entry.key == "location")


def _label(node: onnx.NodeProto) -> str:
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}:{node.op_type}"


def megabytes(size: float) -> str:
    """A size for people.

    >>> megabytes(2_500_000), megabytes(900)
    ('2.5 MB', '0.9 kB')
    """
    return f"{size / 1e6:,.1f} MB" if size >= 1e5 else f"{size / 1e3:,.1f} kB"


def few(names: list[str], most: int = 3) -> str:
    """The first few names."""
    return ", ".join(f"`{name}`" for name in names[:most]) + (
        f" and {len(names) - most} more" if len(names) > most else ""
    )
