"""One case on the ways from the file to the served answer: each session is opened once, each evaluation made once."""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxproof.diagnosis.locate.match import observe
from onnxproof.diagnosis.locate.scene import Scene
from onnxproof.errors import OnnxproofError
from onnxproof.inputs.space import as_dtype
from onnxproof.numerics.measure import eps
from onnxproof.numerics.sketch import Sketch, distance, sketch
from onnxproof.onnxmodel.graph import Graph
from onnxproof.results import Signature
from onnxproof.runtimes import Session, open_session, parse
from onnxproof.runtimes import reference as standard
from onnxproof.runtimes.session import inner_values
from onnxproof.runtimes.session.execution import Candidate, Clock, feed
from onnxproof.system.allocator import release_free_memory

Array = np.ndarray[Any, Any]
SLOW_S = 120.0
_LEAST_S = 1.0
"""Seconds that one evaluation has in any case, however little of the budget is left."""
_FINEST, _ROUNDED = 3e-7, 1e-5


class Served:
    """The file as runtimes serve it."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._sessions: dict[str, Session] = {}
        self._gaps: dict[tuple[str, Signature], float] = {}

    def gap(self, backend: str, signature: Signature | None = None) -> float:
        """How far its answers are from the truth, under the scene's pairing or another; infinite where it gives none."""
        key = (backend, signature or self._scene.signature)
        if key not in self._gaps:
            self._gaps[key] = self._measured(*key)
        return self._gaps[key]

    def close(self) -> None:
        """Let the sessions go."""
        while self._sessions:
            self._sessions.popitem()[1].close()
        release_free_memory()

    def _measured(self, backend: str, signature: Signature) -> float:
        try:
            if backend not in self._sessions:
                self._sessions[backend] = open_session(backend, self._scene.path)
            candidate = Candidate(
                backend, self._scene.path, signature, Clock(), session=self._sessions[backend]
            )
            return self._scene.apart(candidate.run(self._scene.case.inputs))
        except OnnxproofError:
            return float("inf")


@dataclass(slots=True, kw_only=True)
class Ideal:
    """The file as the standard defines it, in float64."""

    session: Any
    gap: float
    """How far its answers are from the truth."""
    seen: dict[str, Sketch]
    """Every value on the way."""
    finest: float
    """The relative error from which on a value may count as wrong: constants are rounded to float32 in the file, or to half."""
    means: str = "in float64"


def ideal(scene: Scene) -> Ideal | None:
    """Evaluate the file in float64 and look at every value; None where the evaluator can't, or takes too long."""
    try:
        session = standard.open(scene.path, "float64")
        session.limit_s = slow_s(scene)
        start = time.perf_counter()
        seen, outputs = observe(session, given(scene))
    except OnnxproofError:
        return None
    session.limit_s = min(2 * (time.perf_counter() - start) + 10, slow_s(scene))
    release_free_memory()
    return Ideal(
        session=session,
        gap=by_name(scene, session.output_names, outputs),
        seen=seen,
        finest=_FINEST if scene.file.half is None else 2 * eps(np.dtype(scene.file.half)),
    )


def slow_s(scene: Scene) -> float:
    """Seconds that one evaluation of the file may take: within what is left of the budget."""
    return max(_LEAST_S, min(SLOW_S, scene.deadline.left))


def probed(scene: Scene) -> Ideal | None:
    """The same from what the runtime computes, where the evaluator can't: rounded, and so compared less finely."""
    from onnxproof.diagnosis.locate import probing

    session = probing.opened(scene)
    try:
        if session is None:
            return None
        seen, outputs = observe(session, given(scene))
    except OnnxproofError:
        return None
    return Ideal(
        session=session,
        gap=by_name(scene, session.output_names, outputs),
        seen=seen,
        finest=max(20 * scene.noise, _ROUNDED),
        means="as the runtime computes them, since the standard's evaluator could not",
    )


def given(scene: Scene) -> dict[str, Array]:
    """The file's inputs, for the standard's evaluator: it writes into none, so nothing is copied that has the right dtype."""
    arrays = (
        (info, np.asarray(scene.case.inputs[info.name]))
        for info in scene.signature.inputs
        if info.onnx_name is not None
    )
    return {
        info.onnx_name or "": array
        if info.onnx_dtype in (None, "", "unknown", str(array.dtype))
        else as_dtype(array, np.dtype(info.onnx_dtype))
        for info, array in arrays
    }


def by_name(scene: Scene, names: Any, outputs: Any) -> float:
    """How far outputs by these names are from the truth."""
    found = dict(zip(names, outputs, strict=True))
    return scene.apart([found.get(o.onnx_name or "") for o in scene.signature.outputs])


def inner_gaps(scene: Scene, told: Ideal) -> tuple[dict[str, float], dict[str, str]] | None:
    """How far each inner value of the runtime is from the standard's in float64, and its dtype; None where they can't be read."""
    made = Graph.of(scene.file).makers
    backend = "ort:disabled" if parse(scene.backend)[0] == "ort" else scene.backend
    gaps: dict[str, float] = {}
    dtypes: dict[str, str] = {}
    try:
        for name, value in inner_values.values(
            backend,
            scene.path,
            feed(scene.case.inputs, scene.signature),
            [n for n in told.seen if n in made],
        ).items():
            gaps[name], dtypes[name] = (
                distance(sketch(np.asarray(value)), told.seen[name]),
                str(np.asarray(value).dtype),
            )
    except OnnxproofError:
        return None
    return (gaps, dtypes) if gaps else None
