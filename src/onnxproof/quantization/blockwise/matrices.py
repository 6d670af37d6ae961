"""The matrices of a graph that may be stored in few bits: constant factors of products, and tables that rows are looked up in."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from onnxproof.onnxmodel.expansion import subgraphs, walk
from onnxproof.quantization.float_graph import Index, attribute, copy_model

Array = np.ndarray[Any, Any]
_LEAST = 2048
"""Weights of a matrix below which nothing is saved by fewer bits (not measured)."""
_SHORTEST = 16
"""The shortest block of MatMulNBits: shorter rows stay float."""


@dataclass(slots=True, kw_only=True)
class Matrix:
    """One stored matrix, rows by columns: a row gives one output of a product, or is what a lookup returns."""

    name: str
    rows: int
    columns: int
    factor: str = ""
    """The initializer of products, which holds it transposed."""
    table: str = ""
    """The initializer of lookups."""
    products: list[str] = field(default_factory=list)
    """Nodes by name."""
    lookups: list[str] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    """The values that are multiplied with it."""

    @property
    def nodes(self) -> list[str]:
        """All nodes that read it."""
        return [*self.products, *self.lookups]

    def weights(self, index: Index) -> Array:
        """Its values, rows by columns."""
        if self.factor:
            return np.ascontiguousarray(index.array(self.factor).T)
        return index.array(self.table)


def find_matrices(model: onnx.ModelProto) -> list[Matrix]:
    """In the order of the graph; a table that products use as well (tied embeddings) is one matrix."""
    index = Index(model)
    inside = _read_inside(model)
    matrices: dict[str, Matrix] = {}
    for node in model.graph.node:
        name, is_product = _constant_matrix(index, node)
        if not name or name in inside:
            continue
        if name not in matrices:
            matrices[name] = _new_matrix(index, name, is_product=is_product)
        matrix = matrices[name]
        if is_product:
            matrix.products.append(node.name)
            matrix.inputs.append(node.input[0])
        else:
            matrix.lookups.append(node.name)
    return _join_tied(index, list(matrices.values()))


def _read_inside(model: onnx.ModelProto) -> set[str]:
    """Values that the bodies of If, Loop and Scan read: what they share with the outer graph stays as it is."""
    bodies = [graph for node in model.graph.node for graph in subgraphs(node)]
    return {name for graph in bodies for node in walk(graph.node) for name in node.input}


def _constant_matrix(index: Index, node: onnx.NodeProto) -> tuple[str, bool]:
    """The initializer that a product or a lookup reads, and whether it is a product; an empty name for any other node."""
    place = {"MatMul": 1, "Gather": 0}.get(node.op_type)
    if place is None or node.input[place] not in index.weights:
        return "", False
    if node.op_type == "Gather" and attribute(node, "axis", 0) != 0:
        return "", False
    name = node.input[place]
    tensor = index.weights[name]
    readers = {(reader.op_type, list(reader.input).index(name)) for reader in index.consumers[name]}
    fits = len(tensor.dims) == 2 and tensor.data_type == onnx.TensorProto.FLOAT
    columns = tensor.dims[0 if node.op_type == "MatMul" else 1] if fits else 0
    if columns < _SHORTEST or np.prod(tensor.dims) < _LEAST or len(readers) > 1:
        return "", False
    return name, node.op_type == "MatMul"


def _new_matrix(index: Index, name: str, *, is_product: bool) -> Matrix:
    first, second = index.weights[name].dims
    if is_product:
        return Matrix(name=name, rows=second, columns=first, factor=name)
    return Matrix(name=name, rows=first, columns=second, table=name)


def _join_tied(index: Index, matrices: list[Matrix]) -> list[Matrix]:
    """A table whose values are those of a factor is stored once."""
    joined = []
    tables = [matrix for matrix in matrices if matrix.table]
    for matrix in matrices:
        twin = next((table for table in tables if _same(index, table, matrix)), None)
        if twin is None:
            joined.append(matrix)
            continue
        twin.factor, twin.products, twin.inputs = matrix.factor, matrix.products, matrix.inputs
    return joined


def _same(index: Index, table: Matrix, product: Matrix) -> bool:
    if product.table or table.factor:
        return False
    if (table.rows, table.columns) != (product.rows, product.columns):
        return False
    return np.array_equal(index.array(table.table), index.array(product.factor).T)


def split_gemms(model: onnx.ModelProto) -> onnx.ModelProto:
    """Every plain Gemm as MatMul and Add: MatMulNBits knows no other product."""
    changed = copy_model(model)
    index = Index(changed)
    nodes: list[onnx.NodeProto] = []
    for node in changed.graph.node:
        weight = index.weight_of(node)
        if weight is None or not _is_plain_gemm(node) or len(index.consumers[weight]) != 1:
            nodes.append(node)
        else:
            nodes += _split_gemm(index, node, weight)
    del changed.graph.node[:]
    changed.graph.node.extend(nodes)
    return changed


def _is_plain_gemm(node: onnx.NodeProto) -> bool:
    return (
        node.op_type == "Gemm"
        and not attribute(node, "transA", 0)
        and attribute(node, "alpha", 1.0) == 1.0
        and attribute(node, "beta", 1.0) == 1.0
    )


def _split_gemm(index: Index, node: onnx.NodeProto, weight: str) -> list[onnx.NodeProto]:
    make_node = onnx.helper.make_node
    if attribute(node, "transB", 0):
        index.store(weight, np.ascontiguousarray(index.array(weight).T))
    if len(node.input) < 3:
        return [make_node("MatMul", [node.input[0], weight], [node.output[0]], name=node.name)]
    product = f"{node.output[0]}_product"
    return [
        make_node("MatMul", [node.input[0], weight], [product], name=node.name),
        make_node("Add", [product, node.input[2]], [node.output[0]], name=f"{node.name}_bias"),
    ]
