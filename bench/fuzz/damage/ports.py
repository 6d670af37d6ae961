"""Inputs and outputs of odd types and sizes, and value_info that lies."""

from onnx import TensorProto, helper

from bench.fuzz.damage import NotApplicable, Target, kind


@kind("port-type-other")
def port_type_other(target: Target) -> None:
    """Another element type, known or not."""
    target.port().type.tensor_type.elem_type = target.random.choice(
        [0, 1, 2, 3, 6, 7, 8, 9, 10, 11, 12, 14, 15, 16, 17, 21, 22, 23, 99]
    )


@kind("port-not-tensor")
def port_not_tensor(target: Target) -> None:
    """A sequence, an optional, a map, a sparse tensor, nothing."""
    port, tensor = target.port(), helper.make_tensor_type_proto(TensorProto.FLOAT, ["batch", 4])
    choices = [
        helper.make_sequence_type_proto(tensor),
        helper.make_optional_type_proto(tensor),
        helper.make_map_type_proto(TensorProto.INT64, tensor),
        helper.make_sparse_tensor_type_proto(TensorProto.FLOAT, [3, 4]),
        helper.make_optional_type_proto(helper.make_sequence_type_proto(tensor)),
        None,
    ]
    chosen = target.random.choice(choices)
    port.ClearField("type")
    if chosen is not None:
        port.type.CopyFrom(chosen)


@kind("port-dim-odd")
def port_dim_odd(target: Target) -> None:
    """A dim of -1, of 0, of another size or huge."""
    dims = [
        dim
        for port in (*target.graph.input, *target.graph.output)
        for dim in port.type.tensor_type.shape.dim
    ]
    target.one(dims).dim_value = target.random.choice([-1, 0, 1, 7, 2**31, 2**62, -(2**63)])


@kind("input-dim-odd")
def input_dim_odd(target: Target) -> None:
    """The same, of an input: its last dim, or all of them."""
    dims = target.one(
        [port for port in target.graph.input if port.type.tensor_type.shape.dim]
    ).type.tensor_type.shape.dim
    value = target.random.choice([-1, 0, 2, 10**6])
    for dim in dims if target.random.random() < 0.5 else dims[-1:]:
        dim.dim_value = value


@kind("port-rank-other")
def port_rank_other(target: Target) -> None:
    """More dims, fewer, none, or no rank."""
    port = target.port()
    if not port.type.HasField("tensor_type"):
        raise NotApplicable
    shape = port.type.tensor_type.shape
    choice = target.random.choice(["more", "fewer", "none", "unranked"])
    if choice == "more":
        shape.dim.add().dim_value = 3
    elif choice == "fewer" and shape.dim:
        del shape.dim[-1]
    elif choice == "none":
        del shape.dim[:]
    else:
        port.type.tensor_type.ClearField("shape")


@kind("dim-names-conflict")
def dim_names_conflict(target: Target) -> None:
    """Dims of different sizes share a name."""
    for port in (*target.graph.input, *target.graph.output):
        for dim in port.type.tensor_type.shape.dim:
            if target.random.random() < 0.7:
                dim.dim_param = "same"


@kind("dims-open")
def dims_open(target: Target) -> None:
    """Every dim open, named or not."""
    named = target.random.random() < 0.5
    for port in (*target.graph.input, *target.graph.output):
        for place, dim in enumerate(port.type.tensor_type.shape.dim):
            dim.ClearField("dim_value")
            dim.ClearField("dim_param")
            if named:
                dim.dim_param = f"{port.name}_{place}"


@kind("value-info-lies")
def value_info_lies(target: Target) -> None:
    """The type or the dims of an inner value are not what the file says."""
    values = [name for node in target.graph.node for name in node.output if name]
    for name in target.random.sample(values, min(2, len(values))):
        kind_, dims = target.random.choice(
            [
                (TensorProto.INT32, ["batch", 4]),
                (TensorProto.FLOAT, [1, 2, 3, 4, 5]),
                (TensorProto.STRING, []),
                (TensorProto.FLOAT, [-1, 0]),
            ]
        )
        target.graph.value_info.append(helper.make_tensor_value_info(name, kind_, dims))


@kind("ports-swapped")
def ports_swapped(target: Target) -> None:
    """Inputs or outputs in another order."""
    lists = [entries for entries in (target.graph.input, target.graph.output) if len(entries) > 1]
    entries = target.one(lists)
    order = list(entries)[::-1]
    del entries[:]
    entries.extend(order)


@kind("weights-are-inputs")
def weights_are_inputs(target: Target) -> None:
    """Initializers that are inputs too, as in IR version 3."""
    for weight in target.graph.initializer:
        target.graph.input.append(
            helper.make_tensor_value_info(weight.name, weight.data_type, list(weight.dims))
        )
