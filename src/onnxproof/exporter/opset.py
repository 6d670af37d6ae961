"""The newest opset that every chosen runtime reads: found by opening small models."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import onnx
from onnx import TensorProto, helper

from onnxproof.errors import BackendMissing, UsageError
from onnxproof.runtimes import open_session
from onnxproof.system import temporary

_OLDEST = 17
"""Every runtime is taken to read this one."""


def check(opset: int | None, backends: Sequence[str]) -> None:
    """An opset that one of the runtimes can't read is refused before anything is exported."""
    if opset is None:
        return
    for backend in backends:
        newest = newest_readable(backend)
        if opset > newest:
            raise UsageError(
                "opset-too-new",
                f"opset {opset} is newer than what `{backend}` reads",
                notes=[f"this version of it reads up to {newest}"],
                help=f"ask for {newest} or less",
            )


def choose(default: int, backends: Sequence[str]) -> int:
    """The exporter's own opset, lowered to what every runtime reads."""
    return min([default, *(newest_readable(backend) for backend in backends)])


@cache
def newest_readable(backend: str) -> int:
    """The newest opset in which the runtime opens a model of one node."""
    with temporary.Folder() as folder:
        for opset in range(onnx.defs.onnx_opset_version(), _OLDEST, -1):
            if _opens(backend, opset, Path(folder) / f"{opset}.onnx"):
                return opset
    return _OLDEST


def _opens(
    backend: str,
    opset: int,
    path: Path,
) -> bool:
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y")]
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "probe",
        ports[:1],
        ports[1:],
    )
    imports = [helper.make_opsetid("", opset)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=10), path)
    try:
        open_session(backend, path).close()
    except BackendMissing:
        raise
    except (
        Exception
    ):  # a runtime of another package may raise anything for a model that it can't read
        return False
    return True
