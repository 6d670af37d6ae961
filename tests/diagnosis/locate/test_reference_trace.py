"""What the reference computed on the way, whether it is a file or a module."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import helper
from support.two_files import normal, scene_between
from support.workbenches import graph_model
from torch import Tensor, nn

from onnxproof.diagnosis.locate.reference_trace import trace_reference
from onnxproof.diagnosis.locate.scene import Scene
from onnxproof.reference import subject
from onnxproof.reference.module import ModuleReference
from onnxproof.runtimes.session.execution import Clock

X = normal(4, 6)
WIDE = X.astype(np.float64)


def model() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Tanh", ["x"], ["t"], "tanh"),
        helper.make_node("Sin", ["t"], ["y"], "/head/Sin"),
    ]
    return graph_model(nodes, {"x": X})


class Waves(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(torch.tanh(x))


def scene(folder: Path) -> Scene:
    return scene_between(folder, model(), model(), {"x": X})


def test_a_file_gives_its_inputs_and_every_value_in_float64(tmp_path: Path) -> None:
    trace = trace_reference(scene(tmp_path))
    assert [value.op for value in trace.values] == ["input x", "Tanh", "Sin"]
    assert [value.inputs for value in trace.values] == [(), (0,), (1,)]
    assert trace.values[2].module == "head"
    fetched = trace.fetch(2)
    assert fetched is not None
    np.testing.assert_allclose(fetched, np.sin(np.tanh(WIDE)), rtol=1e-12)
    assert trace.module_session is None


def test_a_module_gives_its_session_in_float64_as_well(tmp_path: Path) -> None:
    loaded = subject.load(Waves().eval(), (torch.from_numpy(X),))
    reference = ModuleReference(loaded, Clock())
    name = next(iter(reference.example()))
    base = scene(tmp_path)
    case = replace(base.case, inputs={name: X})
    trace = trace_reference(replace(base, reference=reference, case=case))
    assert trace.module_session is not None
    results = [trace.fetch(value.place) for value in trace.values if value.op == "sin"]
    assert len(results) == 1 and results[0] is not None
    np.testing.assert_allclose(results[0], np.sin(np.tanh(WIDE)), rtol=1e-12)
