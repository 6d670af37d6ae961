"""Workbenches on hand-made graphs: a file that is wrong, and the truth that it should give."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from support.fake_reference import FakeReference

from onnxproof.diagnosis.counterfactuals.workbench import ComparedCases, Workbench
from onnxproof.diagnosis.locate import Located, Scene
from onnxproof.onnxmodel import onnx_file
from onnxproof.options import Policy
from onnxproof.reference.graph import GraphReference
from onnxproof.results import Case, InputInfo, Location, OutputInfo, Signature, Stage
from onnxproof.runtimes.session.execution import Clock

Array = np.ndarray[Any, Any]
_TALLY = re.compile(
    r" on \d+ of \d+ failing cases? \([^()]*\)"
    r"(; no case was found that passes| and (changes|breaks) \w+ of \d+ passing ones?)"
    r"(; no time was left for further cases)?"
)


class KnownAnswer(FakeReference):
    """A reference that knows the answer to one case, and refuses every other: no further cases can be made."""

    tree = None

    def __init__(self, inputs: Mapping[str, Array], truth: Array) -> None:
        def look_up(asked: Mapping[str, Array]) -> list[Array]:
            if any(not np.array_equal(asked[name], array) for name, array in inputs.items()):
                raise ValueError("only one answer is known")
            return [truth]

        super().__init__(look_up, example=inputs)


def graph_model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Array],
    constants: Mapping[str, Array] | None = None,
) -> onnx.ModelProto:
    """A model whose last node's output is the output."""
    ports = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for name, array in inputs.items()
    ]
    weights = [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()]
    output = helper.make_empty_tensor_value_info(nodes[-1].output[0])
    output.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    graph = helper.make_graph(list(nodes), "graph", ports, [output], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def answer(model: onnx.ModelProto, inputs: Mapping[str, Array]) -> Array:
    """What the standard says."""
    output: Array = ReferenceEvaluator(model).run(None, dict(inputs))[0]
    return output


def without_tally(evidence: str) -> str:
    """Evidence without what the judge of causes adds: on how many cases it was tried, and what came of it."""
    return _TALLY.sub("", evidence)


def workbench(
    folder: Path,
    wrong: onnx.ModelProto,
    right: onnx.ModelProto | Array,
    inputs: Mapping[str, Array],
    *,
    reference: Any = None,
    nodes: Sequence[str] = (),
    scene: Mapping[str, Any] | None = None,
    found: Mapping[str, Any] | None = None,
    **options: Any,
) -> Workbench:
    """The workbench of a wrong file, whose faults are said to be in these nodes.

    `right` is the file that it should be, or, where that is all that is known, the answer to the witness alone.
    """
    if isinstance(right, onnx.ModelProto):
        onnx.save(right, folder / "right.onnx")
        reference = GraphReference(folder / "right.onnx", dict(inputs), Clock())
        (truth,) = reference.truth(inputs) or reference.run(inputs)
    else:
        truth = right
        reference = reference or KnownAnswer(inputs, truth)
    path = folder / "wrong.onnx"
    onnx.save(wrong, path)
    ports = tuple(
        InputInfo(
            name=name,
            dtype=str(array.dtype),
            shape=array.shape,
            dims=array.shape,
            onnx_name=name,
            onnx_dtype=str(array.dtype),
        )
        for name, array in inputs.items()
    )
    output = wrong.graph.output[0].name
    info = OutputInfo(name=output, dtype=str(truth.dtype), shape=truth.shape, onnx_name=output)
    made = Scene(
        reference=reference,
        path=path,
        file=onnx_file.read(path),
        signature=Signature(inputs=ports, outputs=(info,)),
        case=Case(name="case", group="ordinary", about="", inputs=inputs),
        backend="ort",
        truth=[truth],
        dtypes=[truth.dtype],
        noise=1e-7,
        **(scene or {}),
    )
    location = Location(stage=Stage.EXPORT, nodes=tuple(nodes))
    cases = options.pop("cases", ComparedCases())
    policy = options.pop("policy", Policy())
    located = Located(location=location, **(found or {}))
    return Workbench(made, located, cases=cases, policy=policy, **options)
