"""What the checks read: the graph, its weights by content, and the module's parameters if there is one."""

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
_MIN_INTEGER_WEIGHT = 64
"""Elements above which a Constant of integers counts as a weight: shorter ones are shapes and axes. Not measured."""
_MAX_SMALL = 64
"""Elements up to which `View.constants` holds a constant: a shape has far fewer."""
_CHUNK_BYTES = 1 << 20


class Rating(StrEnum):
    """How a check rates a file, the best first."""

    GOOD = "good"
    ODD = "odd"
    """It works, but wastes something or has a hidden limit."""
    BAD = "bad"
    """It gives wrong answers, or will for some inputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The result of one check."""

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
        """The number of its elements."""
        return math.prod(self.shape)


class View:
    """A file to be inspected."""

    def __init__(
        self,
        file: OnnxFile,
        weights: tuple[Weight, ...],
        module: Any = None,
    ) -> None:
        self.file = file
        self.weights = weights
        self.module = module
        self.nodes = list(onnx_file.walk(file.model))
        self.operators: Counter[str] = Counter(_label(node) for node in self.nodes)

    @property
    def file_bytes(self) -> int:
        """The file and its external data."""
        folder = self.file.path.parent
        external = {folder / name for name in _external_files(self.file.model)}
        return sum(path.stat().st_size for path in {self.file.path, *external})

    @property
    def consumed(self) -> set[str]:
        """The values that a node takes as an input or that a graph returns."""
        names: set[str] = set()
        for graph in _graphs(self.file.model):
            names.update(port.name for port in graph.output)
        for function in self.file.model.functions:
            names.update(function.output)
        for node in self.nodes:
            names.update(node.input)
        return names

    @cached_property
    def constants(self) -> dict[str, np.ndarray[Any, Any]]:
        """Small constants by name."""
        return onnx_file.constants(self.file, largest=_MAX_SMALL)

    @cached_property
    def state(self) -> dict[str, Any]:
        """The module's parameters and buffers by name, shared ones once."""
        if self.module is None or not hasattr(self.module, "named_parameters"):
            return {}
        return {**dict(self.module.named_buffers()), **dict(self.module.named_parameters())}

    @cached_property
    def input_dependent(self) -> set[str]:
        """Values that are computed from the values of an input; its shape alone does not count."""
        names = {port.name for port in self.file.inputs}
        for node in self.file.model.graph.node:
            if node.op_type not in ("Shape", "Size") and names & set(node.input):
                names.update(node.output)
        return names


def open_view(path: Path, reference: Any = None) -> View:
    """Read the graph and hash its weights; external data is read in chunks."""
    file = onnx_file.read(path)
    module = None
    if reference is not None:
        module = subject.load(reference, require_example=False).module
    return View(file, tuple(_weights(path)), module)


def _weights(path: Path) -> Iterator[Weight]:
    """Initializers, those of subgraphs too, and Constant nodes, except for shapes and single numbers."""
    model = onnx.load(path, load_external_data=False)
    for graph in _graphs(model):
        for tensor in graph.initializer:
            yield _weight(tensor, tensor.name, path)
    for node in onnx_file.walk(model):
        constant = file_checks.constant(node)
        if constant is None:
            continue
        weight = _weight(constant, node.output[0], path)
        smallest = 1 if weight.dtype in _FLOATS else _MIN_INTEGER_WEIGHT
        if weight.elements > smallest:
            yield weight


def _weight(
    tensor: onnx.TensorProto,
    name: str,
    path: Path,
) -> Weight:
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
    remaining = file_checks.byte_size(tensor.data_type, math.prod(tensor.dims))
    with (folder / entries["location"]).open("rb") as stream:
        stream.seek(int(entries.get("offset", 0)))
        while remaining > 0:
            chunk = stream.read(min(remaining, _CHUNK_BYTES))
            if not chunk:
                break
            digest.update(chunk)
            remaining -= len(chunk)
    return digest.hexdigest()


def _external_files(model: onnx.ModelProto) -> Iterator[str]:
    for tensor in file_checks.tensors(model):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            yield from (entry.value for entry in tensor.external_data if entry.key == "location")


def _label(node: onnx.NodeProto) -> str:
    if node.domain in ("", "ai.onnx"):
        return node.op_type
    return f"{node.domain}:{node.op_type}"


def format_bytes(size: float) -> str:
    """A size in megabytes or kilobytes.

    >>> format_bytes(2_500_000), format_bytes(900)
    ('2.5 MB', '0.9 kB')
    """
    if size >= 1e5:
        return f"{size / 1e6:,.1f} MB"
    return f"{size / 1e3:,.1f} kB"


def list_names(names: list[str], most: int = 3) -> str:
    """The first names, and how many more there are.

    >>> list_names(["a", "b", "c"], 2)
    '`a`, `b` and 1 more'
    """
    text = ", ".join(f"`{name}`" for name in names[:most])
    if len(names) > most:
        text += f" and {len(names) - most} more"
    return text
