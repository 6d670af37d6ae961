"""The answers to one case on the way from the file to the served model: each session is opened once, each evaluation made once."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxproof.diagnosis import limits
from onnxproof.diagnosis.locate.experiment import observe
from onnxproof.diagnosis.locate.scene import Scene
from onnxproof.errors import OnnxproofError
from onnxproof.inputs.space import as_dtype
from onnxproof.numerics.measure import eps
from onnxproof.numerics.sketch import Sketch, distance, sketch
from onnxproof.onnxmodel.graph import Graph
from onnxproof.results import InputInfo, Signature
from onnxproof.runtimes import Session, open_session, parse
from onnxproof.runtimes import reference as standard
from onnxproof.runtimes.session import inner_values
from onnxproof.runtimes.session.execution import Candidate, Clock, feed
from onnxproof.system.allocator import release_free_memory

Array = np.ndarray[Any, Any]
_MOST_S = 120.0
"""Seconds that one evaluation by the standard may take. Not measured."""
_LEAST_S = 1.0
"""Seconds that one evaluation has in any case, however little of the budget is left."""


class ServedModel:
    """The file as runtimes serve it."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._sessions: dict[str, Session] = {}
        self._errors: dict[tuple[str, Signature], float] = {}

    def error(self, backend: str, signature: Signature | None = None) -> float:
        """The error of its answers, under the scene's pairing or another; infinite where it gives none."""
        key = (backend, signature or self._scene.signature)
        if key not in self._errors:
            self._errors[key] = self._measure_error(*key)
        return self._errors[key]

    def close(self) -> None:
        """Let the sessions go."""
        while self._sessions:
            self._sessions.popitem()[1].close()
        release_free_memory()

    def _measure_error(self, backend: str, signature: Signature) -> float:
        """Open the session once, and run the case."""
        try:
            if backend not in self._sessions:
                self._sessions[backend] = open_session(backend, self._scene.path)
            candidate = Candidate(
                backend, self._scene.path, signature, Clock(), session=self._sessions[backend]
            )
            return self._scene.error(candidate.run(self._scene.case.inputs))
        except OnnxproofError:
            return float("inf")


@dataclass(
    frozen=True,
    slots=True,
    kw_only=True,
)
class Evaluation:
    """The file with every value on the way, in float64 as the standard defines it or as a runtime computes it."""

    session: Any
    gap: float
    """The error of its answers."""
    seen: dict[str, Sketch]
    """Every value on the way."""
    resolution: float
    """The relative error from which on a value may count as wrong: constants are rounded to float32 in the file, or to half."""
    means: str = "in float64"


def evaluate_in_float64(scene: Scene) -> Evaluation | None:
    """Evaluate the file by the standard in float64; None where the evaluator can't, or takes too long."""
    try:
        session = standard.open(scene.path, "float64")
        session.limit_s = evaluation_limit_s(scene)
        start = time.perf_counter()
        seen, outputs = observe(session, model_inputs(scene))
    except OnnxproofError:
        return None
    elapsed_s = time.perf_counter() - start
    session.limit_s = min(2 * elapsed_s + 10, evaluation_limit_s(scene))
    release_free_memory()
    resolution = limits.FLOAT64_RESOLUTION
    if scene.file.half is not None:
        resolution = 2 * eps(np.dtype(scene.file.half))
    return Evaluation(
        session=session,
        gap=outputs_error(scene, session.output_names, outputs),
        seen=seen,
        resolution=resolution,
    )


def evaluation_limit_s(scene: Scene) -> float:
    """Seconds that one evaluation of the file may take: within what is left of the budget."""
    return max(_LEAST_S, min(_MOST_S, scene.deadline.left))


def evaluate_by_runtime(scene: Scene) -> Evaluation | None:
    """The same from what the runtime computes, where the evaluator can't: rounded, and so compared less finely."""
    from onnxproof.diagnosis.locate import runtime_probe

    session = runtime_probe.open_probe(scene)
    try:
        if session is None:
            return None
        seen, outputs = observe(session, model_inputs(scene))
    except OnnxproofError:
        return None
    return Evaluation(
        session=session,
        gap=outputs_error(scene, session.output_names, outputs),
        seen=seen,
        resolution=max(limits.NOISE_FACTOR * scene.noise, limits.RUNTIME_RESOLUTION),
        means="as the runtime computes them, since the standard's evaluator could not",
    )


def model_inputs(scene: Scene) -> dict[str, Array]:
    """The file's inputs, for the standard's evaluator: it writes into none, so nothing is copied that has the right dtype."""
    return {
        port.onnx_name: _as_port_dtype(port, np.asarray(scene.case.inputs[port.name]))
        for port in scene.signature.inputs
        if port.onnx_name is not None
    }


def _as_port_dtype(port: InputInfo, array: Array) -> Array:
    """The array in the dtype that the file declares, where it declares one."""
    if port.onnx_dtype in (None, "", "unknown", str(array.dtype)):
        return array
    return as_dtype(array, np.dtype(port.onnx_dtype))


def outputs_error(
    scene: Scene,
    names: Sequence[str],
    outputs: Sequence[Any],
) -> float:
    """The error of outputs by these names."""
    by_name = dict(zip(names, outputs, strict=True))
    return scene.error([by_name.get(o.onnx_name or "") for o in scene.signature.outputs])


def plain_backend(scene: Scene) -> str:
    """The backend without optimisation: ONNX Runtime can do without, another runtime is taken as it is."""
    if parse(scene.backend)[0] == "ort":
        return "ort:disabled"
    return scene.backend


@dataclass(
    frozen=True,
    slots=True,
    kw_only=True,
)
class InnerGaps:
    """The inner values of the runtime against the standard's, by name."""

    gaps: dict[str, float]
    dtypes: dict[str, str]


def measure_inner_gaps(scene: Scene, evaluation: Evaluation) -> InnerGaps | None:
    """The gap of each inner value of the runtime to the standard's in float64; None where they can't be read."""
    producers = Graph.of(scene.file).producers
    names = [name for name in evaluation.seen if name in producers]
    feeds = feed(scene.case.inputs, scene.signature)
    inner = InnerGaps(gaps={}, dtypes={})
    try:
        values = inner_values.values(plain_backend(scene), scene.path, feeds, names)
        for name, value in values.items():
            array = np.asarray(value)
            inner.gaps[name] = distance(sketch(array), evaluation.seen[name])
            inner.dtypes[name] = str(array.dtype)
    except OnnxproofError:
        return None
    if not inner.gaps:
        return None
    return inner
