"""The graph of a file in few bits with float matrices in the place of its blocks, so that numbers can be exchanged matrix by matrix."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from onnxproof.quantization.blockwise.form import Blocks
from onnxproof.quantization.blockwise.matrices import Matrix
from onnxproof.quantization.float_graph import copy_model
from onnxproof.quantization.qdq_edit import add_initializer, free_name
from onnxproof.verification.block_weights import BlockWeight, Origin

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, kw_only=True)
class StoredMatrix:
    """A matrix of the reference as the file stores it; tied embeddings have two nodes."""

    weights: tuple[BlockWeight, ...]
    plain: Array
    """The reference's own numbers, rows by columns."""

    @property
    def weight(self) -> BlockWeight:
        """The first of its nodes: all have the same numbers."""
        return self.weights[0]

    @property
    def name(self) -> str:
        """Of its first node."""
        return self.weight.name


def multiplied_matrices(twin: onnx.ModelProto, matrices: Sequence[StoredMatrix]) -> list[Matrix]:
    """Each matrix of a float twin with the values that are multiplied with it: none for a table."""
    products = {node.input[1]: node for node in twin.graph.node if node.op_type == "MatMul"}
    found = []
    for each in matrices:
        nodes = [products[_name(w)] for w in each.weights if _name(w) in products]
        rows, columns = each.weight.shape
        inputs = [node.input[0] for node in nodes]
        found.append(Matrix(name=each.name, rows=rows, columns=columns, inputs=inputs))
    return found


def stored_matrices(
    weights: Sequence[BlockWeight], origins: Mapping[str, Sequence[Origin]]
) -> list[StoredMatrix]:
    """Every matrix whose own numbers are known, in graph order."""
    groups: dict[tuple[str, ...], list[BlockWeight]] = {}
    for weight in weights:
        if weight.name in origins:
            names = tuple(origin.name for origin in origins[weight.name])
            groups.setdefault((*names, str(weight.shape)), []).append(weight)
    found = []
    for group in groups.values():
        first = group[0]
        same = [each for each in group if np.array_equal(each.floats, first.floats)]
        others = [[each] for each in group if all(each is not one for one in same)]
        plain = np.concatenate([origin.floats for origin in origins[first.name]])
        if plain.shape != first.shape:
            continue
        for members in ([*same], *others):
            found.append(StoredMatrix(weights=tuple(members), plain=plain.astype(np.float32)))
    return found


def float_twin(
    model: onnx.ModelProto, matrices: Sequence[StoredMatrix], *, own: bool
) -> onnx.ModelProto:
    """The graph with float matrices: the reference's own numbers, or (`own` is false) those that the file has."""
    twin = copy_model(model)
    changed = {w.node.output[0]: (w, each) for each in matrices for w in each.weights}
    nodes: list[onnx.NodeProto] = []
    for node in list(twin.graph.node):
        if node.output[0] not in changed:
            nodes.append(node)
            continue
        weight, matrix = changed[node.output[0]]
        numbers = matrix.plain if own else weight.floats
        add_initializer(twin, _stored(weight, numbers), _name(weight))
        nodes += _float_nodes(node, weight)
    del twin.graph.node[:]
    twin.graph.node.extend(nodes)
    _drop_unread(twin)
    del twin.graph.value_info[:]
    return twin


def with_numbers(twin: onnx.ModelProto, numbers: Mapping[BlockWeight, Array]) -> onnx.ModelProto:
    """A float twin with other numbers in some matrices."""
    arrays = {_name(weight): _stored(weight, array) for weight, array in numbers.items()}
    changed = copy_model(twin)
    for tensor in changed.graph.initializer:
        if tensor.name in arrays:
            tensor.CopyFrom(numpy_helper.from_array(arrays[tensor.name], tensor.name))
    return changed


def _name(weight: BlockWeight) -> str:
    if weight.node.op_type == "DequantizeLinear":
        return str(weight.node.output[0])
    return f"{weight.node.output[0]}_float_matrix"


def _stored(weight: BlockWeight, numbers: Array) -> Array:
    """As the float node reads it: products have the columns first."""
    columns_first = weight.node.op_type == "MatMulNBits" or weight.storage.turned
    layout = numbers.T if columns_first else numbers
    return np.ascontiguousarray(layout.astype(weight.storage.scales_dtype))


def _float_nodes(node: onnx.NodeProto, weight: BlockWeight) -> list[onnx.NodeProto]:
    name = _name(weight)
    if node.op_type == "DequantizeLinear":
        return []
    if node.op_type == "GatherBlockQuantized":
        return [helper.make_node("Gather", [name, node.input[1]], node.output, name=node.name)]
    bias = node.input[5] if len(node.input) > 5 else ""
    if not bias:
        return [helper.make_node("MatMul", [node.input[0], name], node.output, name=node.name)]
    product = f"{node.output[0]}_without_bias"
    return [
        helper.make_node("MatMul", [node.input[0], name], [product], name=node.name),
        helper.make_node("Add", [product, bias], node.output, name=f"{node.name}_bias"),
    ]


def _drop_unread(model: onnx.ModelProto) -> None:
    """Blocks that nothing reads any more, with the nodes that unpacked them."""
    outputs = {value.name for value in model.graph.output}
    while True:
        read = {name for node in model.graph.node for name in node.input} | outputs
        idle = [n for n in model.graph.node if n.op_type in _UNPACKING and n.output[0] not in read]
        if not idle:
            break
        for node in idle:
            model.graph.node.remove(node)
    kept = [tensor for tensor in model.graph.initializer if tensor.name in read]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)


_UNPACKING = ("Cast", "Reshape", "Identity", "Constant")


def store_blocks(
    model: onnx.ModelProto, chosen: Mapping[BlockWeight, Blocks]
) -> onnx.ModelProto | None:
    """The file with other blocks in some of its nodes; None where one of them is a DequantizeLinear, whose type would change."""
    changed = copy_model(model)
    nodes = {node.output[0]: node for node in changed.graph.node}
    for weight, blocks in chosen.items():
        if weight.node.op_type == "DequantizeLinear":
            return None
        node = nodes[weight.node.output[0]]
        rows = len(blocks.scales)
        shape = (rows, -1)
        if node.op_type == "MatMulNBits":
            shape = (rows, blocks.scales.shape[1], -1)  # type: ignore[assignment]
        arrays = {
            weight.storage.data: blocks.packed().reshape(shape),
            weight.storage.scales: blocks.scales.astype(weight.storage.scales_dtype),
        }
        if blocks.form.zero_points:
            arrays[weight.storage.zeros] = blocks.packed_zeros()
        _write(changed, node, weight, arrays)
        kept = [a for a in node.attribute if a.name not in ("bits", "block_size")]
        del node.attribute[:]
        node.attribute.extend(kept)
        node.attribute.append(helper.make_attribute("bits", blocks.form.bits))
        node.attribute.append(helper.make_attribute("block_size", blocks.form.block))
    _drop_unread(changed)
    del changed.graph.value_info[:]
    return changed


def _write(
    model: onnx.ModelProto, node: onnx.NodeProto, weight: BlockWeight, arrays: Mapping[int, Array]
) -> None:
    """The arrays under names of their own; zero points and groups that are not among them are left out."""
    optional = [weight.storage.zeros, weight.storage.groups]
    for place in optional:
        if place is not None and place < len(node.input):
            node.input[place] = ""
    for place, array in arrays.items():
        while len(node.input) <= place:
            node.input.append("")
        name = free_name(model, f"{node.output[0]}_blocks_{place}")
        add_initializer(model, np.ascontiguousarray(array), name)
        node.input[place] = name
    while not node.input[-1]:
        del node.input[-1]
