"""The older, tracing exporter: it translates some operators that the newer one does not, and freezes every branch."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnx
import torch

from onnxproof.exporter.dims import Dims
from onnxproof.exporter.example import Place
from onnxproof.exporter.failures import Failure
from onnxproof.exporter.job import ExportedModel, Job
from onnxproof.exporter.naming import DimNames
from onnxproof.reference.restore import RestoreModule
from onnxproof.results import ExportedDim
from onnxproof.system import temporary

ABOUT = "traced by the older TorchScript exporter"
KINDS = ("operator", "inputs", "other")
_MAX_OPSET = 17
"""The newest opset that the older exporter is asked for here."""


def attempt(job: Job, failure: Failure) -> ExportedModel:
    """Trace the module as it stands."""
    return export_with_torchscript(job, job.subject.module)


def export_with_torchscript(job: Job, module: Any) -> ExportedModel:
    """The older exporter's file; dims that the eager module can vary are left open."""
    axes = _dynamic_axes(job)
    folder = temporary.Folder()
    path = folder.path / "model.onnx"
    args, kwargs = job.example.arguments({})
    with _silent(), RestoreModule(job.subject.module), torch.no_grad():
        torch.onnx.export(
            module,
            args,
            str(path),
            kwargs=kwargs,
            dynamo=False,
            input_names=[_file_name(name) for name in job.example.tensors],
            dynamic_axes=axes,
            output_names=list(job.output_names) or None,
            opset_version=min(job.opset or _MAX_OPSET, _MAX_OPSET),
        )
    return ExportedModel(folder=folder, dims=Dims(rows=_rows(path, job), names={}))


def _dynamic_axes(job: Job) -> dict[str, dict[int, str]]:
    """Names for the dims that the eager module can vary, by input and axis; all leading dims are one batch."""
    places = [place for place in job.request.open_dims(job.example) if _can_vary(job, place)]
    names = DimNames(job.example, job.request.names).assign({place: [place] for place in places})
    axes: dict[str, dict[int, str]] = {}
    for place in places:
        input_name, axis = place
        name = names[place]
        if axis == 0 and place not in job.request.names:
            name = "batch"
        axes.setdefault(_file_name(input_name), {})[axis] = name
    return axes


def _can_vary(job: Job, place: Place) -> bool:
    return job.example.accepts({place: job.example.size(place) + 1}) or place[1] == 0


def _file_name(name: str) -> str:
    """The name of an input in the file: no dots."""
    return name.replace(".", "_")


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
    inputs = onnx.load(path, load_external_data=False).graph.input
    names = {port.name: _dim_names(port) for port in inputs}
    rows = []
    for input_name, axis in job.example.places():
        name = names.get(_file_name(input_name), {}).get(axis, "")
        row = ExportedDim(
            input=input_name,
            axis=axis,
            size=job.example.size((input_name, axis)),
            name=name,
            reason="" if name else "traced: the older exporter gives no reasons",
        )
        rows.append(row)
    return tuple(rows)


def _dim_names(port: onnx.ValueInfoProto) -> dict[int, str]:
    """The names of the open dims, by axis."""
    dims = enumerate(port.type.tensor_type.shape.dim)
    return {axis: dim.dim_param for axis, dim in dims if dim.dim_param}
