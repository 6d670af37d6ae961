"""Does what an ONNX file holds fit together? Asked once, when the file is read, so that everything behind it can rely on it.

Only what no runtime could use is refused: a weight whose bytes are not those of its dims and type, external data that is missing,
too short or outside of the model's folder, and text that is not UTF-8. Whether the graph itself makes sense is the runtimes' question.
"""

import math
from collections.abc import Iterable, Iterator
from pathlib import Path

import onnx
from onnx import AttributeProto, TensorProto, numpy_helper

from onnxproof.errors import ModelError
from onnxproof.onnxmodel.expansion import subgraphs, walk
from onnxproof.onnxmodel.text_checks import EXPORT_AGAIN, check_text, not_utf8, shorten

_PACKED_BITS = {
    "INT4": 4,
    "UINT4": 4,
    "FLOAT4E2M1": 4,
    "INT2": 2,
    "UINT2": 2,
    "FLOAT6E2M3": 6,
    "FLOAT6E3M2": 6,
}
"""Types of which several elements share bytes."""
_MOST_DIMS = 32
"""What numpy 1 can hold; no model known to us has more than 8."""
_LARGEST_DIM = 1 << 48
"""Elements that no machine can address."""


def check(model: onnx.ModelProto, path: Path) -> None:
    """Refuse a file whose text or whose weights can't be read.

    It costs 0.1 s for 10,000 nodes and 360 MB of weights, a seventh of what parsing them takes.
    """
    check_text(model, path)
    for port in (*model.graph.input, *model.graph.output):
        if port.type.HasField("tensor_type") and not _known(port.type.tensor_type.elem_type):
            raise _unknown_type(f"`{shorten(port.name)}`", port.type.tensor_type.elem_type, path)
    _check_nodes(model, path)
    folder = _Folder(path)
    for tensor in tensors(model):
        _check_tensor(tensor, folder)
    _check_splits(model.graph, path)


def _check_splits(graph: onnx.GraphProto, path: Path) -> None:
    """Refuse parts of no length: ONNX Runtime divides by them while it opens the file, and the process ends."""
    splits = {node.input[1] for node in graph.node if _is_sequence_split(node)}
    for tensor in graph.initializer:
        if tensor.name not in splits or tensor.data_location == TensorProto.EXTERNAL:
            continue
        lengths = numpy_helper.to_array(tensor)
        if lengths.ndim == 0 and lengths <= 0:
            raise ModelError(
                "bad-split",
                f"a SplitToSequence makes parts of the length {int(lengths)} (`{shorten(tensor.name)}`)",
                where=str(path),
                help=EXPORT_AGAIN,
            )


def _is_sequence_split(node: onnx.NodeProto) -> bool:
    return node.op_type == "SplitToSequence" and len(node.input) > 1


def is_file(path: Path) -> bool:
    """Whether there is a regular file; a path that no system can hold (too long, a NUL in it) is none."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def constant(node: onnx.NodeProto) -> TensorProto | None:
    """The tensor of a Constant node, if it holds one."""
    if (
        node.op_type != "Constant"
        or len(node.attribute) != 1
        or not _holds_tensor(node.attribute[0])
    ):
        return None
    tensor: TensorProto = node.attribute[0].t
    return tensor


def _holds_tensor(attribute: AttributeProto) -> bool:
    """True for a tensor of its own; in a function it may refer to an attribute of the caller."""
    return attribute.type == AttributeProto.TENSOR and not attribute.ref_attr_name


def tensors(model: onnx.ModelProto) -> Iterator[TensorProto]:
    """Every tensor: initializers, sparse ones, and those in attributes, subgraphs and functions included."""
    yield from _of_graph(model.graph)
    for function in model.functions:
        yield from _of_nodes(function.node)


def _of_graph(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    """The tensors of a graph."""
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    yield from _of_nodes(graph.node)


def _of_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[TensorProto]:
    """The tensors in the attributes of nodes."""
    for node in nodes:
        for attribute in node.attribute:
            yield from _of_attribute(attribute)


def _of_attribute(attribute: AttributeProto) -> Iterator[TensorProto]:
    """The tensors in one attribute, subgraphs included."""
    if _holds_tensor(attribute):
        yield attribute.t
    yield from attribute.tensors
    sparse = [*attribute.sparse_tensors]
    if attribute.HasField("sparse_tensor"):
        sparse.append(attribute.sparse_tensor)
    for entry in sparse:
        yield from (entry.values, entry.indices)
    if attribute.HasField("g"):
        yield from _of_graph(attribute.g)
    for graph in attribute.graphs:
        yield from _of_graph(graph)


def _check_nodes(model: onnx.ModelProto, path: Path) -> None:
    """Refuse a node without output: values are found by the nodes that compute them, and nodes without a name are called by their outputs.

    Refuse an attribute of the graph that refers to one of a function, too: outside of functions it has no value, and each runtime takes another.
    """
    _check_references(model.graph, path)
    waiting = [model.graph.node, *(function.node for function in model.functions)]
    while waiting:
        for node in waiting.pop():
            if not node.output:
                raise ModelError(
                    "node-without-output",
                    f"the node `{shorten(node.name)}` ({shorten(node.op_type)}) has no output",
                    where=str(path),
                    help=f"the file is damaged: {EXPORT_AGAIN}",
                )
            waiting += [graph.node for graph in subgraphs(node)]


def _check_references(graph: onnx.GraphProto, path: Path) -> None:
    for node in walk(graph.node):
        for attribute in node.attribute:
            if attribute.ref_attr_name:
                raise ModelError(
                    "attribute-reference",
                    f"`{shorten(attribute.name)}` of the node `{shorten(node.name)}` ({shorten(node.op_type)}) refers to"
                    f" `{shorten(attribute.ref_attr_name)}`, an attribute of a function, and the node is in none",
                    where=str(path),
                    help=f"the file is damaged: {EXPORT_AGAIN}",
                )


def _check_tensor(tensor: TensorProto, folder: "_Folder") -> None:
    """Refuse a tensor whose data is not what its dims and type need."""
    elements = _elements(tensor, folder.path)
    if tensor.HasField("segment"):
        raise _bad(
            tensor, folder.path, "is said to be a segment of a larger one, which nobody reads"
        )
    if tensor.data_location == TensorProto.EXTERNAL:
        folder.check(tensor, byte_size(tensor.data_type, elements))
        return
    if tensor.data_type == TensorProto.STRING:
        _check_strings(tensor, elements, folder.path)
        return
    if tensor.HasField("raw_data"):
        wanted = byte_size(tensor.data_type, elements)
        present = len(tensor.raw_data)
        unit = "bytes"
    else:
        wanted = _entries(tensor, elements)
        present = len(getattr(tensor, onnx.helper.tensor_dtype_to_field(tensor.data_type)))
        unit = "numbers"
    if present != wanted:
        raise _bad(
            tensor, folder.path, f"holds {present:,} {unit}, and its dims and type need {wanted:,}"
        )


def _elements(tensor: TensorProto, path: Path) -> int:
    """The number of elements; refuses types and dims that can not be."""
    if not _known(tensor.data_type) or tensor.data_type == TensorProto.UNDEFINED:
        raise _unknown_type(_named(tensor), tensor.data_type, path)
    if len(tensor.dims) > _MOST_DIMS or any(not 0 <= dim < _LARGEST_DIM for dim in tensor.dims):
        raise _bad(tensor, path, "has dims that no tensor can have")
    return math.prod(tensor.dims)


def _known(data_type: int) -> bool:
    """Whether onnx knows an element type."""
    return data_type in TensorProto.DataType.values()


def _unknown_type(
    what: str,
    data_type: int,
    path: Path,
) -> ModelError:
    """The error for an element type that onnx does not know."""
    return ModelError(
        "unknown-type",
        f"{what} has the element type {data_type}, which onnx {onnx.__version__} doesn't know",
        where=str(path),
        help="install a newer onnx, or export again",
    )


def byte_size(data_type: int, elements: int) -> int:
    """How many bytes so many elements of a type take."""
    packed = _PACKED_BITS.get(TensorProto.DataType.Name(data_type))
    if packed is not None:
        return (elements * packed + 7) // 8
    return elements * int(onnx.helper.tensor_dtype_to_np_dtype(data_type).itemsize)


def _entries(tensor: TensorProto, elements: int) -> int:
    """How many numbers the typed field holds: elements that fill a byte share one, complex ones need two each."""
    name = TensorProto.DataType.Name(tensor.data_type)
    if _PACKED_BITS.get(name) in (2, 4):
        return byte_size(tensor.data_type, elements)
    if name.startswith("COMPLEX"):
        return 2 * elements
    return elements


def _check_strings(
    tensor: TensorProto,
    elements: int,
    path: Path,
) -> None:
    """Refuse a tensor of strings that are too few, or not UTF-8."""
    if len(tensor.string_data) != elements:
        raise _bad(
            tensor,
            path,
            f"holds {len(tensor.string_data):,} strings, and its dims need {elements:,}",
        )
    for text in tensor.string_data:
        try:
            text.decode("utf-8")
        except UnicodeDecodeError as why:
            raise not_utf8(f"a string of {_named(tensor)}", text, path) from why


class _Folder:
    """The folder of the model, and the sizes of the files in it that hold weights."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._sizes: dict[str, int] = {}

    def check(self, tensor: TensorProto, wanted: int) -> None:
        """Refuse external data that can't be read, or that is not as much as the dims and the type need."""
        entries = {entry.key: entry.value for entry in tensor.external_data}
        if not entries.get("location"):
            raise self._bad_entry(tensor, "names no file for its data")
        size = self._size(entries["location"])
        offset = self._number(tensor, entries, "offset") or 0
        length = self._number(tensor, entries, "length")
        if length is not None and length != wanted:
            raise _bad(
                tensor,
                self.path,
                f"has {length:,} bytes of external data, and its dims and type need {wanted:,}",
            )
        if offset + wanted > size:
            raise ModelError(
                "external-data-too-short",
                f"`{shorten(entries['location'])}` is too short for the weights of this model",
                where=str(self.path),
                notes=[
                    f"it has {size:,} bytes; {_named(tensor)} is said to end at {offset + wanted:,}"
                ],
                help="fetch the whole file, or export again: the two files don't belong together",
            )

    def _number(
        self,
        tensor: TensorProto,
        entries: dict[str, str],
        key: str,
    ) -> int | None:
        """An entry that is a number of bytes; None where it is missing."""
        if key not in entries:
            return None
        if not entries[key].isdecimal() or len(entries[key]) > 19:
            raise self._bad_entry(
                tensor, f"has the {key} `{shorten(entries[key])}`, which is no number of bytes"
            )
        return int(entries[key])

    def _size(self, location: str) -> int:
        """The size of a file in bytes, looked up once."""
        if location not in self._sizes:
            self._sizes[location] = self._inside(location).stat().st_size
        return self._sizes[location]

    def _inside(self, location: str) -> Path:
        """The file; links are followed, since download caches are full of them."""
        relative = Path(location)
        if relative.is_absolute() or ".." in relative.parts:
            raise ModelError(
                "external-data-outside",
                f"this model wants to read its weights from `{shorten(location)}`, outside of its folder",
                where=str(self.path),
                help="keep the .data file beside the .onnx file, and name it without a folder",
            )
        file = self.path.parent / relative
        if not is_file(file):
            raise ModelError(
                "external-data-missing",
                f"the weights of this model are kept in `{shorten(location)}`, which isn't there",
                where=str(self.path),
                notes=[f"it was looked for in {self.path.parent}"],
                help="copy the .data file beside the .onnx file, under its old name",
            )
        return file

    def _bad_entry(self, tensor: TensorProto, what: str) -> ModelError:
        """The error for an entry of external data."""
        return ModelError(
            "bad-external-data",
            f"{_named(tensor)} {what}",
            where=str(self.path),
            help="export it again",
        )


def _bad(
    tensor: TensorProto,
    path: Path,
    what: str,
) -> ModelError:
    """The error for a weight."""
    return ModelError(
        "bad-weight",
        f"{_named(tensor)} {what}",
        where=str(path),
        notes=[f"its type is {_type_name(tensor)}, its dims are {shorten(str(list(tensor.dims)))}"],
        help=f"the file is damaged: {EXPORT_AGAIN}",
    )


def _type_name(tensor: TensorProto) -> str:
    """The element type in words."""
    return str(TensorProto.DataType.Name(tensor.data_type)).lower()


def _named(tensor: TensorProto) -> str:
    """A tensor in words."""
    if not tensor.name:
        return "a constant"
    return f"the weight `{shorten(tensor.name)}`"
