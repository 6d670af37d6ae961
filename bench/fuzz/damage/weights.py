"""Weights that don't fit their dims or their type, and values that no network holds."""

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from bench.fuzz.damage import NotApplicable, Target, kind

_FIELDS = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data")


@kind("raw-too-short")
def raw_too_short(target: Target) -> None:
    """Some bytes of a weight are missing, or all."""
    weight = target.weight()
    if not weight.raw_data:
        raise NotApplicable
    weight.raw_data = weight.raw_data[
        : target.random.choice([0, 1, len(weight.raw_data) // 2, len(weight.raw_data) - 1])
    ]


@kind("raw-too-long")
def raw_too_long(target: Target) -> None:
    """Some bytes too many."""
    weight = target.weight()
    weight.raw_data = weight.raw_data + bytes(target.random.choice([1, 4, 400]))


@kind("typed-field-too-short")
def typed_field_too_short(target: Target) -> None:
    """Values in the typed field, and too few or too many of them."""
    weight = target.weight()
    elements = int(np.prod(weight.dims))
    weight.ClearField("raw_data")
    weight.float_data.extend([0.5] * target.random.choice([0, max(elements - 1, 0), elements + 3]))
    weight.data_type = TensorProto.FLOAT


@kind("typed-field-and-raw")
def typed_field_and_raw(target: Target) -> None:
    """Two fields hold values at once."""
    weight = target.weight()
    getattr(weight, target.random.choice(_FIELDS)).extend([1] * int(np.prod(weight.dims)))


@kind("typed-field-wrong")
def typed_field_wrong(target: Target) -> None:
    """The values are in the field of another type."""
    weight = target.weight()
    elements = int(np.prod(weight.dims))
    weight.ClearField("raw_data")
    getattr(weight, target.random.choice(_FIELDS)).extend([1] * elements)


@kind("data-type-other")
def data_type_other(target: Target) -> None:
    """Another type than the bytes have, known or not."""
    target.weight().data_type = target.random.choice(
        [0, 1, 3, 6, 7, 8, 9, 10, 11, 14, 16, 17, 21, 22, 23, 26, 99, -1, 2**31 - 1]
    )


@kind("dims-negative")
def dims_negative(target: Target) -> None:
    """A dim of a weight is negative."""
    weight = target.weight()
    place = target.random.randrange(len(weight.dims)) if weight.dims else None
    if place is None:
        weight.dims.append(-1)
    else:
        weight.dims[place] = target.random.choice([-1, -5, -(2**62)])


@kind("dims-huge")
def dims_huge(target: Target) -> None:
    """More elements than any memory holds, without data for them."""
    weight = target.weight()
    del weight.dims[:]
    weight.dims.extend(
        target.random.choice(
            [[2**40], [2**31, 2**31], [2**62, 4], [2**63 - 1], [1 << 20, 1 << 20, 1 << 20, 16]]
        )
    )
    if target.random.random() < 0.5:
        weight.ClearField("raw_data")


@kind("dims-other")
def dims_other(target: Target) -> None:
    """Dims that hold as many elements in another order, or one fewer."""
    weight = target.weight()
    dims = list(weight.dims)
    del weight.dims[:]
    weight.dims.extend(
        target.random.choice(
            [dims[::-1], [*dims, 1], [int(np.prod(dims))], dims[1:], [0, *dims], [0]]
        )
    )


@kind("weight-not-finite")
def weight_not_finite(target: Target) -> None:
    """NaN or infinity among the weights."""
    weight = target.weight()
    if weight.data_type not in (TensorProto.FLOAT, TensorProto.FLOAT16) or not weight.raw_data:
        raise NotApplicable
    values = numpy_helper.to_array(weight).copy()
    values.reshape(-1)[target.random.randrange(values.size)] = target.random.choice(
        [np.nan, np.inf, -np.inf]
    )
    weight.CopyFrom(numpy_helper.from_array(values, weight.name))


@kind("weight-strings")
def weight_strings(target: Target) -> None:
    """A weight of strings: too few, or not UTF-8."""
    weight = target.weight()
    weight.ClearField("raw_data")
    weight.data_type = TensorProto.STRING
    elements = int(np.prod(weight.dims))
    weight.string_data.extend(
        target.random.choice([[], [b"a"], [b"\xff\xfe"] * elements, [b"a"] * elements])
    )


@kind("weight-missing")
def weight_missing(target: Target) -> None:
    """An initializer is gone, and its readers are not."""
    weights = target.graph.initializer
    if not weights:
        raise NotApplicable
    del weights[target.random.randrange(len(weights))]


@kind("weight-twice")
def weight_twice(target: Target) -> None:
    """Two initializers of one name with different values."""
    weight = target.one(list(target.graph.initializer))
    copy = target.graph.initializer.add()
    copy.CopyFrom(weight)
    if copy.raw_data:
        copy.raw_data = bytes(len(copy.raw_data))


@kind("weight-sparse")
def weight_sparse(target: Target) -> None:
    """A sparse initializer, sound or with indices that lie outside."""
    weight = target.one(list(target.graph.initializer))
    sparse = target.graph.sparse_initializer.add()
    sparse.values.CopyFrom(numpy_helper.from_array(np.ones(2, np.float32), weight.name))
    sparse.indices.CopyFrom(
        numpy_helper.from_array(
            np.array(target.random.choice([[0, 1], [0, 10**9], [-5, 2]]), np.int64), ""
        )
    )
    sparse.dims.extend(weight.dims)
    if target.random.random() < 0.5:
        target.graph.initializer.remove(weight)


@kind("weight-segment")
def weight_segment(target: Target) -> None:
    """A weight that is said to be a segment of a larger one."""
    weight = target.weight()
    weight.segment.begin, weight.segment.end = target.random.choice([(0, 2), (5, 1), (-1, 2**62)])


@kind("constant-odd")
def constant_odd(target: Target) -> None:
    """A Constant node with no value, with two, or of an odd type."""
    node = target.graph.node.add()
    node.op_type = "Constant"
    node.output.append("odd_constant")
    value = target.random.choice(["none", "two", "strings", "sparse", "no-output"])
    if value == "two":
        node.attribute.extend(
            [
                onnx.helper.make_attribute("value_float", 1.0),
                onnx.helper.make_attribute("value_int", 1),
            ]
        )
    elif value == "strings":
        node.attribute.append(onnx.helper.make_attribute("value_strings", [b"\xff", b"a"]))
    elif value == "sparse":
        node.attribute.add(name="sparse_value", type=onnx.AttributeProto.SPARSE_TENSOR)
    elif value == "no-output":
        del node.output[:]
