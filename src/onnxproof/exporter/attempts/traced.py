"""Let the older, tracing exporter have a try: it knows some operators that the newer one does not, and freezes every branch."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnx
import torch

from onnxproof.exporter.dims import Dims
from onnxproof.exporter.failures import Failure
from onnxproof.exporter.job import Job, Made
from onnxproof.exporter.naming import Names
from onnxproof.reference.restore import RestoreModule
from onnxproof.results import ExportedDim
from onnxproof.system import temporary

ABOUT = "traced by the older TorchScript exporter"
KINDS = ("operator", "inputs", "other")
_OPSET = 17


def run(job: Job, failure: Failure) -> Made:
    """Trace the module as it stands."""
    return legacy(job, job.found.module)


def legacy(job: Job, module: Any) -> Made:
    """The older exporter's file; dims that the eager module can vary are left open."""
    places = [
        place
        for place in job.wishes.opened(job.example)
        if job.example.accepts({place: job.example.size(place) + 1}) or place[1] == 0
    ]
    names = Names(job.example, job.wishes.names).of({place: [place] for place in places})
    batch = {place: "batch" for place in places if place[1] == 0 and place not in job.wishes.names}
    axes: dict[str, dict[int, str]] = {}
    for place in places:
        axes.setdefault(place[0].replace(".", "_"), {})[place[1]] = batch.get(place, names[place])
    inputs = [name.replace(".", "_") for name in job.example.tensors]
    folder = temporary.Folder()
    args, kwargs = job.example.arguments({})
    with _silent(), RestoreModule(job.found.module), torch.no_grad():
        torch.onnx.export(
            module,
            args,
            str(folder.path / "model.onnx"),
            kwargs=kwargs,
            dynamo=False,
            input_names=inputs,
            dynamic_axes=axes,
            output_names=list(job.output_names) or None,
            opset_version=min(job.opset or _OPSET, _OPSET),
        )
    return Made(folder=folder, dims=Dims(rows=_rows(folder.path / "model.onnx", job), names={}))


@contextmanager
def _silent() -> Iterator[None]:
    """The older exporter prints whole graphs from C++ when it fails."""
    kept = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def _rows(path: Path, job: Job) -> tuple[ExportedDim, ...]:
    """What the file says about its inputs."""
    dims = {
        port.name: [d.dim_param or d.dim_value for d in port.type.tensor_type.shape.dim]
        for port in onnx.load(path, load_external_data=False).graph.input
    }
    rows = []
    for name, axis in job.example.places():
        said = dims.get(name.replace(".", "_"), [])
        dim = said[axis] if axis < len(said) else 0
        row = ExportedDim(
            input=name,
            axis=axis,
            size=job.example.size((name, axis)),
            name=dim if isinstance(dim, str) else "",
            reason="" if isinstance(dim, str) else "traced: the older exporter gives no reasons",
        )
        rows.append(row)
    return tuple(rows)
