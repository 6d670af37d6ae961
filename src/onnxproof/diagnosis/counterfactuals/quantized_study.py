"""What the causes of a quantization loss share: the study of the candidate, and when a counterfactual counts as the cause."""

import weakref
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from onnxproof.diagnosis import limits
from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench
from onnxproof.diagnosis.judge import Counterfactual, Judgement, Standing, judge
from onnxproof.diagnosis.trial_cases import Run, TrialCase, TrialCases
from onnxproof.errors import OnnxproofError
from onnxproof.onnxmodel import large_models
from onnxproof.quantization.attribution import Study, gain
from onnxproof.quantization.float_graph import prepare
from onnxproof.quantization.pair_form import in_pair_form
from onnxproof.quantization.scoring import compare, describe_change
from onnxproof.quantization.served_samples import first_samples
from onnxproof.quantization.trials import QuantizationTrials
from onnxproof.quantization.waterfall import compute_waterfall
from onnxproof.results import Case, Fix, NoiseKind, Share, judging
from onnxproof.runtimes import ort
from onnxproof.runtimes.session.execution import Candidate, Clock, feed
from onnxproof.system import temporary
from onnxproof.verification.block_reading import keeps_blocks
from onnxproof.verification.rounded_reference import RoundedReference

_studies: "weakref.WeakKeyDictionary[Workbench, tuple[Study, onnx.ModelProto | None]]" = (
    weakref.WeakKeyDictionary()
)
Outputs = list[np.ndarray[Any, Any] | None] | None
LEAST_DB = 3.0
"""A counterfactual that recovers less is no cause."""


def study(bench: Workbench) -> Study | str:
    """The study of a quantized candidate, or why there is none."""
    gap = bench.scene.gap
    if gap is None or gap.noise_kind is not NoiseKind.SIMULATED:
        return "the file quantizes nothing that the reference does not"
    if bench not in _studies:
        plain = None
        if any(node.op_type == "DequantizeLinear" for node in bench.model.graph.node):
            plain = _float_graph(bench)  # what has no pairs is taken apart without it
        _studies[bench] = _open_study(bench, plain), plain
    return _studies[bench][0]


def float_graph(bench: Workbench) -> onnx.ModelProto | None:
    """The reference as a float graph, where it can be exported."""
    study(bench)
    return _studies[bench][1]


def _open_study(bench: Workbench, plain: onnx.ModelProto | None) -> Study:
    """The candidate with the samples that it is judged by, the reference's answers, and the float weights."""
    signature = bench.scene.signature
    items = _samples(bench)
    batches = [
        feed({name: np.asarray(array) for name, array in item.items()}, signature) for item in items
    ]
    order = [output.onnx_name for output in signature.outputs]
    places = [order.index(value.name) for value in bench.model.graph.output if value.name in order]
    answers = [bench.scene.reference.run(item) for item in items]
    return Study(
        in_pair_form(bench.model),
        [(str(place), batch) for place, batch in enumerate(batches)],
        [[answer[place] for place in places] for answer in answers],
        _float_weights(plain),
    )


def _samples(bench: Workbench) -> list[Mapping[str, Any]]:
    """The first of the user's data, or the witness."""
    scene = bench.scene
    return first_samples(bench.subject, scene.signature, scene.case.inputs)


def _float_weights(plain: onnx.ModelProto | None) -> dict[str, Any]:
    if plain is None:
        return {}
    float32 = onnx.TensorProto.FLOAT
    tensors = [t for t in plain.graph.initializer if t.data_type == float32 and t.dims]
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in tensors}


def _float_graph(bench: Workbench) -> onnx.ModelProto | None:
    if bench.subject is None:
        return None
    try:
        if bench.subject.onnx is not None:
            return prepare(bench.subject.onnx)
        if bench.means.export_float is None:
            return None
        with temporary.Folder() as folder:
            bench.means.export_float(bench.subject, Path(folder) / "float.onnx")
            return prepare(Path(folder) / "float.onnx")
    except OnnxproofError:
        return None


def granted(
    bench: Workbench, found: Study, model: onnx.ModelProto | None, *, what: str, fix: str
) -> Tried | str:
    """The cause is proven when the candidate with this one change is as good as a healthy quantized model is."""
    policy = bench.policy
    if found.graph_db >= policy.drift_db:
        return f"with {found.graph_db:.1f} dB the graph is as good as healthy quantized models are"
    if model is None:
        return "there is nothing to change"
    score = found.score(model)
    after = score.sqnr_db
    recovered = gain(found.graph_db, after)
    if recovered < LEAST_DB:
        return f"it would recover {recovered:.1f} dB"
    healed = after >= policy.drift_db
    evidence = f"{what}: {describe_change(found.graph_score, score)}"
    if not healed:
        return Tried(after=10 ** (-after / 20), evidence=evidence, fix=Fix(kind="graph", what=fix))
    judgement = judge_levels(bench, run_graph(bench, model))
    if judgement.standing is Standing.REFUTED:
        return f"{evidence}, but {judgement}"
    return Tried(
        judgement=judgement,
        model=model,
        evidence=f"{evidence}; so {judgement}",
        fix=Fix(kind="graph", what=fix),
    )


def healthy_db(bench: Workbench) -> float:
    """The level from which on a quantized graph is healthy: the policy's, or what few bits leave of the reference itself."""
    least = bench.policy.drift_db
    if not keeps_blocks(bench.model.graph):
        return least
    reference = bench.scene.reference
    rounded = RoundedReference(reference, bench.scene.file)
    levels = []
    for inputs in _samples(bench):
        answers = rounded.run(inputs)
        if answers is None:
            return least
        levels.append(compare([reference.run(inputs)], [answers]).sqnr_db)
    return min(least, *(level - judging.ROUNDING_SLACK_DB for level in levels))


def judge_levels(
    bench: Workbench,
    mended: Run,
    candidate: Run | None = None,
    outputs: Outputs = None,
    *,
    healthy: float | None = None,
) -> Judgement:
    """What the judge of causes says to a mended quantized graph: answers to ordinary inputs are right from the level of healthy quantized models on.

    The candidate is run as the workbench runs it, unless another way is given, with its answers to the witness.
    """
    if healthy is None:
        healthy = bench.policy.drift_db
    noise = 10 ** (-healthy / 20) / limits.FIXED_NOISE_RATIO
    improvement = 10 ** (LEAST_DB / 20)
    scene = replace(bench.scene, noise=noise)
    if candidate is None:
        candidate = partial(_run_candidate, bench)
        outputs = bench.candidate_outputs
    samples = [
        Case(name=f"sample {place}", group="data", about="the user's data", inputs=dict(inputs))
        for place, inputs in enumerate(_samples(bench))
    ]
    cases = TrialCases(
        witness=scene,
        run=candidate,
        failing=samples[: 2 * limits.MOST_CASES_OF_A_KIND],
        space=bench.cases.space,
        deadline=bench.deadline,
        least_noise=noise,
        improvement=improvement,
        data=samples[0].inputs,
    )

    def error(case: TrialCase) -> float:
        return case.scene.error(mended(case.inputs))

    before = scene.error(outputs)
    witness = TrialCase(scene=scene, outputs=outputs, before=before, improvement=improvement)
    return judge(Counterfactual(error=error, in_reference=False), witness, cases)


def judge_on_backend(
    bench: Workbench, candidate: onnx.ModelProto, mended: onnx.ModelProto
) -> Judgement:
    """The same with both graphs on the backend that showed the fault."""
    scene = bench.scene
    with temporary.Folder() as folder:
        runs = []
        for name, model in (("candidate", candidate), ("mended", mended)):
            path = Path(folder) / f"{name}.onnx"
            large_models.save(model, path)
            served = Candidate(scene.backend, path, scene.signature, Clock())
            runs.append(partial(_run, served))
        return judge_levels(bench, runs[1], runs[0], runs[0](scene.case.inputs))


def run_graph(bench: Workbench, model: onnx.ModelProto) -> Run:
    """A graph of the study, run as it says itself: without optimisation."""
    session = ort.open_model(model, "disabled")
    scene = bench.scene
    candidate = Candidate(scene.backend, scene.path, scene.signature, Clock(), session=session)
    return partial(_run, candidate)


def _run(candidate: Candidate, inputs: Mapping[str, Any]) -> Outputs:
    try:
        return candidate.run(inputs)
    except OnnxproofError:
        return None


def _run_candidate(bench: Workbench, inputs: Mapping[str, Any]) -> Outputs:
    return bench.run(inputs=inputs)


def requantized(bench: Workbench, found: Study, *recipes: str) -> onnx.ModelProto | None:
    """The reference quantized anew on the study's data, with the recipes that the cause calls for."""
    from onnxproof.quantization import recipes as known
    from onnxproof.quantization.schemes import u8s8
    from onnxproof.quantization.scoring import compute_outputs
    from onnxproof.quantization.trials import recompute_statistics
    from onnxproof.quantization.tuning import arrange

    plain = float_graph(bench)
    if plain is None or {v.name for v in plain.graph.input} - {
        t.name for t in plain.graph.initializer
    } != set(found.samples[0][1]):
        return None
    made, _ = arrange(
        QuantizationTrials(
            model=plain,
            stats=recompute_statistics(plain, found.samples),
            plan=u8s8.PLAN.with_(calibrator="min-max"),
            samples=found.samples,
            reference_outputs=compute_outputs(plain, found.samples),
        ),
        frozenset(),
    )
    for name in recipes:
        applied = known.load(name).apply(made)
        if not isinstance(applied, str):
            other = made.with_applied(applied)
            made = other if other.score.better(made.score) else made
    return made.quantized


def waterfall(bench: Workbench) -> tuple[Share, ...]:
    """Where the error of a quantized candidate comes from; empty for others."""
    found = study(bench)
    return () if isinstance(found, str) else tuple(compute_waterfall(found))
