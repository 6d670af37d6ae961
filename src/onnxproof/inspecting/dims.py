"""Dims: which are open, which are fixed, and which only pretend."""

from collections.abc import Iterator

from onnxproof.inspecting._view import Check, Rating, View, few


def check(view: View) -> Iterator[Check]:
    """What the inputs say about their sizes."""
    named = {port.name: port.dims for port in view.file.inputs}
    pretending = [f"{name}[{axis}] called {dim}" for name, dims in named.items() for axis, dim in enumerate(dims or ()) if isinstance(dim, str) and dim.isdigit()]
    if pretending:
        yield Check(name="dims", rating=Rating.BAD, what=f"torch fixed these dims while tracing, and the file says they are open: {few(pretending)}",
                    help="any other size runs and answers wrongly: export again with `onnxproof export`, which tells what fixed them")
        return
    unranked = [name for name, dims in named.items() if dims is None]
    fixed = [name for name, dims in named.items() if dims and isinstance(dims[0], int)]
    shown = ", ".join(f"{name}[{', '.join(str(dim) if dim is not None else '?' for dim in dims or ())}]" for name, dims in named.items())
    if unranked:
        yield Check(name="dims", rating=Rating.ODD, what=f"{few(unranked)} has no rank", help="runtimes can't plan memory: run onnx.shape_inference, or export again")
    elif fixed:
        yield Check(name="dims", rating=Rating.ODD, what=f"the first dim of {few(fixed)} is fixed: {shown}", help="it takes one batch size only; `onnxproof export` leaves it open")
    else:
        yield Check(name="dims", rating=Rating.GOOD, what=shown or "the model takes no input")
