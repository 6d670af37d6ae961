"""A graph whose matrices are stored in few bits: MatMulNBits for products, GatherBlockQuantized for lookups.

Scales are stored in half precision and cast when the session opens: a runtime folds the cast, and the file holds half the bytes.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from onnxproof.quantization.blockwise.form import Blocks, Form
from onnxproof.quantization.blockwise.matrices import Matrix

Array = np.ndarray[Any, Any]
_DOMAIN = "com.microsoft"
_LENGTHS = 8
"""Bytes by which the sizes of a matrix's tensors may be written longer in another form: one for each of them, and for what holds them."""


def assemble(
    model: onnx.ModelProto,
    matrices: Sequence[Matrix],
    rounded: Mapping[str, Blocks],
    accuracy_level: int = 0,
) -> onnx.ModelProto:
    """The graph with the matrices of `rounded` in their blocks; all others stay as they are."""
    stored = [matrix for matrix in matrices if matrix.name in rounded]
    chosen = {node: matrix for matrix in stored for node in matrix.nodes}
    changed = _without_tensors(
        model, {name for matrix in stored for name in (matrix.factor, matrix.table)}
    )
    nodes: list[onnx.NodeProto] = []
    for matrix in stored:
        nodes += _store(changed, matrix, rounded[matrix.name])
    for node in model.graph.node:
        if node.name not in chosen:
            nodes.append(node)
            continue
        matrix = chosen[node.name]
        make = _product if node.op_type == "MatMul" else _lookup
        nodes.append(make(node, matrix, rounded[matrix.name], accuracy_level))
    del changed.graph.node[:]
    changed.graph.node.extend(nodes)
    _import_domain(changed)
    return changed


def other_bytes(model: onnx.ModelProto, matrices: Sequence[Matrix]) -> int:
    """The most that a file holds beside the matrices themselves: all other tensors, and the nodes and names that matrices in blocks need.

    Asked of a file without values, in the form that needs most: blocks of 16 with zero points.
    """
    form = Form(bits=4, block=16, zero_points=True)
    blocks = {matrix.name: _zero_blocks(matrix, form) for matrix in matrices}
    stored = sum(form.size(matrix.rows, matrix.columns) for matrix in matrices)
    size = int(assemble(model, matrices, blocks).ByteSize())
    return size - stored + _LENGTHS * len(matrices)


def _zero_blocks(matrix: Matrix, form: Form) -> Blocks:
    blocks = (matrix.rows, -(-matrix.columns // form.block))
    return Blocks(
        form=form,
        integers=np.zeros((matrix.rows, matrix.columns), np.uint8),
        scales=np.zeros(blocks, np.float16),
        zeros=np.zeros(blocks, np.uint8),
    )


def _import_domain(model: onnx.ModelProto) -> None:
    if _DOMAIN not in {entry.domain for entry in model.opset_import}:
        model.opset_import.append(onnx.helper.make_opsetid(_DOMAIN, 1))


def _without_tensors(model: onnx.ModelProto, names: set[str]) -> onnx.ModelProto:
    """A copy without some of the initializers."""
    other = onnx.ModelProto()
    other.CopyFrom(model)
    for kind in (other.graph.initializer, other.graph.input):
        for place in reversed(range(len(kind))):
            if kind[place].name in names:
                del kind[place]
    return other


def _store(model: onnx.ModelProto, matrix: Matrix, blocks: Blocks) -> Iterator[onnx.NodeProto]:
    """Add the packed matrix, and yield the nodes that unpack what is stored shorter."""
    name = matrix.name
    shape: tuple[int, ...] = (matrix.rows, -1)
    if matrix.products:
        shape = (matrix.rows, blocks.scales.shape[1], -1)
    _add(model, f"{name}_blocks", blocks.packed().reshape(shape))
    _add(model, f"{name}_scales_half", blocks.scales)
    yield onnx.helper.make_node(
        "Cast",
        [f"{name}_scales_half"],
        [f"{name}_scales"],
        name=f"{name}_scales_cast",
        to=onnx.TensorProto.FLOAT,
    )
    if blocks.form.zero_points:
        _add(model, f"{name}_zeros", blocks.packed_zeros())
    if matrix.products and matrix.lookups:
        _add(model, f"{name}_rows_shape", np.array([matrix.rows, -1]))
        yield onnx.helper.make_node(
            "Reshape",
            [f"{name}_blocks", f"{name}_rows_shape"],
            [f"{name}_rows"],
            name=f"{name}_rows_reshape",
        )


def _add(model: onnx.ModelProto, name: str, array: Array) -> None:
    model.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(array), name))


def _product(
    node: onnx.NodeProto, matrix: Matrix, blocks: Blocks, accuracy_level: int
) -> onnx.NodeProto:
    name, form = matrix.name, blocks.form
    inputs = [node.input[0], f"{name}_blocks", f"{name}_scales"]
    if form.zero_points:
        inputs.append(f"{name}_zeros")
    return onnx.helper.make_node(
        "MatMulNBits",
        inputs,
        list(node.output),
        name=node.name,
        domain=_DOMAIN,
        K=matrix.columns,
        N=matrix.rows,
        bits=form.bits,
        block_size=form.block,
        accuracy_level=accuracy_level,
    )


def _lookup(
    node: onnx.NodeProto, matrix: Matrix, blocks: Blocks, accuracy_level: int
) -> onnx.NodeProto:
    name, form = matrix.name, blocks.form
    table = f"{name}_rows" if matrix.products else f"{name}_blocks"
    inputs = [table, node.input[1], f"{name}_scales"]
    if form.zero_points:
        inputs.append(f"{name}_zeros")
    return onnx.helper.make_node(
        "GatherBlockQuantized",
        inputs,
        list(node.output),
        name=node.name,
        domain=_DOMAIN,
        bits=form.bits,
        block_size=form.block,
        gather_axis=0,
        quantize_axis=1,
    )
