"""What the causes of a quantization loss share: the study of the candidate, and when a counterfactual counts as the cause."""

import weakref
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench
from onnxproof.errors import OnnxproofError
from onnxproof.exporter import export
from onnxproof.inputs import data_stream as user_data
from onnxproof.options import Policy
from onnxproof.quantization.attribution import Study, gain
from onnxproof.quantization.float_graph import prepare
from onnxproof.quantization.workbench import Bench
from onnxproof.results import Fix, NoiseKind, Share
from onnxproof.runtimes.session.execution import feed
from onnxproof.system import temporary

_studies: "weakref.WeakKeyDictionary[Workbench, tuple[Study, onnx.ModelProto | None]]" = (
    weakref.WeakKeyDictionary()
)
_ITEMS = 16
LEAST_DB = 3.0
"""A counterfactual that recovers less is no cause."""


def study(bench: Workbench) -> Study | str:
    """The study of a quantized candidate, or why there is none."""
    gap = bench.scene.gap
    if gap is None or gap.noise_kind is not NoiseKind.SIMULATED:
        return "the file quantizes nothing that the reference does not"
    if bench not in _studies:
        _studies[bench] = _made(bench)
    return _studies[bench][0]


def float_graph(bench: Workbench) -> onnx.ModelProto | None:
    """The reference as a float graph, where it can be exported."""
    study(bench)
    return _studies[bench][1]


def _made(bench: Workbench) -> tuple[Study, onnx.ModelProto | None]:
    names = [info.name for info in bench.scene.signature.inputs]
    items = [bench.scene.case.inputs]
    given = bench.subject.data if bench.subject is not None else None
    if given is not None and not hasattr(given, "__next__"):  # an iterator was used up by the proof
        items = [
            arrays
            for _, (_, arrays) in zip(range(_ITEMS), user_data.stream(given, names), strict=False)
        ] or items
    fed = [
        feed({n: np.asarray(a) for n, a in item.items()}, bench.scene.signature) for item in items
    ]
    wanted = [bench.scene.oracle.run(item) for item in items]
    order = [output.onnx_name for output in bench.scene.signature.outputs]
    places = [order.index(value.name) for value in bench.model.graph.output if value.name in order]
    plain = _float(bench)
    floats = (
        {}
        if plain is None
        else {
            t.name: numpy_helper.to_array(t)
            for t in plain.graph.initializer
            if t.data_type == onnx.TensorProto.FLOAT and t.dims
        }
    )
    return Study(
        bench.model,
        [(str(k), batch) for k, batch in enumerate(fed)],
        [[answer[p] for p in places] for answer in wanted],
        floats,
    ), plain


def _float(bench: Workbench) -> onnx.ModelProto | None:
    if bench.subject is None:
        return None
    try:
        if bench.subject.onnx is not None:
            return prepare(bench.subject.onnx)
        with temporary.Folder() as folder:
            export.write(bench.subject, Path(folder) / "float.onnx")
            return prepare(Path(folder) / "float.onnx")
    except OnnxproofError:
        return None


def granted(
    found: Study, model: onnx.ModelProto | None, *, policy: Policy, what: str, fix: str
) -> Tried | str:
    """The cause is proven when the candidate with this one change is as good as a healthy quantized model is."""
    if found.said >= policy.drift_db:
        return f"with {found.said:.1f} dB the graph is as good as healthy quantized models are"
    if model is None:
        return "there is nothing to change"
    after = found.level(model)
    recovered = gain(found.said, after)
    if recovered < LEAST_DB:
        return f"it would recover {recovered:.1f} dB"
    healed = after >= policy.drift_db
    return Tried(
        proven=healed,
        after=10 ** (-after / 20),
        model=model if healed else None,
        evidence=f"{what}: {found.said:.1f} dB become {after:.1f} dB",
        fix=Fix(kind="graph", what=fix),
    )


def requantized(bench: Workbench, found: Study, *recipes: str) -> onnx.ModelProto | None:
    """The reference quantized anew on the study's data, with the recipes that the cause calls for."""
    from onnxproof.quantization import recipes as known
    from onnxproof.quantization.schemes import u8s8
    from onnxproof.quantization.tuning import arrange
    from onnxproof.quantization.workbench import answers, restated

    plain = float_graph(bench)
    if plain is None or {v.name for v in plain.graph.input} - {
        t.name for t in plain.graph.initializer
    } != set(found.samples[0][1]):
        return None
    made, _ = arrange(
        Bench(
            model=plain,
            stats=restated(plain, found.samples),
            plan=u8s8.PLAN.with_(calibrator="min-max"),
            samples=found.samples,
            answers=answers(plain, found.samples),
        ),
        frozenset(),
    )
    for name in recipes:
        applied = known.load(name).apply(made)
        if not isinstance(applied, str):
            other = made.took(applied)
            made = other if other.score.better(made.score) else made
    return made.quantized


def waterfall(bench: Workbench) -> tuple[Share, ...]:
    """Where the error of a quantized candidate comes from; empty for others."""
    found = study(bench)
    return () if isinstance(found, str) else tuple(found.waterfall())
