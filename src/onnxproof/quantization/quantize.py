"""A float model in, a quantized file with its proof out; nothing is written before it is whole."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnx

from onnxproof.errors import UsageError
from onnxproof.inputs.user_data import open_data
from onnxproof.onnxmodel import large_models, onnx_file
from onnxproof.options import QuantizeOptions, VerifyOptions
from onnxproof.quantization import schemes
from onnxproof.quantization.blockwise import side_by_side
from onnxproof.quantization.blockwise.search import block_fields, judge_held
from onnxproof.quantization.calibration import batches, data_quality, data_trust, images, texts
from onnxproof.quantization.calibration.observe import HELD_OUT, observe
from onnxproof.quantization.calibration.observer import Observer
from onnxproof.quantization.calibration.range_coverage import examine as examine_ranges
from onnxproof.quantization.calibration.range_coverage import measure_coverage
from onnxproof.quantization.calibration.samples import Samples, example_inputs
from onnxproof.quantization.evaluation import Evaluator
from onnxproof.quantization.float_graph import prepare
from onnxproof.quantization.kernel_report import count_kernels
from onnxproof.quantization.paired_metric import Outcome
from onnxproof.quantization.requirements import check
from onnxproof.quantization.result import Quantized
from onnxproof.quantization.scoring import compare, compute_outputs
from onnxproof.quantization.speed_report import SpeedQuestion, explain_speed, measure_speed
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
from onnxproof.reference.subject import Subject
from onnxproof.results import Finding
from onnxproof.results.proof import Proof
from onnxproof.system import temporary, writing
from onnxproof.verification.progress import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What is quantized: the model, the data, and the stages above that this one is handed."""

    subject: Subject
    calibration: Any
    evaluate: Any
    export: Callable[[Subject, Path], object]
    """Writes a module as a float ONNX file."""
    verify: Callable[[Subject, Path, VerifyOptions], Proof]
    """Proves the quantized file."""


def quantize(
    source: Source, path: Path, options: QuantizeOptions, budget: Budget | float | None
) -> Quantized:
    """The whole way; the output file appears at its end or not at all."""
    if not isinstance(budget, Budget):
        budget = Budget(max_drop=budget)
    data = open_data(source.subject.data)
    source = replace(source, subject=replace(source.subject, data=data))
    return _Job(source, path, options, budget).run()


class _Job:
    """One quantization."""

    def __init__(
        self, source: Source, path: Path, options: QuantizeOptions, budget: Budget
    ) -> None:
        self._source, self._path, self._options, self._budget = source, path, options, budget
        self._subject = source.subject
        self._recipes = RECIPES if options.recipes is None else options.recipes
        self._started, self._trials = time.monotonic(), 0

    def run(self) -> Quantized:
        """Check, pass over the data, quantize and tune, then write, prove and deliver."""
        options = self._options
        check(self._source.calibration, self._source.evaluate, options, self._budget)
        self._check_path()
        with temporary.Folder() as folder:
            float_path = self._float_file(Path(folder))
            plain, ports = prepare(float_path), onnx_file.read(float_path).inputs
            evaluator = None
            if self._source.evaluate is not None:
                evaluator = Evaluator(self._source.evaluate, ports, self._budget.confidence)
            samples = self._pass_over_data(plain, float_path, ports, evaluator)
            tuning = self._quantized(plain, samples, evaluator)
            return self._delivered(tuning, samples)

    def _check_path(self) -> None:
        """Better now than after minutes of work."""
        writing.check(self._path, what="the model", regular=True)
        float_path = self._subject.onnx
        if float_path is not None and float_path.resolve() == self._path.resolve():
            raise UsageError(
                "would-overwrite",
                f"`{self._path}` is the model that is being quantized",
                help="give another name to -o",
            )

    def _float_file(self, folder: Path) -> Path:
        if self._subject.onnx is not None:
            return self._subject.onnx
        self._announce("export")
        self._source.export(self._subject, folder / "float.onnx")
        return folder / "float.onnx"

    def _pass_over_data(
        self, plain: onnx.ModelProto, float_path: Path, ports: Any, evaluator: Evaluator | None
    ) -> Samples:
        """One pass over the data; wrong data is found here, before a model is made of it."""
        calibration = self._source.calibration
        if self._options.text is not None:
            folder = self._subject.onnx.parent if self._subject.onnx is not None else None
            calibration = texts.read_text(
                self._options.text, self._options.tokenizer, ports, folder
            )
        if calibration is None:
            example = example_inputs(self._subject, ports)
            return Samples(tuned=list(batches.split_batches(example, ports)))
        calibration, findings = self._from_images(calibration, ports)
        peeked = batches.require_batches(
            batches.split_batches(calibration, ports), what="calibration"
        )
        stream, few = batches.divide_few_batches(peeked, ports, HELD_OUT)
        samples = Samples()
        seen = observe(
            Observer(plain),
            samples.keeping(stream, few),
            batch_count=few,
            cache=self._cache_file("calibration.npz"),
            report_progress=lambda what, count: self._announce(f"{what}: {count} samples"),
        )
        findings += data_trust.examine(
            self._subject,
            plain,
            float_path,
            seen,
            [*samples.tuned, *samples.held],
            example_inputs(self._subject, ports, quiet=True),
        )
        data_quality.refuse_other_scale(seen, self._first_served(ports, evaluator))
        samples.seen, samples.findings = seen, findings
        return samples

    def _from_images(self, calibration: Any, ports: Any) -> tuple[Any, list[Finding]]:
        """The calibration data; images become inputs, with findings where their preparation was guessed."""
        preprocess = self._options.preprocess
        if not images.are_images(calibration):
            if preprocess is not None:
                raise UsageError(
                    "option-does-nothing",
                    "`preprocess` does nothing: the calibration data is no folder of images",
                    help="leave it out",
                )
            return calibration, []
        if isinstance(preprocess, str):
            preprocess = subject.function(preprocess)
        example = example_inputs(self._subject, ports, quiet=True)
        return images.read(calibration, ports, preprocess, example)

    def _first_served(self, ports: Any, evaluator: Evaluator | None) -> Any:
        """The first batch of the data that the model is evaluated on, or nothing."""
        served: list[batches.Batch] = []
        if evaluator is not None:
            served = evaluator.inputs()
        elif self._subject.data is not None:
            served = list(batches.split_batches(self._subject.data, ports))
        return served[0][1] if served else {}

    def _quantized(
        self, plain: onnx.ModelProto, samples: Samples, evaluator: Evaluator | None
    ) -> Tuning:
        from onnxproof.quantization.insert_qdq import Plan

        options = self._options
        scheme = schemes.load(options.scheme)
        stats = samples.seen.range_statistics() if samples.seen is not None else {}
        base = getattr(scheme, "PLAN", None)
        method = "min-max" if options.calibrator == "auto" else options.calibrator
        trials = QuantizationTrials(
            model=plain,
            stats=stats,
            plan=(base or Plan()).with_(calibrator=method),
            samples=samples.tuned,
            reference_outputs=compute_outputs(plain, samples.tuned),
            trial_cache=TrialCache(self._cache_file("trials.jsonl"), samples.tuned),
            report_progress=self._announce,
            target=options.target,
            deadline=deadline_after(self._budget.seconds),
        )
        tuning = Tuning(trials=trials, evaluator=evaluator, plain=plain, budget=self._budget)
        if hasattr(scheme, "search"):
            self._require_nodes(plain)
            excluded = frozenset(options.exclude)
            return scheme.search(tuning, excluded, has_data=samples.seen is not None)  # type: ignore[no-any-return]
        if base is None:
            trials.quantized = scheme.build(plain, stats)
            trials.score = trials.score_model(trials.quantized)
            tuning.points.append((options.scheme, trials.quantized, trials.score.sqnr_db))
            return tuning
        self._require_nodes(plain)
        tuning.trials, tuning.points = arrange(trials, frozenset(options.exclude))
        return tune(tuning, self._recipes)

    def _require_nodes(self, plain: onnx.ModelProto) -> None:
        """Nodes that shall stay float must be there."""
        names = [node.name for node in plain.graph.node]
        unknown = sorted(set(self._options.exclude) - set(names))
        if unknown:
            raise UsageError(
                "unknown-node",
                f"`--exclude {unknown[0]}` names no node of the simplified graph",
                notes=[f"it has {', '.join(names[:8])} ..."],
            )

    def _delivered(self, tuning: Tuning, samples: Samples) -> Quantized:
        """Write a draft, prove it, and only then give it its name: the verdict is whole before."""
        quantized, plain = tuning.trials.quantized, tuning.plain
        held = samples.tuned if samples.seen is None else samples.unseen()
        ranges = measure_coverage(quantized, samples.held or samples.tuned, tuning.trials.model)
        findings = [*samples.findings, *self._range_findings(tuning, samples, ranges)]
        with writing.replace_file(self._path, what="the model") as draft:
            large_models.save(quantized, draft)
            self._announce("proof")
            proof = replace(self._proof(draft, held), ranges=ranges, **block_fields(tuning))
            if samples.seen is not None:
                findings = data_trust.weigh_findings(findings, proof, self._subject)
            proof = data_trust.judge_with_doubts(proof, findings)
            backends = self._options.backends
            entries = measure_stages(self._subject, plain, draft, held, backends)
        sample = single_sample(tuning.trials)
        speed = measure_speed(plain, quantized, sample)
        census = count_kernels(self._path)
        findings += explain_speed(
            SpeedQuestion(
                speed=speed,
                scheme=self._options.scheme,
                plain=plain,
                quantized=quantized,
                census=census,
                batch=sample,
            )
        )
        score = compare(compute_outputs(plain, held), compute_outputs(quantized, held))
        outcome = judge_sqnr(score, self._budget)  # what tuning saw is no judge of itself
        blockwise = tuning.blockwise
        if blockwise is not None:
            blockwise, outcome = judge_held(blockwise, tuning, held, outcome)
            self._announce("texts side by side")
            decode = side_by_side.decoder(self._tokenizer())
            proof = replace(proof, texts=side_by_side.write_both(plain, quantized, held, decode))
        if self._budget.max_drop is not None:
            outcome = tuning.outcome()
        within = self._budget.allows(speed.quantized_s, quantized.ByteSize())
        metric = tuning.metric
        if not metric and tuning.evaluator is not None:
            metric = tuning.evaluator.compare(plain, quantized)
        cache = tuning.trials.trial_cache
        return Quantized(
            path=self._path,
            scheme=self._options.scheme,
            proof=proof,
            score=score,
            metric=metric,
            budget=self._budget,
            met=outcome is Outcome.SHOWN and within,
            outcome=outcome,
            samples=samples.seen.samples if samples.seen is not None else 0,
            steps=tuple(tuning.steps),
            front=tuple(front(tuning.points, sample, tuning.evaluator, plain)),
            ledger=tuple(entries),
            census=census,
            findings=tuple(findings),
            float_size=plain.ByteSize(),
            size=quantized.ByteSize(),
            float_latency_s=speed.float_s,
            latency_s=speed.quantized_s,
            speed=speed,
            kept_float=tuning.kept_float,
            blockwise=blockwise,
            tried=cache.tried if cache else 0,
            recalled=cache.recalled if cache else 0,
            seconds=time.monotonic() - self._started,
        )

    def _tokenizer(self) -> Path | None:
        """The file by which a text was read; None where the data were token ids."""
        if self._options.text is None:
            return None
        folder = self._subject.onnx.parent if self._subject.onnx is not None else None
        return texts.find_tokenizer(self._options.tokenizer, folder)

    def _range_findings(self, tuning: Tuning, samples: Samples, ranges: Any) -> list[Finding]:
        """How the ranges fit data that did not choose them; nothing where no data chose any."""
        if samples.seen is None:
            return []
        chosen_on = None
        if samples.held:
            chosen_on = measure_coverage(
                tuning.trials.quantized, samples.tuned, tuning.trials.model
            )
        return examine_ranges(ranges, chosen_on)

    def _proof(self, draft: Path, held: list[batches.Batch]) -> Proof:
        options = self._options
        data = self._subject.data
        if data is None:
            data = [tuple(batch.values()) for _, batch in held]
        verification = VerifyOptions(
            backends=options.backends,
            policy=options.policy,
            budget_s=options.proof_s,
            seed=options.seed,
        )
        proof = self._source.verify(replace(self._subject, data=data), draft, verification)
        replay = proof.replay.replace(str(draft), str(self._path))
        return replace(proof, candidate=str(self._path), replay=replay)

    def _cache_file(self, name: str) -> Path | None:
        cache = self._options.cache
        if cache is None:
            return None
        with writing.explain_write_errors(cache, "the cache"):
            cache.mkdir(parents=True, exist_ok=True)
        return cache / name

    def _announce(self, what: str) -> None:
        if self._options.progress is None:
            return
        self._trials += 1
        state = Progress(
            case=what,
            done=self._trials,
            elapsed=time.monotonic() - self._started,
            budget=self._budget.seconds,
            step="steps",
        )
        self._options.progress(state)
