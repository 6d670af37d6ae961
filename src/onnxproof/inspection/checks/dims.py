"""Dims: which are open, which are fixed, and which only pretend."""

from collections.abc import Iterator, Sequence

from onnxproof.inspection.view import Check, Rating, View, few
from onnxproof.onnxmodel.onnx_file import Port


def check(view: View) -> Iterator[Check]:
    """What the inputs say about their sizes."""
    named = {port.name: port.dims for port in view.file.inputs}
    pretending = [
        f"{name}[{axis}] called {dim}"
        for name, dims in named.items()
        for axis, dim in enumerate(dims or ())
        if isinstance(dim, str) and dim.isdigit()
    ]
    if pretending:
        yield Check(
            name="dims",
            rating=Rating.BAD,
            what=f"torch fixed these dims while tracing, and the file says they are open: {few(pretending)}",
            help="any other size runs and answers wrongly: export again with `onnxproof export`, which tells what fixed them",
        )
        return
    tensors = [port for port in view.file.inputs if not port.dtype.endswith("_type")]
    unranked = [port.name for port in tensors if port.dims is None]
    negative = [
        f"{port.name}[{axis}]"
        for port in tensors
        for axis, dim in enumerate(port.dims or ())
        if isinstance(dim, int) and dim < 0
    ]
    nothing = [
        f"{port.name}[{axis}]"
        for port in tensors
        for axis, dim in enumerate(port.dims or ())
        if dim == 0
    ]
    fixed = [port.name for port in tensors if _one_batch_size(port, tensors)]
    shown = ", ".join(_shown(port) for port in view.file.inputs)
    if nothing:
        yield Check(
            name="dims",
            rating=Rating.ODD,
            what=f"{few(nothing)} is 0, so there is nothing in it: {shown}",
            help="a size of 0 was written down while exporting; export again",
        )
    elif negative:
        yield Check(
            name="dims",
            rating=Rating.ODD,
            what=f"{few(negative)} is negative: {shown}",
            help="some runtimes take it for an open dim, others refuse it: give the dim a name",
        )
    elif unranked:
        yield Check(
            name="dims",
            rating=Rating.ODD,
            what=f"{few(unranked)} has no rank",
            help="runtimes can't plan memory: run onnx.shape_inference, or export again",
        )
    elif fixed:
        yield Check(
            name="dims",
            rating=Rating.ODD,
            what=f"the first dim of {few(fixed)} is fixed: {shown}",
            help="it takes one batch size only; `onnxproof export` leaves it open",
        )
    else:
        yield Check(name="dims", rating=Rating.GOOD, what=shown or "the model takes no input")


def _shown(port: Port) -> str:
    if port.dtype.endswith("_type"):
        return f"{port.name} ({port.dtype.removesuffix('_type')})"
    return (
        f"{port.name}[{', '.join(str(dim) if dim is not None else '?' for dim in port.dims or ())}]"
    )


def _one_batch_size(port: Port, ports: Sequence[Port]) -> bool:
    """A first dim that is written down, and no sign that the batch is elsewhere: a recurrent state is [layers, batch, size].

    Where another input's first dim is open, the batch of this one is its second dim, if that is open too and is called batch, has no name or is
    shared with that input; and an input of one number or a list of settings has no batch at all.
    """
    dims = port.dims
    if not dims or not _fixed(dims[0]):
        return False
    opened = [other.dims for other in ports if other.dims and not _fixed(other.dims[0])]
    if len(dims) == 1:
        return not opened
    second = dims[1]
    if _fixed(second):
        return True
    called_batch = isinstance(second, str) and "batch" in second.lower()
    return not called_batch and not any(second is None or second in other for other in opened)


def _fixed(dim: str | int | None) -> bool:
    return isinstance(dim, int) and dim > 0
