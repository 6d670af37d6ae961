"""Scenes between two hand-made files: the first is right by definition, the second has a planted fault."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from onnxproof.diagnosis.locate.evaluation import model_inputs
from onnxproof.diagnosis.locate.experiment import Experiment, Round, observe
from onnxproof.diagnosis.locate.scene import Scene
from onnxproof.onnxmodel import onnx_file
from onnxproof.onnxmodel.graph import Graph
from onnxproof.reference.graph import GraphReference
from onnxproof.results import Case, InputInfo, OutputInfo, Signature
from onnxproof.runtimes import reference as standard
from onnxproof.runtimes.session.execution import Clock

Array = np.ndarray[Any, Any]
TOLERANCE = 1e-6


def normal(*shape: int, seed: int = 0) -> Array:
    """Normal numbers in float32, the same in every run."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def scene_between(
    folder: Path,
    right: onnx.ModelProto,
    wrong: onnx.ModelProto,
    inputs: Mapping[str, Array],
    *,
    backend: str = "ort",
    **other: Any,
) -> Scene:
    """The scene of one case; what the right file says in float64 is the truth."""
    onnx.save(right, folder / "right.onnx")
    path = folder / "wrong.onnx"
    onnx.save(wrong, path)
    reference = GraphReference(folder / "right.onnx", dict(inputs), Clock())
    answers = reference.run(inputs)
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
    outputs = tuple(
        OutputInfo(
            name=true.name, dtype=str(array.dtype), shape=array.shape, onnx_name=candidate.name
        )
        for true, candidate, array in zip(
            right.graph.output, wrong.graph.output, answers, strict=True
        )
    )
    return Scene(
        reference=reference,
        path=path,
        file=onnx_file.read(path),
        signature=Signature(inputs=ports, outputs=outputs),
        case=Case(name="case", group="ordinary", about="", inputs=inputs),
        backend=backend,
        truth=reference.truth(inputs) or answers,
        dtypes=[array.dtype for array in answers],
        noise=1e-7,
        **other,
    )


def experiment_on(scene: Scene, tolerance: float = TOLERANCE) -> Experiment:
    """The file in float64 beside every value of the reference."""
    values, fetch = scene.reference.trace(scene.case.inputs)
    session = standard.open(scene.path, "float64")
    return Experiment(
        graph=Graph.of(scene.file),
        session=session,
        feeds=model_inputs(scene),
        truth=scene.truth,
        output_places=list(range(len(scene.truth))),
        traced=values,
        fetch=fetch,
        tolerance=tolerance,
    )


def first_round(experiment: Experiment) -> Round:
    """The first comparison of a search, with nothing replaced."""
    sketches, _ = observe(experiment.session, experiment.feeds)
    matches = experiment.match(sketches)
    return Round(
        matches=matches,
        comparison=experiment.compare(matches),
        replacements={},
        error=experiment.error(),
        guilty=[],
        truths={},
    )


def place_of(experiment: Experiment, node: str) -> int:
    """The place of the node with this name."""
    graph = experiment.graph
    return [graph.name(place) for place in range(len(graph.nodes))].index(node)
