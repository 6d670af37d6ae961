"""What an ONNX file says about itself, read without its weights, and clear words when it can't be read."""

import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from onnxproof.errors import ModelError
from onnxproof.onnxmodel import expansion, file_checks, foreign_files
from onnxproof.system.user_files import readable_bytes, require_regular

_NUMPY: dict[int, str] = {onnx.TensorProto.BFLOAT16: "bfloat16", onnx.TensorProto.STRING: "str"}
_HALF: dict[int, str] = {onnx.TensorProto.FLOAT16: "float16", onnx.TensorProto.BFLOAT16: "bfloat16"}
_FLOATS = frozenset({onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, *_HALF})
_SMALL_WEIGHT = 1024
"""Elements of a weight up to which its data stays in memory. Not measured."""
_MANY_BYTES = 1 << 22
"""Bytes of weights from which on large ones are left out. Not measured."""
_HASHED_AT_ONCE = 1 << 20
"""Bytes of a table that are hashed at once: each takes sixteen more meanwhile."""
_MOST_INLINE = 1 << 30
"""A protobuf holds 2 GB at most, and copies are made of it."""
_QUANTIZED = re.compile(r"Q[A-Z].*|.*([Qq]uantize|Integer|NBits|Bnb4|FpQ4|BFP|Float8).*")
"""Names of operators that quantize or take quantized weights: QLinearConv, QAttention, DynamicQuantizeMatMul, GatherBlockQuantized, ..."""
_KNOWN_DOMAINS = frozenset({"", "ai.onnx", "com.microsoft", "com.ms.internal.nhwc"})
"""Domains whose names are known to mean that: a local function `QKProduct` is no quantizer."""


@dataclass(
    frozen=True,
    slots=True,
    kw_only=True,
)
class Port:
    """An input or output of the graph."""

    name: str
    dtype: str
    dims: tuple[str | int | None, ...] | None
    """None where the file leaves the rank open; a dim is a size, a name, or None for a nameless open one."""
    kind: str = "tensor"
    """`tensor`, `sequence`, `map` or `optional`: of the last three, dtype and dims are those of an element, as far as they are declared."""


@dataclass(
    frozen=True,
    slots=True,
    kw_only=True,
)
class OnnxFile:
    """A loaded graph whose large weights stay on disk."""

    path: Path
    model: onnx.ModelProto
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    opset: int
    tables: Mapping[str, np.ndarray] = field(default_factory=dict)
    """For every table that a Gather reads rows of: a hash of each row, so that one stale row of thousands is found."""

    @property
    def op_types(self) -> frozenset[str]:
        """Every operator in the graph, subgraphs and functions included."""
        return frozenset(node.op_type for node in walk(self.model))

    @property
    def half(self) -> str | None:
        """`float16` or `bfloat16` when most of the weights are kept in it: the file was made for that precision."""
        constants = [file_checks.constant(node) for node in walk(self.model)]
        sizes: dict[int, int] = {}
        for tensor in (*self.model.graph.initializer, *constants):
            if tensor is not None and tensor.data_type in _FLOATS:
                size = int(np.prod(tensor.dims))
                sizes[tensor.data_type] = sizes.get(tensor.data_type, 0) + size
        largest = max(
            sizes,
            key=lambda data_type: sizes[data_type],
            default=0,
        )
        return _HALF.get(largest)

    @property
    def quantized(self) -> bool:
        """True when the graph quantizes anything."""
        return any(
            node.domain in _KNOWN_DOMAINS and _QUANTIZED.fullmatch(node.op_type)
            for node in walk(self.model)
        )

    def metadata(self, key: str) -> str:
        """A metadata value of the model or its graph, or an empty string."""
        entries = (*self.model.metadata_props, *self.model.graph.metadata_props)
        return next((entry.value for entry in entries if entry.key == key), "")


def read(path: str | Path) -> OnnxFile:
    """Read the graph; its external weights are checked for but not loaded."""
    path = Path(path)
    require_regular(
        path,
        ModelError,
        most=readable_bytes(),
        help="check the path; the model is an .onnx file",
    )
    try:
        return _read_graph(path)
    except ModelError:
        raise
    except Exception as why:  # protobuf raises several classes, by version
        raise _not_onnx(path, f"{type(why).__name__}: {why}") from why


def _not_onnx(path: Path, why: str) -> ModelError:
    """The error for a file that holds no graph; one of another format is called by its name."""
    what, advice = foreign_files.describe(path)
    message = "this file is not an ONNX model, or it is truncated"
    if what:
        message = f"this file is not an ONNX model but {what}"
    return ModelError(
        "not-onnx",
        message,
        where=str(path),
        notes=[f"{path.stat().st_size} bytes; {why}"],
        help=advice or "export it again, or fetch it whole (Git LFS?)",
    )


def _read_graph(path: Path) -> OnnxFile:
    """Load and check the file; what is no graph is refused."""
    whole = onnx.load(path, load_external_data=False)
    expansion.check(whole, path)
    file_checks.check(whole, path)
    tables = {tensor.name: row_hashes(numpy_helper.to_array(tensor)) for tensor in _tables(whole)}
    model = _without_large_weights(whole)
    if not model.graph.node and not model.graph.output:
        raise _not_onnx(path, "no node, no output")
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = [_port(value) for value in model.graph.input]
    opsets = [entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")]
    return OnnxFile(
        path=path,
        model=model,
        inputs=tuple(port for port in inputs if port.name not in weights),
        outputs=tuple(_port(value) for value in model.graph.output),
        opset=next(iter(opsets), 0),
        tables=tables,
    )


_KINDS = {
    "sparse_tensor": "a sparse tensor",
    "opaque": "an opaque value",
}


def require_comparable(file: OnnxFile) -> None:
    """Refuse files whose inputs or outputs can't be compared: sparse tensors, dims below 0, nothing but empty inputs, no output."""
    if not file.outputs:
        raise ModelError(
            "no-output",
            "the file has no output: there is nothing to compare",
            where=str(file.path),
            help="export it again, or name an output of its graph",
        )
    for side, ports in (("input", file.inputs), ("output", file.outputs)):
        for port in ports:
            _require_comparable(file, side, port)
    empty = [port.name for port in file.inputs if 0 in (port.dims or ())]
    if file.inputs and len(empty) == len(file.inputs):
        raise ModelError(
            "empty-input",
            f"`{empty[0]}` has a dim of 0: nothing can be given to this file",
            where=str(file.path),
            notes=[
                f"it takes {', '.join(f'`{port.name}` {port.dtype}{list(port.dims or ())}' for port in file.inputs)}"
            ],
            help="export it with the sizes that are served",
        )


def _require_comparable(
    file: OnnxFile,
    side: str,
    port: Port,
) -> None:
    """Refuse one input or output that can not be compared."""
    where = str(file.path)
    if port.kind in _KINDS:
        raise ModelError(
            "not-a-tensor",
            f"the {side} `{port.name}` is {_KINDS[port.kind]}, which can't be compared",
            where=where,
            help="export it with tensors, sequences or maps, or cut the graph before it",
        )
    below = [dim for dim in port.dims or () if isinstance(dim, int) and dim < 0]
    if below and side == "input":
        raise ModelError(
            "negative-dim",
            f"the input `{port.name}` has a dim of {below[0]}",
            where=where,
            notes=[f"its dims are {list(port.dims or ())}"],
            help="an open dim has a name, or nothing: `dim_param` in place of `dim_value`",
        )


def _tables(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """The two-dimensional weights inside the file that a Gather reads rows of."""
    names = {node.input[0] for node in model.graph.node if node.op_type == "Gather" and node.input}
    for tensor in model.graph.initializer:
        is_inside = tensor.data_location != onnx.TensorProto.EXTERNAL
        if tensor.name in names and len(tensor.dims) == 2 and is_inside:
            yield tensor


def row_hashes(table: np.ndarray) -> np.ndarray:
    """One number a row: two rows with the same bits have the same, and others almost never do."""
    if not len(table):
        return np.zeros(0, np.uint64)
    bits = np.ascontiguousarray(table).view(np.uint8).reshape(len(table), -1)
    factors = np.random.default_rng(3).integers(1, 1 << 62, bits.shape[1], dtype=np.uint64) | 1
    hashes = np.empty(len(table), np.uint64)
    at_once = max(1, _HASHED_AT_ONCE // bits.shape[1])
    for start in range(0, len(table), at_once):
        rows = bits[start : start + at_once].astype(np.uint64)
        hashes[start : start + at_once] = (rows * factors).sum(axis=1, dtype=np.uint64)
    return hashes


def _without_large_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same graph with the data of large weights left out: only their names, types and dims are read here."""
    if sum(tensor.ByteSize() for tensor in model.graph.initializer) < _MANY_BYTES:
        return model
    slim = onnx.ModelProto(
        ir_version=model.ir_version,
        producer_name=model.producer_name,
        producer_version=model.producer_version,
    )
    slim.opset_import.extend(model.opset_import)
    slim.metadata_props.extend(model.metadata_props)
    slim.functions.extend(model.functions)
    slim.graph.name = model.graph.name
    for part in ("node", "input", "output", "value_info", "metadata_props"):
        getattr(slim.graph, part).extend(getattr(model.graph, part))
    for tensor in model.graph.initializer:
        is_external = tensor.data_location == onnx.TensorProto.EXTERNAL
        if not is_external and int(np.prod(tensor.dims)) > _SMALL_WEIGHT:
            tensor = onnx.TensorProto(
                name=tensor.name,
                dims=tensor.dims,
                data_type=tensor.data_type,
            )
        slim.graph.initializer.append(tensor)
    return slim


def fingerprint(path: Path) -> str:
    """SHA-256 of the file and of its external data, read in pieces."""
    digest = hashlib.sha256()
    model = onnx.load(path, load_external_data=False)
    for file in [path, *(path.parent / name for name in external_files(model))]:
        with file.open("rb") as stream:
            while piece := stream.read(1 << 20):
                digest.update(piece)
    return digest.hexdigest()


def file_bytes(path: Path) -> int:
    """Bytes of the file and of the weights beside it."""
    beside = [path.parent / name for name in external_names(path)]
    return sum(file.stat().st_size for file in (path, *beside) if file.exists())


def walk(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Every node: the graph's, its subgraphs' and the functions'."""
    yield from expansion.walk(model.graph.node)
    for function in model.functions:
        yield from expansion.walk(function.node)


def constants(file: OnnxFile, *, largest: int = 64) -> dict[str, np.ndarray]:
    """Initializers and Constant nodes of at most `largest` elements, by value name."""
    values: dict[str, np.ndarray] = {}
    for tensor in file.model.graph.initializer:
        is_small = int(np.prod(tensor.dims)) <= min(largest, _SMALL_WEIGHT)
        if is_small and tensor.data_location != onnx.TensorProto.EXTERNAL:
            values[tensor.name] = numpy_helper.to_array(tensor)
    for node in walk(file.model):
        if node.op_type == "Constant" and node.attribute and node.output:
            array = _constant(node.attribute[0])
            if array.size <= largest and array.dtype.kind in "fiub":
                values[node.output[0]] = array
    return values


def _constant(attribute: onnx.AttributeProto) -> np.ndarray:
    """The value of a Constant node; an empty array where it holds none, or one of a kind that is no array."""
    if attribute.ref_attr_name or attribute.type == onnx.AttributeProto.UNDEFINED:
        return np.zeros(0)
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, onnx.SparseTensorProto | onnx.GraphProto | onnx.TypeProto):
        return np.zeros(0)
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value)


def dtype_name(elem_type: int) -> str:
    """`float32` for FLOAT and so on."""
    return _NUMPY.get(elem_type) or str(np.dtype(onnx.helper.tensor_dtype_to_np_dtype(elem_type)))


def _port(value: onnx.ValueInfoProto) -> Port:
    """An input or output as the file declares it."""
    kind, tensor = _element(value.type)
    dims = None
    if tensor.HasField("shape"):
        dims = tuple(_dim(dim) for dim in tensor.shape.dim)
    dtype = "unknown"
    if tensor.elem_type:
        dtype = dtype_name(tensor.elem_type)
    return Port(name=value.name, dtype=dtype, dims=dims, kind=kind)


def _element(declared: onnx.TypeProto) -> tuple[str, onnx.TypeProto.Tensor]:
    """What a port is, and the tensors that it consists of: sequences of maps, optional sequences and the like are named by the outermost."""
    kind = (declared.WhichOneof("value") or "tensor").removesuffix("_type")
    inner = declared
    while inner.WhichOneof("value") in ("sequence_type", "optional_type", "map_type"):
        which = inner.WhichOneof("value")
        held = getattr(inner, which)
        inner = held.value_type if which == "map_type" else held.elem_type
    return kind, inner.tensor_type


def _dim(dim: onnx.TensorShapeProto.Dimension) -> str | int | None:
    """A size, a name, or None for a nameless open dim."""
    if dim.HasField("dim_value"):
        return int(dim.dim_value)
    return dim.dim_param or None


def save_changed(
    model: onnx.ModelProto,
    origin: Path,
    target: Path,
) -> Path:
    """Write a changed graph elsewhere: its external data goes into the file, or where that would be too large, is linked or copied beside it."""
    entries = (entry for tensor in model.graph.initializer for entry in tensor.external_data)
    external_bytes = sum(int(entry.value) for entry in entries if entry.key == "length")
    if external_bytes < _MOST_INLINE:
        onnx.load_external_data_for_model(model, str(origin.parent))
    for name in external_files(model):
        copy = target.parent / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if copy.exists():
            continue
        try:
            os.link(origin.parent / name, copy)
        except OSError:  # another file system; a symbolic link won't do, since runtimes refuse those that leave the model's folder
            shutil.copyfile(origin.parent / name, copy)
    onnx.save(model, target)
    return target


def external_files(model: onnx.ModelProto) -> list[str]:
    """The files beside the model that hold its weights, as the model names them."""
    return sorted(set(_external(model)))


def external_names(path: Path) -> list[str]:
    """The same of a file."""
    return external_files(onnx.load(path, load_external_data=False))


def _external(model: onnx.ModelProto) -> Iterator[str]:
    """The file of each external weight."""
    for tensor in model.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            yield from (entry.value for entry in tensor.external_data if entry.key == "location")
