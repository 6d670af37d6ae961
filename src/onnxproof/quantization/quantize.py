"""`onnxproof.quantize`: a float model in, a quantized file with its proof out; nothing is written before it is whole."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import onnx

from onnxproof.errors import InputError, UsageError
from onnxproof.exporter import export
from onnxproof.inputs.user_data import opened
from onnxproof.onnxmodel import onnx_file
from onnxproof.options import Policy
from onnxproof.quantization import schemes
from onnxproof.quantization.calibration import batches, data_quality, data_trust, images
from onnxproof.quantization.calibration.calibration_pass import Pass
from onnxproof.quantization.calibration.observe import HELD_OUT, is_held_out, observe
from onnxproof.quantization.calibration.observer import Observer
from onnxproof.quantization.calibration.range_coverage import examine as examine_ranges
from onnxproof.quantization.calibration.range_coverage import measure_coverage
from onnxproof.quantization.calibration.ranges import calibrator
from onnxproof.quantization.evaluation import Evaluator
from onnxproof.quantization.float_graph import prepare
from onnxproof.quantization.kernel_report import count_kernels, latencies
from onnxproof.quantization.paired_metric import Outcome
from onnxproof.quantization.result import Quantized
from onnxproof.quantization.scoring import Score, compare, compute_outputs
from onnxproof.quantization.stage_errors import measure_stages
from onnxproof.quantization.trial_cache import TrialCache
from onnxproof.quantization.trials import QuantizationTrials
from onnxproof.quantization.tuning import RECIPES, arrange, front, tune
from onnxproof.quantization.tuning_state import (
    Budget,
    Tuning,
    deadline_after,
    judge_sqnr,
    single_sample,
)
from onnxproof.reference import subject
from onnxproof.results import Finding
from onnxproof.results.proof import Proof
from onnxproof.system import temporary, writing
from onnxproof.verification import run as prove

_KEPT = 512
"""Samples that are kept in memory for judging."""
_NEEDS_NO_DATA = ("w8", "w4", "dynamic", "fp16", "bf16")
_PROOF_S = 20.0


def quantize(
    model: Any,
    path: str | Path,
    *,
    calibration: Any = None,
    evaluate: Any = None,
    budget: Budget | float | None = None,
    scheme: str = "u8s8",
    calibrator: str = "min-max",
    recipes: Sequence[str] = RECIPES,
    exclude: Sequence[str] = (),
    example_inputs: Any = None,
    dynamic_shapes: Any = None,
    data: Any = None,
    backends: Sequence[str] = ("ort",),
    policy: Policy | None = None,
    cache: str | Path | None = None,
    target: str = "",
    preprocess: Any = None,
    proof_s: float = _PROOF_S,
    seed: int = 0,
    progress: prove.Report | None = None,
) -> Quantized:
    """Quantize a model, tune it to a budget, and prove what it costs.

    `budget` is a `Budget`, or the largest drop of the metric as a number. `evaluate` is a function of `predict`, or (inputs, labels).
    `preprocess` makes inputs of an image, where `calibration` is a folder of image files and the model does not take pixels.

    >>> import onnxproof
    >>> result = onnxproof.quantize("model.onnx", "model.int8.onnx", calibration="calib.npz")      # doctest: +SKIP
    >>> result.score.sqnr_db, result.verdict                                                       # doctest: +SKIP
    """
    budget = budget if isinstance(budget, Budget) else Budget(max_drop=budget)
    found = subject.load(model, example_inputs, dynamic_shapes=dynamic_shapes, data=data)
    found = replace(found, data=opened(found.data))
    job = _Job(
        found,
        Path(path),
        scheme,
        calibrator,
        tuple(recipes),
        tuple(exclude),
        budget,
        None if cache is None else Path(cache),
        progress,
        target,
        preprocess,
        proof_s,
    )
    return job.run(calibration, evaluate, tuple(backends), policy, seed)


@dataclass
class _Job:
    subject: subject.Subject
    path: Path
    scheme: str
    calibrator: str
    recipes: tuple[str, ...]
    exclude: tuple[str, ...]
    budget: Budget
    cache: Path | None
    progress: prove.Report | None
    target: str
    preprocess: Any
    proof_s: float

    def run(
        self,
        calibration: Any,
        evaluate: Any,
        backends: tuple[str, ...],
        policy: Policy | None,
        seed: int,
    ) -> Quantized:
        """The whole way; the output file appears at its end or not at all."""
        started = time.monotonic()
        self._started, self._trials = started, 0
        self._check(calibration, evaluate)
        with temporary.Folder() as folder:
            source = self._float(Path(folder))
            plain, ports = prepare(source), onnx_file.read(source).inputs
            evaluator = (
                None if evaluate is None else Evaluator(evaluate, ports, self.budget.confidence)
            )
            kept, seen, findings = self._data(plain, source, ports, calibration, evaluator)
            tuning = self._quantized(plain, kept, seen, evaluator)
            return self._delivered(tuning, kept, seen, findings, backends, policy, seed, started)

    def _check(self, calibration: Any, evaluate: Any) -> None:
        """Better now than after minutes of work."""
        from onnxproof.quantization import recipes as known

        schemes.load(self.scheme)
        if self.target not in ("", "avx2", "vnni"):
            raise UsageError(
                "unknown-target",
                f"there is no target `{self.target}`",
                help="say avx2 or vnni, or nothing for this CPU",
            )
        if self.calibrator != "auto":
            calibrator(self.calibrator)
        for name in self.recipes:
            known.load(name)
        if not hasattr(schemes.load(self.scheme), "PLAN") and (idle := self._idle()):
            raise UsageError(
                "option-does-nothing",
                f"`{idle}` does nothing under the scheme `{self.scheme}`",
                help="leave it out, or use u8s8, s8s8 or a16w8",
            )
        if calibration is None and self.scheme not in _NEEDS_NO_DATA:
            raise InputError(
                "no-calibration-data",
                f"the scheme `{self.scheme}` needs calibration data",
                help="give a few hundred inputs, as they are served: "
                f"`--calibration PATH`; or use a scheme without: {', '.join(_NEEDS_NO_DATA)}",
            )
        if self.budget.max_drop is not None and evaluate is None:
            raise UsageError(
                "no-evaluator",
                "a largest drop needs a metric to drop",
                help="give `--evaluate eval.py:accuracy`, or leave `--max-drop` out",
            )
        writing.check(self.path, what="the model", regular=True)
        if self.subject.onnx is not None and self.subject.onnx.resolve() == self.path.resolve():
            raise UsageError(
                "would-overwrite",
                f"`{self.path}` is the model that is being quantized",
                help="give another name to -o",
            )

    def _idle(self) -> str:
        """The first option that only schemes with Q/DQ and ranges know."""
        said = {
            "exclude": bool(self.exclude),
            "recipe": self.recipes not in ((), RECIPES),
            "calibrator": self.calibrator not in ("auto", "min-max"),
            "target": bool(self.target),
        }
        return next((name for name, given in said.items() if given), "")

    def _float(self, folder: Path) -> Path:
        if self.subject.onnx is not None:
            return self.subject.onnx
        self._tell("export")
        export.write(self.subject, folder / "float.onnx")
        return folder / "float.onnx"

    def _data(
        self,
        plain: onnx.ModelProto,
        source: Path,
        ports: Any,
        calibration: Any,
        evaluator: Evaluator | None,
    ) -> "tuple[_Kept, Pass | None, list[Finding]]":
        """One pass over the data; the first samples stay. Wrong data is found here, before a model is made of it."""
        if calibration is None:
            return (
                _Kept(tuned=list(batches.split_batches(_example(self.subject, ports), ports))),
                None,
                [],
            )
        kept, guessed = _Kept(), list[Finding]()
        if images.are_images(calibration):
            function = (
                subject.function(self.preprocess)
                if isinstance(self.preprocess, str)
                else self.preprocess
            )
            calibration, guessed = images.read(
                calibration, ports, function, _example(self.subject, ports, quiet=True)
            )
        elif self.preprocess is not None:
            raise UsageError(
                "option-does-nothing",
                "`preprocess` does nothing: the calibration data is no folder of images",
                help="leave it out",
            )
        stream, few = batches.divide_few_batches(
            batches.require_batches(batches.split_batches(calibration, ports), what="calibration"),
            ports,
            HELD_OUT,
        )
        seen = observe(
            Observer(plain),
            kept.keeping(stream, few),
            batch_count=few,
            cache=self._beside("calibration.npz"),
            report_progress=lambda what, count: self._tell(f"{what}: {count} samples"),
        )
        findings = data_trust.examine(
            self.subject,
            plain,
            source,
            seen,
            [*kept.tuned, *kept.held],
            _example(self.subject, ports, quiet=True),
        )
        served = (
            evaluator.inputs()
            if evaluator is not None
            else list(batches.split_batches(self.subject.data, ports))
            if self.subject.data is not None
            else []
        )
        for name in served[0][1] if served else ():
            if served[0][1][name].dtype.kind == "f":
                off = (
                    data_quality.check_scale(
                        name,
                        seen.merged_statistics()[name],
                        served[0][1][name],
                        "the data it is evaluated on",
                    )
                    if name in seen.merged_statistics()
                    else []
                )
                if off:
                    raise InputError(
                        "calibration-mismatch",
                        off[0].what,
                        notes=["nothing was written"],
                        help=off[0].help,
                    )
        return kept, seen, [*guessed, *findings]

    def _quantized(
        self, plain: onnx.ModelProto, kept: "_Kept", seen: Pass | None, evaluator: Evaluator | None
    ) -> Tuning:
        scheme = schemes.load(self.scheme)
        stats = {} if seen is None else seen.range_statistics()
        trial_cache = TrialCache(self._beside("trials.jsonl"), kept.tuned)
        base = getattr(scheme, "PLAN", None)
        from onnxproof.quantization.insert_qdq import Plan

        plan = (base or Plan()).with_(
            calibrator="min-max" if self.calibrator == "auto" else self.calibrator
        )
        trials = QuantizationTrials(
            model=plain,
            stats=stats,
            plan=plan,
            samples=kept.tuned,
            reference_outputs=compute_outputs(plain, kept.tuned),
            trial_cache=trial_cache,
            report_progress=self._tell,
            target=self.target,
            deadline=deadline_after(self.budget.seconds),
        )
        tuning = Tuning(trials=trials, evaluator=evaluator, plain=plain, budget=self.budget)
        if base is None:
            trials.quantized = scheme.build(plain, stats)
            trials.score = trials.score_model(trials.quantized)
            tuning.points.append((self.scheme, trials.quantized, trials.score.sqnr_db))
            return tuning
        unknown = sorted(set(self.exclude) - {node.name for node in plain.graph.node})
        if unknown:
            raise UsageError(
                "unknown-node",
                f"`--exclude {unknown[0]}` names no node of the simplified graph",
                notes=[f"it has {', '.join(node.name for node in list(plain.graph.node)[:8])} ..."],
            )
        tuning.trials, tuning.points = arrange(trials, frozenset(self.exclude))
        return tune(tuning, self.recipes)

    def _delivered(
        self,
        tuning: Tuning,
        kept: "_Kept",
        seen: Pass | None,
        findings: list[Finding],
        backends: tuple[str, ...],
        policy: Policy | None,
        seed: int,
        started: float,
    ) -> Quantized:
        """Write a draft, prove it, and only then give it its name."""
        made, plain = tuning.trials.quantized, tuning.plain
        held = kept.unseen() if seen is not None else kept.tuned
        ranges = measure_coverage(made, kept.held or kept.tuned, tuning.trials.model)
        findings = [
            *findings,
            *(
                examine_ranges(
                    ranges,
                    measure_coverage(made, kept.tuned, tuning.trials.model) if kept.held else None,
                )
                if seen is not None
                else []
            ),
        ]
        with writing.replacing(self.path, what="the model") as draft:
            onnx.save(made, draft)
            self._tell("proof")
            proof = replace(self._proof(draft, held, backends, policy, seed), ranges=ranges)
            if seen is not None:
                findings = data_trust.weigh_findings(findings, proof, self.subject)
            proof = data_trust.judge_with_doubts(
                proof, findings
            )  # the verdict is whole before the file gets its name
            entries = measure_stages(self.subject, plain, draft, held, backends)
        sample = single_sample(tuning.trials)
        times = latencies([plain, made], sample)
        score = _score(plain, made, held)
        outcome = (
            tuning.outcome() if self.budget.max_drop is not None else judge_sqnr(score, self.budget)
        )  # what tuning saw is no judge of itself
        met = outcome is Outcome.SHOWN and (
            self.budget.max_latency is None or times[1] <= self.budget.max_latency
        )
        metric = tuning.metric or (
            tuning.evaluator.compare(plain, made) if tuning.evaluator is not None else None
        )
        trial_cache = tuning.trials.trial_cache
        return Quantized(
            path=self.path,
            scheme=self.scheme,
            proof=proof,
            score=score,
            metric=metric,
            budget=self.budget,
            met=met,
            outcome=outcome,
            samples=seen.samples if seen is not None else 0,
            steps=tuple(tuning.steps),
            front=tuple(front(tuning.points, sample, tuning.evaluator, plain)),
            stages=tuple(entries),
            kernels=count_kernels(self.path),
            findings=tuple(findings),
            float_size=plain.ByteSize(),
            size=made.ByteSize(),
            float_latency_s=times[0],
            latency_s=times[1],
            kept_float=tuning.kept_float,
            tried=trial_cache.tried if trial_cache else 0,
            recalled=trial_cache.recalled if trial_cache else 0,
            seconds=time.monotonic() - started,
        )

    def _proof(
        self,
        draft: Path,
        held: list[batches.Batch],
        backends: tuple[str, ...],
        policy: Policy | None,
        seed: int,
    ) -> Proof:
        given = (
            self.subject.data
            if self.subject.data is not None
            else [tuple(batch.values()) for _, batch in held]
        )
        proof = prove.verify(
            replace(self.subject, data=given),
            draft,
            backends=backends,
            policy=policy,
            budget_s=self.proof_s,
            seed=seed,
            explain=False,
        )
        return replace(
            proof, candidate=str(self.path), replay=proof.replay.replace(str(draft), str(self.path))
        )

    def _beside(self, name: str) -> Path | None:
        if self.cache is None:
            return None
        with writing.refusals(self.cache, "the cache"):
            self.cache.mkdir(parents=True, exist_ok=True)
        return self.cache / name

    def _tell(self, what: str) -> None:
        if self.progress is not None:
            self._trials += 1
            self.progress(
                prove.Progress(
                    case=what,
                    done=self._trials,
                    elapsed=time.monotonic() - self._started,
                    budget=self.budget.seconds,
                    step="steps",
                )
            )


def _score(plain: onnx.ModelProto, made: onnx.ModelProto, held: list[batches.Batch]) -> Score:
    return compare(compute_outputs(plain, held), compute_outputs(made, held))


@dataclass(slots=True)
class _Kept:
    """The first samples, in memory: those that recipes may look at, and those that only the end does."""

    tuned: list[batches.Batch] = field(default_factory=list)
    held: list[batches.Batch] = field(default_factory=list)

    def unseen(self) -> list[batches.Batch]:
        """What quality is asked on: samples that chose no range; where there are too few to tell anything, also inputs like those that did."""
        few = (
            not self.held
            or data_quality.count_distinct([*self.tuned, *self.held]) < data_quality.FEW
        )
        return [*self.held, *(batches.perturb(self.tuned) if few else [])]

    def keeping(self, stream: Iterator[batches.Batch], few: int | None) -> Iterator[batches.Batch]:
        """Pass batches on, and keep the first."""
        count = 0
        for place, (label, batch) in enumerate(stream):
            if count < _KEPT and not any(
                a.dtype.kind == "f" and not _finite(a) for a in batch.values()
            ):
                (self.held if is_held_out(place, few) else self.tuned).append((label, batch))
                count += batches.count_samples(batch)
            yield label, batch


def _finite(array: Any) -> bool:
    import numpy as np

    return bool(np.isfinite(array).all())


def _example(found: subject.Subject, ports: Any, *, quiet: bool = False) -> Any:
    """The example inputs by the graph's names."""
    from onnxproof.reference.protocol import open_oracle
    from onnxproof.runtimes.session.execution import Clock

    if quiet and found.onnx is not None and not (found.args or found.kwargs):
        return None  # it would be made up
    example = open_oracle(found, Clock()).example()
    return dict(zip([port.name for port in ports], example.values(), strict=False))
