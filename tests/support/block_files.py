"""Files with one product of 4 bits, made here number by number."""

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[Any, Any]


def block_model(
    rows: int,
    columns: int,
    *,
    block: int = 16,
    zeros: bool = False,
    seed: int = 0,
    name: str = "product",
    groups: Array | None = None,
) -> tuple[onnx.ModelProto, Array]:
    """The model, and the float weight that was rounded to the nearest step."""
    plain = np.random.default_rng(seed).normal(size=(rows, columns)).astype(np.float32)
    plain *= np.geomspace(0.3, 3.0, columns, dtype=np.float32)  # blocks of different sizes
    if groups is not None:
        plain = plain[:, np.random.default_rng(seed + 1).permutation(columns)]
    return helper.make_model(
        _graph(plain, block, zeros, name, groups),
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)],
        ir_version=10,
    ), plain


def _graph(
    plain: Array, block: int, zeros: bool, name: str, groups: Array | None
) -> onnx.GraphProto:
    rows, columns = plain.shape
    blocks = -(-columns // block)
    of_column = np.arange(columns) // block if groups is None else groups
    scales = np.empty((rows, blocks), np.float32)
    offsets = np.full((rows, blocks), 8)
    for place in range(blocks):
        part = plain[:, of_column == place]
        low, high = np.minimum(part.min(1), 0), np.maximum(part.max(1), 0)
        scales[:, place] = np.abs(part).max(1) / 7
        if zeros:
            scales[:, place] = (high - low) / 15
            offsets[:, place] = np.rint(-low / scales[:, place])
    integers = np.rint(plain / scales[:, of_column]) + offsets[:, of_column]
    padded = np.zeros((rows, blocks * block), np.uint8)
    padded[:, :columns] = np.clip(integers, 0, 15)
    packed = (padded[:, 0::2] | padded[:, 1::2] << 4).reshape(rows, blocks, -1)
    constants = {"packed": packed, "scales": scales.reshape(-1)}
    inputs = ["x", f"{name}_packed", f"{name}_scales"]
    if zeros or groups is not None:
        inputs.append("")
    if zeros:
        even = np.pad(offsets, [(0, 0), (0, blocks % 2)]).astype(np.uint8)
        constants["zeros"] = (even[:, 0::2] | even[:, 1::2] << 4).reshape(-1)
        inputs[3] = f"{name}_zeros"
    if groups is not None:
        constants["groups"] = groups.astype(np.int32)
        inputs.append(f"{name}_groups")
    node = helper.make_node(
        "MatMulNBits",
        inputs,
        [f"{name}_y"],
        name=name,
        domain="com.microsoft",
        K=columns,
        N=rows,
        bits=4,
        block_size=block,
    )
    info = helper.make_tensor_value_info
    return helper.make_graph(
        [node],
        "product",
        [info("x", TensorProto.FLOAT, ["batch", columns])],
        [info(f"{name}_y", TensorProto.FLOAT, ["batch", rows])],
        [numpy_helper.from_array(array, f"{name}_{word}") for word, array in constants.items()],
    )
