"""What a worker does with one model: the manifest's keys become a call of the api, and the proof a plain answer."""

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxproof.errors import OnnxproofError
from onnxproof.options import ExportOptions, Input, Policy, Serving
from onnxproof.suite.job import Job

if TYPE_CHECKING:
    from onnxproof.results.proof import Proof
    from onnxproof.verification.progress import Progress

Report = Callable[["Progress"], None]
_LONGEST_NAME = 100
"""Characters of a file name that is made of a model's."""


def usual_seconds(do: str) -> dict[str, float]:
    """Seconds that bound a model's work where its manifest says nothing."""
    if do == "quantize":
        return {"budget_s": 20.0, "tuning_s": 120.0}
    return {"budget_s": 60.0}


def execute(job: Job, scratch: Path, keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Run it here and now; what it raises on purpose is part of the answer.

    `keep` gets the answer as it stands when explaining begins, which runs native code on wrong arguments: a process that ends there has its verdict.
    """
    begun = time.perf_counter()

    def keep_early(state: "Progress") -> None:
        if state.proof is not None:
            proof = _with_baseline(replace(job, update_baseline=False), state.proof)
            keep(describe(proof) | {"duration_s": time.perf_counter() - begun})

    try:
        proof = _DO[job.values.get("do", "verify")](job, scratch, keep_early)
        proof = _with_baseline(job, proof)
    except OnnxproofError as why:
        answer: dict[str, Any] = {"verdict": "error", "error": why.render(), "summary": why.what}
    else:
        answer = describe(proof)
    return answer | {"duration_s": time.perf_counter() - begun}


def describe(proof: "Proof") -> dict[str, Any]:
    """The parts of a proof that a suite keeps apart, and the proof itself."""
    from onnxproof.report.writers import json
    from onnxproof.verification import baseline

    ratios = baseline.of(proof).outputs
    cause = ""
    if proof.causes:
        cause = proof.causes[0].code
    return {
        "verdict": proof.verdict.value,
        "passed": proof.passed,
        "backends": list(proof.backends),
        "noise_ratio": max(ratios.values(), default=None),
        "quality": proof.quality(),
        "measures": [_measure(proof, backend, ratios) for backend in proof.backends],
        "error": proof.error,
        "summary": proof.sentence(),
        "cause": cause,
        "proof": json.to_dict(proof),
    }


def _measure(
    proof: "Proof", backend: str, ratios: Mapping[tuple[str, str], float]
) -> dict[str, Any]:
    from onnxproof.results import judging

    gaps = tuple(gap for gap in proof.gaps if gap.backend == backend)
    notes = tuple(note for note in proof.notes if note.backend == backend)
    verdict = proof.verdict
    if len(proof.backends) > 1 and not proof.error:
        verdict = judging.judge(gaps, proof.policy, notes=notes, findings=())
    passes = proof.passes.get(backend, 0)
    latency = None
    if passes:
        latency = proof.seconds.get(backend, 0.0) / passes * 1e3
    return {
        "backend": backend,
        "verdict": verdict.value,
        "noise_ratio": max((r for (name, _), r in ratios.items() if name == backend), default=None),
        "quality": replace(proof, gaps=gaps).quality(),
        "latency_ms": latency,
    }


def _with_baseline(job: Job, proof: "Proof") -> "Proof":
    from onnxproof.verification import baseline

    path = job.values.get("baseline")
    if path is None:
        return proof
    if job.update_baseline:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        return baseline.update(proof, path)
    return baseline.check(proof, path)


def _verify(job: Job, scratch: Path, report: Report) -> "Proof":
    from onnxproof.api import verify

    return verify(
        _subject(job.values),
        job.values["file"],
        dynamic_shapes=_dynamic(job.values),
        pipeline=job.values.get("pipeline"),
        data=job.values.get("data"),
        **_verification(job, report),
    )


def _diff(job: Job, scratch: Path, report: Report) -> "Proof":
    from onnxproof.api import diff

    return diff(
        _subject(job.values),
        job.values["file"],
        data=job.values.get("data"),
        **_verification(job, report),
    )


def _export(job: Job, scratch: Path, report: Report) -> "Proof":
    from onnxproof.api import export

    values = job.values
    options = ExportOptions(
        dynamic=_dynamic(values) or {},
        static={name: tuple(axes) for name, axes in values.get("static", {}).items()},
        opset=values.get("opset"),
        precision=values.get("precision"),
        external_data=values.get("external_data"),
        optimize=values.get("optimize"),
        pipeline=values.get("pipeline"),
        with_cache=values.get("with_cache", False),
    )
    return export(
        _subject(values),
        None,
        values.get("file", _dropped(job, scratch)),
        options=options,
        data=values.get("data"),
        **_verification(job, report),
    )


def _replay(job: Job, scratch: Path, report: Report) -> "Proof":
    from onnxproof.api import replay

    values = job.values
    return replay(
        values["subject"],
        model=values.get("file"),
        backends=tuple(values.get("backends", ("ort",))),
        policy=lambda base: policy(values, base),
        only=tuple(values.get("cases", ())),
        serving=_serving(job),
        allow_other_model=values.get("allow_other_model", False),
    )


def _quantize(job: Job, scratch: Path, report: Report) -> "Proof":
    from onnxproof.api import quantize
    from onnxproof.quantization.tuning_state import Budget

    values = job.values
    chosen = {name: values[name] for name in ("scheme", "exclude", "target") if name in values}
    seconds = {**usual_seconds("quantize"), **values}
    budget = Budget(max_drop=values.get("max_drop"), seconds=seconds["tuning_s"])
    result = quantize(
        _subject(values),
        values.get("file", _dropped(job, scratch)),
        calibration=values.get("calibration"),
        evaluate=values.get("evaluate"),
        budget=budget,
        data=values.get("data"),
        dynamic_shapes=_dynamic(values),
        calibrator=values.get("calibrator", "auto"),
        backends=tuple(values.get("backends", ("ort",))),
        policy=policy(values),
        seed=values.get("seed", 0),
        proof_s=seconds["budget_s"],
        **chosen,
    )
    return result.proof


def _dropped(job: Job, scratch: Path) -> Path:
    """Where a file goes that nobody named: messages call it by the model's name."""
    return scratch / f"{re.sub(r'[^A-Za-z0-9._-]+', '-', job.name)[:_LONGEST_NAME]}.onnx"


_DO: dict[str, Callable[[Job, Path, Report], "Proof"]] = {
    "verify": _verify,
    "diff": _diff,
    "export": _export,
    "replay": _replay,
    "quantize": _quantize,
}


def _subject(values: Mapping[str, Any]) -> Any:
    """The reference as the api takes it: its words, or a subject where more was said."""
    from onnxproof.reference.subject import Subject

    said = Subject(
        source=values["subject"],
        trust_remote_code=values.get("trust_remote_code", False),
        arguments=values.get("set", {}),
        config=values.get("config"),
        weights=values.get("weights"),
        inputs={name: _input(table) for name, table in values.get("inputs", {}).items()},
        dims=values.get("dims", {}),
    )
    if said == Subject(source=values["subject"]):
        return values["subject"]
    return said


def _input(table: Mapping[str, Any]) -> Input:
    lists: dict[str, Any] = {name: tuple(value) for name, value in table.items() if name != "dtype"}
    return Input(dtype=table.get("dtype", ""), **lists)


def _dynamic(values: Mapping[str, Any]) -> dict[str, dict[int, str]] | None:
    tables = values.get("dynamic", {})
    shapes = {name: {int(axis): dim for axis, dim in dims.items()} for name, dims in tables.items()}
    return shapes or None


def _verification(job: Job, report: Report) -> dict[str, Any]:
    """The keywords that `verify`, `diff` and `export` share."""
    values = job.values
    loop = values.get("loop", "auto")
    return {
        "backends": tuple(values.get("backends", ("ort",))),
        "policy": policy(values),
        "budget_s": values.get("budget_s", usual_seconds("verify")["budget_s"]),
        "seed": values.get("seed", 0),
        "explain": values.get("explain", True),
        "only": tuple(values.get("cases", ())),
        "serving": _serving(job),
        "target": values.get("target", ""),
        "loop": None if loop is False else loop,
        "steps": values.get("steps"),
        "progress": report,
    }


def _serving(job: Job) -> Serving:
    values = job.values
    usual = Serving()
    return Serving(
        isolate=values.get("isolate"),
        allow_fallback=values.get("allow_fallback", False),
        time_s=values.get("pass_limit_s", usual.time_s),
        threads=job.cores,
    )


def policy(values: Mapping[str, Any], base: Policy | None = None) -> Policy:
    """The policy of a model: the base with what the manifest says."""
    base = base or Policy()
    said = dict(values.get("policy", {}))
    domain = said.pop("domain", None)
    if domain == "finite":
        said["domains"] = ()
    elif domain == "all":
        said["domains"] = Policy().domains
    if "noise_limit" in said:  # the others keep their proportion to it, as on the command line
        times = said["noise_limit"] / base.noise_limit
        for name in ("worst_limit", "bias_limit"):
            said.setdefault(name, times * getattr(base, name))
    if "strict" in values:
        said["strict"] = values["strict"]
    return replace(base, **said)
