"""The candidate's graph as causes change it: refused where there is no memory for what a trial holds."""

from pathlib import Path

import onnx

from onnxproof.onnxmodel import mapped_weights
from onnxproof.onnxmodel.onnx_file import file_bytes
from onnxproof.system import guard

_COPIES_HELD = 4
"""Of the weights while a changed graph is tried: the graph, its copy, and a session with its packed weights. Not measured."""
_COPIES_OF_MAPPED = 2
"""The same where they stay in their file: a session maps them, and packs them for its kernels. Not measured."""


def load(path: Path, *, quantized: bool) -> onnx.ModelProto:
    """The file, large weights left beside it; a quantized one has all at hand, since it is taken apart weight by weight.

    Raises:
        ValueError: there is too little memory to try a change of it.
    """
    if quantized:
        _require_memory(path, _COPIES_HELD)
        return onnx.load(path)
    if not mapped_weights.stays_beside(path):
        _require_memory(path, _COPIES_HELD)
    else:
        _require_memory(path, _COPIES_OF_MAPPED)
    return mapped_weights.load(path)


def _require_memory(path: Path, copies: int) -> None:
    needed, free = copies * file_bytes(path), guard.available_bytes()
    if needed > free:
        gigabytes = f"about {needed / 1e9:.0f} GB, and {free / 1e9:.0f} are free"
        raise ValueError(f"changing the graph needs {gigabytes}")
