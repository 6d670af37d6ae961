"""Workbenches of tiny modules: a module, a hand-made file that says something else, and the module's own values."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import helper
from support.workbenches import graph_model, without_tally, workbench

from onnxproof.diagnosis.counterfactuals.workbench import ComparedCases, Workbench
from onnxproof.reference.module import ModuleReference
from onnxproof.reference.subject import Subject
from onnxproof.results import Case
from onnxproof.runtimes.session.execution import Clock

Array = np.ndarray[Any, Any]


def node(op_type: str, *inputs: str, output: str = "y", **attributes: Any) -> onnx.NodeProto:
    """A node that is named like its output."""
    return helper.make_node(op_type, list(inputs), [output], name=output, **attributes)


def file_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Array],
    constants: Mapping[str, Array] | None = None,
    *,
    dtype: int = onnx.TensorProto.FLOAT,
) -> onnx.ModelProto:
    """A model with any sizes, whose last node's output is the output, of this type."""
    model = graph_model(nodes, inputs, constants)
    for port in model.graph.input:
        for place, dim in enumerate(port.type.tensor_type.shape.dim):
            dim.dim_param = f"{port.name}_{place}"
    model.graph.output[0].type.tensor_type.elem_type = dtype
    return model


def case_of(inputs: Mapping[str, Array], **other: Any) -> Case:
    """An ordinary case."""
    return Case(**{"name": "other", "group": "ordinary", "about": "", "inputs": inputs, **other})


def module_workbench(
    folder: Path,
    module: torch.nn.Module,
    wrong: onnx.ModelProto,
    witness: Mapping[str, Array],
    *,
    example: Mapping[str, Array] | None = None,
    located: Mapping[str, str] | None = None,
    others: Sequence[Mapping[str, Array]] = (),
    scene: Mapping[str, Any] | None = None,
    **options: Any,
) -> Workbench:
    """The workbench of a module; `located` names wrong nodes, and the call of the module that each should have been."""
    arrays = witness if example is None else example
    tensors = {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
    reference = ModuleReference(Subject(module=module, kwargs=tensors), Clock())
    reference.run(witness)
    truth = reference.truth(witness)
    assert truth is not None
    traced, fetch = reference.trace(witness)
    names = located or {}
    by_op = {value.op: value for value in reversed(traced)}
    found = {
        "traced_values": traced,
        "fetch": fetch,
        "counterparts": {name: by_op[op] for name, op in names.items() if op},
        "module_session": reference.float64_session().session,
    }
    if others:
        cases = [case_of(inputs, name=f"other {n}") for n, inputs in enumerate(others)]
        options["cases"] = ComparedCases(others=cases)
    bench = workbench(
        folder,
        wrong,
        truth[0],
        witness,
        reference=reference,
        nodes=list(names),
        found=found,
        **options,
    )
    bench.scene = replace(bench.scene, **(scene or {}))
    return bench


def without_line(evidence: str) -> str:
    """Evidence without the tally of the judge and the places in the source: `clamp` (file:line: `text`) becomes `clamp`."""
    return re.sub(r" (\(|at )[^\s()]+:\d+: `[^`]*`\)?", "", without_tally(evidence))
