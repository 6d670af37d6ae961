"""Dims: which are open, which are fixed, and which are named like a number."""

from collections.abc import Callable, Iterator, Sequence

from onnxproof.inspection.view import Check, Rating, View, list_names
from onnxproof.onnxmodel.onnx_file import Port

Dim = str | int | None


def check(view: View) -> Iterator[Check]:
    """The first of these that the inputs show: a fixed dim declared open, size 0, a negative size, no rank, a fixed batch."""
    frozen = _select_dims(view.file.inputs, _is_number_as_name)
    if frozen:
        names = [f"{name} called {dim}" for name, dim in frozen.items()]
        yield Check(
            name="dims",
            rating=Rating.BAD,
            what=f"torch fixed these dims while tracing, and the file says they are open: {list_names(names)}",
            help="any other size runs and answers wrongly: export again with `onnxproof export`, which tells what fixed them",
        )
        return
    inputs = ", ".join(_format_port(port) for port in view.file.inputs)
    tensors = [port for port in view.file.inputs if port.kind == "tensor"]
    odd = _find_odd_dims(tensors, inputs)
    if odd is None:
        yield Check(name="dims", rating=Rating.GOOD, what=inputs or "the model takes no input")
        return
    what, help_text = odd
    yield Check(name="dims", rating=Rating.ODD, what=what, help=help_text)


def _find_odd_dims(tensors: Sequence[Port], inputs: str) -> tuple[str, str] | None:
    """What is odd about the dims, and what to do, or nothing."""
    empty = list(_select_dims(tensors, lambda dim: dim == 0))
    if empty:
        return (
            f"{list_names(empty)} is 0, so there is nothing in it: {inputs}",
            "a size of 0 was written down while exporting; export again",
        )
    negative = list(_select_dims(tensors, lambda dim: isinstance(dim, int) and dim < 0))
    if negative:
        return (
            f"{list_names(negative)} is negative: {inputs}",
            "some runtimes take it for an open dim, others refuse it: give the dim a name",
        )
    unranked = [port.name for port in tensors if port.dims is None]
    if unranked:
        return (
            f"{list_names(unranked)} has no rank",
            "runtimes can't plan memory: run onnx.shape_inference, or export again",
        )
    fixed = [port.name for port in tensors if _has_fixed_batch(port, tensors)]
    if fixed:
        return (
            f"the first dim of {list_names(fixed)} is fixed: {inputs}",
            "it takes one batch size only; `onnxproof export` leaves it open",
        )
    return None


def _select_dims(ports: Sequence[Port], condition: Callable[[Dim], bool]) -> dict[str, Dim]:
    """The dims of which the condition is true, by input and axis."""
    return {
        f"{port.name}[{axis}]": dim
        for port in ports
        for axis, dim in enumerate(port.dims or ())
        if condition(dim)
    }


def _is_number_as_name(dim: Dim) -> bool:
    return isinstance(dim, str) and dim.isdigit()


def _format_port(port: Port) -> str:
    if port.kind != "tensor":
        return f"{port.name} ({port.kind})"
    dims = ["?" if dim is None else str(dim) for dim in port.dims or ()]
    return f"{port.name}[{', '.join(dims)}]"


def _has_fixed_batch(port: Port, ports: Sequence[Port]) -> bool:
    """Whether the first dim is fixed and is the batch; a recurrent state is [layers, batch, size].

    1. If another input's first dim is open, the batch of this one is its second dim, provided that dim is open too and is
       called batch, has no name or is shared with that input.
    2. An input of one number or a list of settings then has no batch at all.
    """
    dims = port.dims
    if not dims or not _is_fixed(dims[0]):
        return False
    open_inputs = [other.dims for other in ports if other.dims and not _is_fixed(other.dims[0])]
    if len(dims) == 1:
        return not open_inputs  # step 2
    second = dims[1]
    if _is_fixed(second):
        return True
    if isinstance(second, str) and "batch" in second.lower():
        return False
    return not any(second is None or second in other for other in open_inputs)  # step 1


def _is_fixed(dim: Dim) -> bool:
    return isinstance(dim, int) and dim > 0
