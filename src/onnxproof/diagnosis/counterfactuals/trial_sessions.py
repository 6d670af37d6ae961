"""The sessions of changed graphs: what was asked last stays open, since a cause asks the same graph about many cases."""

import hashlib
import os
from collections import OrderedDict
from pathlib import Path

import onnx

from onnxproof.onnxmodel import large_models, onnx_file
from onnxproof.runtimes import ort

_MOST_OPEN = 2
"""The file itself and the graph that is tried: the two are asked in turn."""
_LARGE = 256 << 20
"""Bytes of a file of which one session is held at a time: to open one costs a forward pass or two, and to hold one another copy of the weights.
BERT-base (435 MB): 0.2 s to open, 0.5 GB to hold."""
_left_to_the_parent: list[ort.OrtSession] = []
"""Kept in a fork: to close one is to wait for its threads, which are not there."""


class TrialSessions:
    """Opens a graph once while it is the latest or the one before; of a large model only the latest is held."""

    def __init__(self, path: Path, option: str) -> None:
        self._path = path
        self._option = option
        self._open: OrderedDict[str, ort.OrtSession] = OrderedDict()
        self._process = os.getpid()

    def get(self, model: onnx.ModelProto | None, disabled: tuple[str, ...]) -> ort.OrtSession:
        """The session of a graph (the file itself for None) with some optimizers off."""
        self._forget_sessions_of_parent()
        key = f"{_digest(model)} {disabled}"
        if key in self._open:
            self._open.move_to_end(key)
            return self._open[key]
        self._make_room()
        source = self._path if model is None else model
        session = ort.open_model(source, self._option, disabled_optimizers=disabled)
        self._open[key] = session
        return session

    def close(self) -> None:
        """Let all of them go."""
        self._forget_sessions_of_parent()
        while self._open:
            self._open.popitem()[1].close()

    def _forget_sessions_of_parent(self) -> None:
        if self._process != os.getpid():
            _left_to_the_parent.extend(self._open.values())
            self._open.clear()
            self._process = os.getpid()

    def _make_room(self) -> None:
        most = _MOST_OPEN
        if onnx_file.file_bytes(self._path) > _LARGE:
            most = 1
        while len(self._open) >= most:
            self._open.popitem(last=False)[1].close()


def _digest(model: onnx.ModelProto | None) -> str:
    """By content: a graph may be changed between two questions."""
    if model is None:
        return "the file"
    if large_models.fits_in_memory(model):
        return hashlib.sha256(model.SerializeToString()).hexdigest()
    return large_models.digest(model)
