"""Few bits by a budget: what each matrix costs, a path from the fewest bytes to the most exact, and the point on it that the budget allows.

1. One pass over the data for the second moments of all inputs, and one trial for each matrix alone (`sensitivity`).
2. The path (`allocation`); by losses the smallest of a few points that is shown to hold. By bytes its last point that fits, or the allocation that spends the bytes
   left over (`spend`): both are built, and the one that costs less by measurement is taken, since estimates order close allocations wrongly now and then.
3. Every point that is tried is rounded in the order of the graph (`in_order`). Costs are asked on samples that no moment was taken of, where there are enough.
4. The chosen one is compared with itself with inputs rounded to 8 bits (`accuracy_level` 4).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx

from onnxproof.errors import UsageError
from onnxproof.quantization.blockwise.allocation import Allocation, Choice, path, spend
from onnxproof.quantization.blockwise.assemble import assemble, other_bytes
from onnxproof.quantization.blockwise.form import BITS, Form
from onnxproof.quantization.blockwise.in_order import round_in_order
from onnxproof.quantization.blockwise.judge import Judge
from onnxproof.quantization.blockwise.matrices import Matrix, find_matrices, split_gemms
from onnxproof.quantization.blockwise.moments import passes, second_moments
from onnxproof.quantization.blockwise.result import Blockwise
from onnxproof.quantization.blockwise.sensitivity import forms_of, measure_choices
from onnxproof.quantization.blockwise.text_losses import judge_texts
from onnxproof.quantization.blockwise.trial import Trial, mark_best, matrix_costs, stations
from onnxproof.quantization.calibration.batches import Batch
from onnxproof.quantization.kernel_report import latencies
from onnxproof.quantization.paired_metric import Outcome, compare_paired
from onnxproof.quantization.tuning_state import Tuning, single_sample
from onnxproof.results.blocks import BlockPoint

Array = np.ndarray[Any, Any]
DEFAULT_BITS = 4.5
"""A weight, with its share of scales, where no budget says otherwise."""
_FRONT = (4.25, 5.0, 6.0, 8.5)
"""Bits a weight of the other points of the front."""
_JUDGED = 4
"""Every fourth batch is judged by, and gives no moments."""
_MOST_WORSE = 1.1
"""`accuracy_level` 4 may cost this much more, where it is faster (not measured)."""
_FASTER = 0.97


def search(tuning: Tuning, exclude: frozenset[str], *, has_data: bool) -> Tuning:
    """Quantize the matrices of the float graph; `has_data` says that the samples are calibration data and not made up."""
    model = split_gemms(tuning.plain)
    matrices = [matrix for matrix in find_matrices(model) if not exclude.intersection(matrix.nodes)]
    if not matrices:
        raise UsageError(
            "nothing-to-quantize",
            "no MatMul, Gemm or Gather with constant weights is in this model",
            help="weights in blocks serve matrix products and tables only",
        )
    fitted, judged = _divide(tuning.trials.samples if has_data else [])
    state = BlockSearch(
        tuning=tuning,
        model=model,
        matrices=matrices,
        fitted=fitted,
        judge=Judge(model, judged or tuning.trials.samples, tuning.trials.trial_cache),
        other_bytes=other_bytes(model, matrices),
    )
    state.check_budget()
    return state.run()


def _divide(samples: Sequence[Batch]) -> tuple[list[Batch], list[Batch]]:
    """Batches to take moments of, and batches to judge by; few batches are both."""
    if len(samples) < _JUDGED:
        return list(samples), list(samples)
    fitted = [each for place, each in enumerate(samples) if place % _JUDGED != _JUDGED - 1]
    return fitted, list(samples[_JUDGED - 1 :: _JUDGED])


@dataclass(slots=True, kw_only=True)
class BlockSearch:
    """The state of one search."""

    tuning: Tuning
    model: onnx.ModelProto
    matrices: list[Matrix]
    fitted: Sequence[Batch]
    judge: Judge
    other_bytes: int
    """Of a file, beside the matrices themselves."""
    trials: dict[frozenset[tuple[str, Form]], Trial] = field(default_factory=dict)
    """By the form of each matrix."""

    def check_budget(self) -> None:
        """Losses of text need a language model, and data."""
        budget = self.tuning.budget
        if not budget.asks_losses:
            return
        if self.judge.shape is None:
            raise UsageError(
                "no-language-model",
                "`--max-kl` and `--max-perplexity` need scores of the next token: an output [texts, places, tokens] beside an input of token ids",
                help="use `--bits` or `--max-size`, or `--evaluate` with `--max-drop`",
            )

    def run(self) -> Tuning:
        """Steps 1 to 4; the tuning holds the graph, and what is said about it."""
        choices = self._measure()
        allocations = path(choices)
        trial = self._choose(allocations, choices)
        level, reason, trial = self._choose_level(trial)
        trials = self.tuning.trials
        self.tuning.take(trial.model, trials.score_model(trial.model))
        name = f"{len(self.matrices)} matrices in blocks"
        self.tuning.points.append((name, trial.model, trials.score.sqnr_db))
        self.tuning.blockwise = Blockwise(
            unit=self.judge.unit,
            bits=self._bits(trial.allocation),
            accuracy_level=level,
            level_reason=reason,
            matrices=tuple(matrix_costs(self.matrices, trial, choices, self.judge.unit)),
            front=self._points([trial, *self._front(allocations)]),
        )
        return self.tuning

    def _measure(self) -> dict[str, list[Choice]]:
        """Step 1: 2 bits only where a budget asks for less than 4 bits can give."""
        fewest = sum(
            min(form.size(matrix.rows, matrix.columns) for form in forms_of(matrix, BITS[1:]))
            for matrix in self.matrices
        )
        bits = BITS if self._most_bytes() < fewest else BITS[1:]
        report = self.tuning.trials.report_progress
        cost_of = self.judge.cost if self.fitted else None
        choices: dict[str, list[Choice]] = {}
        for group in passes(self.matrices):
            moments: dict[str, Array] = {}
            if self.fitted:
                moments = second_moments(self.model, group, self.fitted, report)
            for matrix in group:
                report(f"{matrix.name} alone")
                choices[matrix.name] = measure_choices(self.model, matrix, moments, bits, cost_of)
        return choices

    @property
    def _weights(self) -> int:
        return sum(matrix.rows * matrix.columns for matrix in self.matrices)

    def _bits(self, allocation: Allocation) -> float:
        return 8 * allocation.size / self._weights

    def _choose(
        self, allocations: Sequence[Allocation], choices: Mapping[str, Sequence[Choice]]
    ) -> Trial:
        """Step 2."""
        most = self._most_bytes()
        within = [each for each in allocations if each.size <= most]
        if not within:
            return self._build(allocations[0])
        if not self.tuning.budget.asks_losses:
            return self._spend(within[-1], choices)
        points = [within[station] for station in stations([each.size for each in within])]
        low, high = 0, len(points) - 1
        while low < high:
            middle = (low + high) // 2
            if self._holds(self._build(points[middle])):
                high = middle
            else:
                low = middle + 1
        if points[low] is within[-1] and math.isfinite(most):
            return self._spend(within[-1], choices)
        return self._build(points[low])

    def _spend(self, last: Allocation, choices: Mapping[str, Sequence[Choice]]) -> Trial:
        """The last point of the path that fits, or what spends the rest of the bytes: whichever costs less as measured."""
        trials = [self._build(last), self._build(spend(choices, last, self._most_bytes()))]
        return min(trials, key=lambda trial: trial.cost)

    def _most_bytes(self) -> float:
        """Bytes of all matrices that the budget allows."""
        budget = self.tuning.budget
        most = math.inf
        if budget.bits is not None:
            most = budget.bits * self._weights / 8
        if budget.max_size is not None:
            most = min(most, budget.max_size - self.other_bytes)
        if math.isinf(most) and not budget.asks_losses:
            return DEFAULT_BITS * self._weights / 8
        return most

    def _holds(self, trial: Trial) -> bool:
        losses = self.judge.texts(trial.model)
        return losses is not None and judge_texts(losses, self.tuning.budget) is Outcome.SHOWN

    def _build(self, allocation: Allocation) -> Trial:
        """Step 3."""
        key = frozenset(allocation.forms.items())
        if key in self.trials:
            return self.trials[key]
        report = self.tuning.trials.report_progress
        rounded = round_in_order(self.model, self.matrices, allocation.forms, self.fitted, report)
        model = assemble(self.model, self.matrices, rounded)
        self.trials[key] = Trial(
            allocation=allocation,
            rounded=rounded,
            model=model,
            costs=self.judge.costs(model),
        )
        return self.trials[key]

    def _choose_level(self, trial: Trial) -> tuple[int, str, Trial]:
        """Step 4: level 4 where it is faster and costs hardly more."""
        model = assemble(self.model, self.matrices, trial.rounded, accuracy_level=4)
        costs = self.judge.costs(model)
        slow, fast = self._latencies([trial.model, model])
        rise = compare_paired(-_MOST_WORSE * trial.costs, -costs, self.tuning.budget.confidence)
        words = (
            f"inputs rounded to 8 bits cost {costs.mean():.3g} {self.judge.unit} instead of {trial.cost:.3g}"
            f" and take {fast / slow:.2f} of the time"
        )
        if fast > _FASTER * slow or rise.high > 0:
            return 0, words, trial
        return 4, words, replace(trial, model=model, costs=costs)

    def _latencies(self, models: list[onnx.ModelProto]) -> list[float]:
        sample = single_sample(self.tuning.trials)
        journal = self.tuning.trials.trial_cache
        if journal is None:
            return latencies(models, sample)
        return journal.recall_latencies(models, lambda: latencies(models, sample))

    def _front(self, allocations: Sequence[Allocation]) -> list[Trial]:
        """What was built on the way, and other points of the path as long as there is time."""
        for bits in _FRONT:
            fitting = [each for each in allocations if self._bits(each) <= bits]
            if fitting and self.fitted and not self.tuning.trials.deadline_passed:
                self._build(fitting[-1])
        return list(self.trials.values())

    def _points(self, trials: Sequence[Trial]) -> tuple[BlockPoint, ...]:
        unique = {id(trial.model): trial for trial in trials}
        chosen = sorted(unique.values(), key=lambda trial: (trial.allocation.size, trial.cost))
        times = self._latencies([trial.model for trial in chosen])
        return mark_best(
            [
                BlockPoint(
                    name=f"{self._bits(trial.allocation):.2f} bits",
                    bits=self._bits(trial.allocation),
                    size=trial.model.ByteSize(),
                    cost=trial.cost,
                    latency_s=seconds,
                )
                for trial, seconds in zip(chosen, times, strict=True)
            ]
        )


def judge_held(
    found: Blockwise, tuning: Tuning, held: Sequence[Batch], otherwise: Outcome
) -> tuple[Blockwise, Outcome]:
    """What texts that chose nothing say, and whether the budget holds on them; decibels decide where nothing else was asked for."""
    budget = tuning.budget
    losses = Judge(tuning.plain, held, None).texts(tuning.trials.quantized)
    outcome = otherwise
    if budget.bits is not None or budget.max_size is not None:
        outcome = Outcome.SHOWN
    if losses is not None:
        found = replace(
            found,
            kl=losses.kl_metric(budget.confidence),
            perplexity=losses.perplexity_metric(budget.confidence),
            float_perplexity=losses.float_perplexity,
            quantized_perplexity=losses.perplexity,
        )
        if budget.asks_losses:
            outcome = judge_texts(losses, budget)
    if budget.bits is not None and found.bits > budget.bits:
        outcome = Outcome.BEYOND
    return found, outcome


def block_fields(tuning: Tuning) -> dict[str, Any]:
    """What the proof of a file with weights in blocks holds beside the rest."""
    if tuning.blockwise is None:
        return {}
    return {"matrices": tuning.blockwise.matrices, "block_front": tuning.blockwise.front}
