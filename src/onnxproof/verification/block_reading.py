"""Weights of a few bits in blocks, read from a file of any tool and written back in its own form.

Three operators keep them: MatMulNBits (products), GatherBlockQuantized (tables) and DequantizeLinear with a `block_size`, which stands before a plain product. Integers are
packed into bytes, or of a type of their own; scales may be stored in half precision behind a Cast.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import helper, numpy_helper

from onnxproof.runtimes.evaluator.contrib.blocks import unpack
from onnxproof.verification.block_weights import BlockWeight, Packing, Storage

Array = np.ndarray[Any, Any]
OPERATORS = ("MatMulNBits", "GatherBlockQuantized")
"""Those that always keep blocks; a DequantizeLinear does where it has a `block_size`."""
_BITS = {"int2": 2, "uint2": 2, "int4": 4, "uint4": 4, "int8": 8, "uint8": 8}
"""Types of integers, as ml_dtypes and numpy call them."""
_MOST_STEPS = 4
"""Casts, reshapes and the like that are followed from a constant on."""


class Constants:
    """Values of a graph that nothing but constants decides: initializers, Constant nodes, and what Cast, Reshape and Identity make of them."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._tensors = {tensor.name: tensor for tensor in graph.initializer}
        self._producers = {name: node for node in graph.node for name in node.output}

    def get(self, name: str, steps: int = _MOST_STEPS) -> Array | None:
        """The array; None where it is computed, or absent."""
        if name in self._tensors:
            return numpy_helper.to_array(self._tensors[name])
        node = self._producers.get(name)
        if node is None or steps == 0:
            return None
        if node.op_type == "Constant":
            tensors = [a.t for a in node.attribute if a.type == onnx.AttributeProto.TENSOR]
            return numpy_helper.to_array(tensors[0]) if tensors else None
        make = _FOLDED.get(node.op_type)
        if make is None:
            return None
        arrays = [self.get(each, steps - 1) for each in node.input]
        if any(array is None for array in arrays):
            return None
        return make(node, arrays)

    def size(self, name: str) -> int:
        """Bytes of the initializer that a value is made from; 0 where there is none."""
        while name in self._producers and self._producers[name].input:
            name = self._producers[name].input[0]
        if name not in self._tensors:
            return 0
        tensor = self._tensors[name]
        return len(tensor.raw_data) or int(tensor.ByteSize())


def _cast(node: onnx.NodeProto, arrays: Sequence[Any]) -> Array:
    return np.asarray(arrays[0].astype(helper.tensor_dtype_to_np_dtype(_options(node)["to"])))


_FOLDED: Mapping[str, Callable[[onnx.NodeProto, Sequence[Any]], Array]] = {
    "Identity": lambda node, arrays: np.asarray(arrays[0]),
    "Cast": _cast,
    "Reshape": lambda node, arrays: np.asarray(arrays[0].reshape(arrays[1])),
}


def _options(node: onnx.NodeProto) -> dict[str, Any]:
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def keeps_blocks(graph: onnx.GraphProto) -> bool:
    """Whether a node of the graph keeps weights in blocks."""
    return any(_is_blocked(node) for node in graph.node)


def _is_blocked(node: onnx.NodeProto) -> bool:
    if node.op_type == "DequantizeLinear":
        return bool(_options(node).get("block_size", 0))
    return node.op_type in OPERATORS


def find(model: onnx.ModelProto) -> list[BlockWeight]:
    """Every weight in blocks that is a constant matrix, in graph order."""
    constants = Constants(model.graph)
    readers = {"MatMulNBits": _product, "GatherBlockQuantized": _table}
    found = []
    for node in model.graph.node:
        if not _is_blocked(node):
            continue
        weight = readers.get(node.op_type, _dequantized)(node, constants)
        if weight is not None:
            found.append(_with_size(weight, constants))
    return found


def _with_size(weight: BlockWeight, constants: Constants) -> BlockWeight:
    storage = weight.storage
    places = (storage.data, storage.scales, storage.zeros, storage.groups or storage.zeros)
    names = {weight.node.input[place] for place in places if place < len(weight.node.input)}
    size = sum(constants.size(name) for name in names)
    return replace(weight, storage=replace(storage, size=size))


def _inputs(
    node: onnx.NodeProto, places: Sequence[int], constants: Constants
) -> list[Array | None]:
    """Those inputs; None for one that is absent, and for all of them where one is computed."""
    present = [place < len(node.input) and bool(node.input[place]) for place in places]
    arrays = [
        constants.get(node.input[place]) if there else None
        for place, there in zip(places, present, strict=True)
    ]
    if any(there and array is None for there, array in zip(present, arrays, strict=True)):
        return [None] * len(places)
    return arrays


def _product(node: onnx.NodeProto, constants: Constants) -> BlockWeight | None:
    packed, scales, zeros, groups = _inputs(node, (1, 2, 3, 4), constants)
    if packed is None or scales is None:
        return None
    float_zeros = zeros is not None and zeros.dtype != np.uint8
    options = _options(node)
    packing = Packing(
        bits=options.get("bits", 4), block=options.get("block_size", 128), columns=options["K"]
    )
    rows = options["N"]
    if zeros is not None:
        zeros = _zero_points(zeros.reshape(rows, -1), packing, packed=not float_zeros)
    if groups is not None:
        groups = groups.reshape(-1)[: packing.columns]
    return BlockWeight(
        node=node,
        packing=packing,
        packed=packed,
        scales=scales.reshape(rows, -1).astype(np.float64),
        zeros=zeros,
        groups=groups,
        storage=Storage(
            groups=4,
            float_zeros=float_zeros,
            scales_shape=scales.shape,
            scales_dtype=str(scales.dtype),
        ),
    )


def _zero_points(zeros: Array, packing: Packing, *, packed: bool) -> Array:
    numbers = unpack(zeros, packing.bits) if packed else zeros
    return np.asarray(numbers[:, : packing.blocks].astype(np.float64))


def _table(node: onnx.NodeProto, constants: Constants) -> BlockWeight | None:
    """Rows that are looked up, with blocks along each row; other axes are left out."""
    data, scales, zeros = _inputs(node, (0, 2, 3), constants)
    options = _options(node)
    if data is None or scales is None or data.ndim != 2:
        return None
    if options.get("gather_axis", 0) != 0 or options.get("quantize_axis", 1) % 2 != 1:
        return None
    block = options.get("block_size", 128)
    if data.dtype != np.uint8:
        return _typed(node, (data, scales, zeros), block, Storage(data=0, typed=True))
    bits = options.get("bits", 4)
    packing = Packing(bits=bits, block=block, columns=data.shape[1] * 8 // bits)
    if zeros is not None:
        zeros = _zero_points(zeros, packing, packed=True)
    return BlockWeight(
        node=node,
        packing=packing,
        packed=data,
        scales=scales.astype(np.float64),
        zeros=zeros,
        storage=Storage(data=0, scales_shape=scales.shape, scales_dtype=str(scales.dtype)),
    )


def _dequantized(node: onnx.NodeProto, constants: Constants) -> BlockWeight | None:
    data, scales, zeros = _inputs(node, (0, 1, 2), constants)
    if data is None or scales is None or data.ndim != 2 or scales.ndim != 2:
        return None
    options = _options(node)
    axis = options.get("axis", 1) % 2
    storage = Storage(data=0, scales=1, zeros=2, typed=True, turned=axis == 0)
    if axis == 0:
        data, scales = data.T, scales.T
        zeros = None if zeros is None else zeros.T
    return _typed(node, (data, scales, zeros), options["block_size"], storage)


def _typed(
    node: onnx.NodeProto, arrays: tuple[Array, Array, Array | None], block: int, storage: Storage
) -> BlockWeight | None:
    """Integers of a type of their own, as if they began at zero."""
    data, scales, zeros = arrays
    name = str(data.dtype)
    if name not in _BITS:
        return None
    bits = _BITS[name]
    middle = 2 ** (bits - 1)
    signed = name.startswith("int")
    if zeros is not None:
        zeros = zeros.astype(np.float64) + (middle if signed else 0)
    elif not signed:
        zeros = np.zeros(scales.shape)
    integers = (data.astype(np.int64) + (middle if signed else 0)).astype(np.uint8)
    return BlockWeight(
        node=node,
        packing=Packing(bits=bits, block=block, columns=data.shape[1]),
        packed=pack_rows(integers, bits),
        scales=scales.astype(np.float64),
        zeros=zeros,
        storage=replace(
            storage,
            signed=signed,
            scales_shape=scales.T.shape if storage.turned else scales.shape,
            scales_dtype=str(scales.dtype),
        ),
    )


def pack_rows(integers: Array, bits: int) -> Array:
    """Rows of integers as bytes, those of the low bits first; a last byte is filled up with zeros."""
    digits = np.unpackbits(integers[..., None], axis=-1, bitorder="little")[..., :bits]
    return np.packbits(digits.reshape(len(integers), -1), axis=-1, bitorder="little")


def stored_arrays(weight: BlockWeight) -> dict[int, Array]:
    """The inputs of its node that stand for the weight, by place."""
    storage, bits = weight.storage, weight.packing.bits
    scales = weight.scales.astype(storage.scales_dtype)
    if storage.turned:
        scales = scales.T
    arrays = {
        storage.data: weight.packed,
        storage.scales: scales.reshape(storage.scales_shape or scales.shape),
    }
    if storage.typed:
        arrays[storage.data] = _as_type(weight.integers, weight)
    if weight.zeros is not None:
        arrays[storage.zeros] = _stored_zeros(weight, bits)
    if weight.groups is not None and storage.groups is not None:
        arrays[storage.groups] = weight.groups.astype(np.int32)
    return {place: np.ascontiguousarray(array) for place, array in arrays.items()}


def _stored_zeros(weight: BlockWeight, bits: int) -> Array:
    assert weight.zeros is not None
    if weight.storage.typed:
        return _as_type(weight.zeros, weight)
    if weight.storage.float_zeros:
        return weight.zeros.astype(weight.storage.scales_dtype)
    return pack_rows(weight.zeros.astype(np.uint8), bits)


def _as_type(numbers: Array, weight: BlockWeight) -> Array:
    """In the type and the layout of the node's own integers."""
    bits, storage = weight.packing.bits, weight.storage
    name = f"{'' if storage.signed else 'u'}int{bits}"
    shifted = numbers - (2 ** (bits - 1) if storage.signed else 0)
    dtype = np.dtype(name) if bits == 8 else np.dtype(getattr(ml_dtypes, name))
    made = shifted.astype(np.int64).astype(dtype)
    return np.asarray(made.T if storage.turned else made)
