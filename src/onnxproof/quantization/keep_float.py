"""Values that stay float where the budget asks for it: speed is given up for what is shown, never on noise.

1. Where the drop looks small enough and the samples are too few to show it, nothing is given up: the report says so, and more samples are
   the cure.
2. Else a sequence of graphs is built, each with one more float value and more decibels than the one before.
3. Without a metric the last graph of the sequence is taken. With one, the graph with the most float values is evaluated first, then the
   next faster one, as long as the budget is shown; the last of these is taken.

A fixed sequence like this needs no correction for several tests, and the graph without float values has had a test of its own before: the
two together are wrong at most as often as one interval is (each uses one of its two ends).
"""

from dataclasses import dataclass

import numpy as np
import onnx

from onnxproof.quantization.kernel_report import latencies
from onnxproof.quantization.paired_metric import Metric, Outcome
from onnxproof.quantization.qdq import find_pairs
from onnxproof.quantization.qdq_edit import without_rounding
from onnxproof.quantization.scoring import Score
from onnxproof.quantization.trials import QuantizationTrials
from onnxproof.quantization.tuning_state import Step, Tuning, single_sample

_SENSITIVE = 12
"""Values that are tried in float one by one, by what the statistics say of them (not measured)."""
_WORTH_DB = 0.1
"""A float value that gains less is not worth its speed (not measured)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _PartlyFloat:
    """The graph with one more value in float than the one before."""

    kept: tuple[str, ...]
    quantized: onnx.ModelProto
    score: Score


def keep_values_float(tuning: Tuning) -> None:
    """Keep the values in float whose rounding costs the outputs most, until the budget holds or the latency forbids it."""
    before = tuning.trials.score.sqnr_db
    outcome = tuning.outcome()
    if tuning.metric is not None:  # step 1
        reason = _reason_to_skip(tuning, outcome)
        if reason:
            _add_step(tuning, before, f"not tried: {reason}", kept=False)
            return
    sequence = _build_sequence(tuning)  # step 2
    if not sequence:
        _add_step(tuning, before, "no single value's rounding costs the answers", kept=False)
        return
    chosen: _PartlyFloat | None = sequence[-1]  # step 3
    metric = None
    if tuning.metric is not None:
        chosen, metric = _fastest_shown(tuning, sequence)
    if chosen is None and outcome is Outcome.NOT_SHOWN:
        what = f"{len(sequence)} values in float would not show the budget either, so the faster graph stays"
        _add_step(tuning, before, what, kept=False)
        return
    chosen = chosen or sequence[-1]
    tuning.take(chosen.quantized, chosen.score, chosen.kept)
    tuning.metric = metric
    _add_step(tuning, before, f"{', '.join(chosen.kept)} stay float", kept=True)


def _reason_to_skip(tuning: Tuning, outcome: Outcome) -> str:
    """Why no speed is given up: the samples are too few to say that it is needed, or that it would help."""
    assert tuning.evaluator is not None
    assert tuning.metric is not None
    max_drop = tuning.budget.max_drop
    assert max_drop is not None
    if outcome is not Outcome.NOT_SHOWN:
        return ""
    if tuning.metric.drop <= max_drop:
        return "the drop is within the budget as far as the samples tell, and they are too few to show it"
    if not tuning.evaluator.could_show(tuning.plain, max_drop):
        return "so few samples show this budget for no model at all"
    return ""


def _add_step(tuning: Tuning, before: float, what: str, *, kept: bool) -> None:
    after = tuning.trials.score.sqnr_db
    tuning.steps.append(
        Step(name="keep-float", what=what, before_db=before, after_db=after, kept=kept)
    )


def _build_sequence(tuning: Tuning) -> list[_PartlyFloat]:
    """Graphs with more and more values in float, each with more decibels; without a metric it ends where there are enough."""
    trials = tuning.trials
    sequence: list[_PartlyFloat] = []
    kept: tuple[str, ...] = ()
    current, best_score = trials.quantized, trials.score
    for value in rank_sensitive_values(trials):
        trial = without_rounding(current, [value])
        score = trials.score_model(trial)
        if trials.deadline_passed or not score.better(best_score, _WORTH_DB):
            continue
        if _too_slow(tuning, trial):
            continue
        current, best_score = trial, score
        kept = (*kept, value)
        sequence.append(_PartlyFloat(kept=kept, quantized=trial, score=score))
        tuning.points.append((f"float: {', '.join(kept[-3:])}", trial, score.sqnr_db))
        if tuning.metric is None and score.sqnr_db >= tuning.budget.min_sqnr:
            break
    return sequence


def _too_slow(tuning: Tuning, model: onnx.ModelProto) -> bool:
    max_latency = tuning.budget.max_latency
    if max_latency is None:
        return False
    return latencies([model], single_sample(tuning.trials))[0] > max_latency


def _fastest_shown(
    tuning: Tuning, sequence: list[_PartlyFloat]
) -> tuple[_PartlyFloat | None, Metric | None]:
    """The fastest graph of the sequence down to which the budget is shown, and its metric; else the metric of the most accurate one."""
    assert tuning.evaluator is not None and tuning.budget.max_drop is not None
    fastest: _PartlyFloat | None = None
    fastest_metric: Metric | None = None
    for graph in reversed(sequence):
        tuning.trials.report_progress(f"metric with {len(graph.kept)} values in float")
        metric = tuning.evaluator.compare(tuning.plain, graph.quantized)
        if metric.outcome(tuning.budget.max_drop) is not Outcome.SHOWN:
            return fastest, fastest_metric or metric
        fastest, fastest_metric = graph, metric
    return fastest, fastest_metric


def rank_sensitive_values(trials: QuantizationTrials) -> list[str]:
    """Values whose rounding costs most: the statistics choose which are tried, and the outputs decide the order."""
    values = [pair.value for pair in find_pairs(trials.quantized)]
    values.sort(key=lambda value: -_relative_step(trials, value))
    gains = {}
    for value in values[:_SENSITIVE]:
        trials.report_progress(f"sensitivity of {value}")
        trial = without_rounding(trials.quantized, [value])
        gains[value] = trials.score_model(trial).sqnr_db
    return sorted(gains, key=lambda value: -gains[value])


def _relative_step(trials: QuantizationTrials, value: str) -> float:
    """The step of the rounding against the range of the smallest channels (their 10th percentile): what such a channel can still resolve."""
    stats = trials.stats.get(value)
    if stats is None or value not in trials.ranges:
        return 0.0
    low, high = trials.ranges[value]
    if stats.channel_low is None or stats.channel_high is None:
        return (high - low) / max(stats.rms, 1e-30)
    widths = stats.channel_high - stats.channel_low
    varying = widths[widths > 0]
    if not varying.size:
        return 0.0
    return float((high - low) / max(np.percentile(varying, 10), 1e-30))
