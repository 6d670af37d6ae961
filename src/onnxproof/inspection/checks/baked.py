"""Constants that tracing baked in: shapes that hold for one size only, and tensors that are no weight of the module."""

from collections.abc import Iterator

import onnx

from onnxproof.inspection.view import Check, Rating, View, Weight, format_bytes, list_names

_LARGE = 1024
"""Elements from which on a constant that is no parameter is reported. Not measured."""


def check(view: View) -> Iterator[Check]:
    """Shapes first, then large constants."""
    yield _check_shapes(view)
    if view.state:
        yield _check_constants(view)


def _check_shapes(view: View) -> Check:
    """Reshape of an input-dependent value to a constant shape, in a file that has open dims."""
    if not _has_open_dim(view):
        return Check(
            name="baked-shapes",
            rating=Rating.GOOD,
            what="no input varies, so no shape need to",
        )
    baked = [text for node in view.file.model.graph.node if (text := _baked_shape(view, node))]
    if not baked:
        return Check(
            name="baked-shapes",
            rating=Rating.GOOD,
            what="no value that varies is forced into one shape",
        )
    return Check(
        name="baked-shapes",
        rating=Rating.BAD,
        what=f"{len(baked)} values that vary are forced into a shape that was written down: {list_names(baked)}",
        help="the size of the example was traced as a number: use x.shape in forward, and export again with that dim open",
    )


def _has_open_dim(view: View) -> bool:
    dims = [dim for port in view.file.inputs for dim in port.dims or ()]
    return any(not isinstance(dim, int) for dim in dims)


def _baked_shape(view: View, node: onnx.NodeProto) -> str:
    """The node and the constant shape that it forces an input-dependent value into, or nothing."""
    if node.op_type != "Reshape" or len(node.input) < 2:
        return ""
    if node.input[0] not in view.input_dependent:
        return ""
    shape = view.constants.get(node.input[1])
    if shape is None or shape.size < 2 or not (shape > 0).all():
        return ""
    return f"{node.name} to {shape.tolist()}"


def _check_constants(view: View) -> Check:
    """Large constants that neither are a parameter nor derive from one, judged by their sizes."""
    sizes = {tensor.numel() for tensor in view.state.values()}
    unknown = [weight for weight in view.weights if _is_no_parameter(weight, sizes)]
    if not unknown:
        return Check(
            name="baked-constants",
            rating=Rating.GOOD,
            what="every large constant has the size of a parameter",
        )
    total = sum(weight.bytes for weight in unknown)
    names = [weight.name for weight in unknown]
    return Check(
        name="baked-constants",
        rating=Rating.ODD,
        what=f"{len(unknown)} large constants are no parameter of the module, {format_bytes(total)}: {list_names(names)}",
        help="a mask or table that tracing computed: fine if it can't depend on the input's size, a fault if it should",
    )


def _is_no_parameter(weight: Weight, sizes: set[int]) -> bool:
    """Large, without the size of a parameter, and neither packed from parameters nor split from one."""
    if weight.elements < _LARGE or weight.elements in sizes:
        return False
    large_sizes = [size for size in sizes if size >= _LARGE // 4]
    return not any(
        weight.elements % size == 0 or size % weight.elements == 0 for size in large_sizes
    )
