"""Values that stay float where the budget asks for it: speed is given up for what is shown, never on noise.

Where the drop looks small enough and the samples are too few to show it, nothing is given up: that is said, and more samples are
the cure. Else the order of the graphs is settled by decibels alone, and the one with the most float values is asked first, then the
next faster one, as long as the budget is shown; the last of these is taken. A fixed sequence like this needs no correction for
having asked several times, and the graph without float values has had a question of its own before: the two together are wrong
at most as often as one interval is (each uses one of its two ends).
"""

from dataclasses import dataclass

import numpy as np
import onnx

from onnxproof.quantization.kernel_report import latencies
from onnxproof.quantization.paired_metric import Metric, Outcome
from onnxproof.quantization.qdq import pairs, without_rounding
from onnxproof.quantization.tuning_state import Step, Tuning, one
from onnxproof.quantization.workbench import Bench, Score

_SENSITIVE = 12
"""Values that are tried in float one by one, by what the statistics say of them."""
_WORTH_DB = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wider:
    """The graph with one more value in float than the one before."""

    kept: tuple[str, ...]
    quantized: onnx.ModelProto
    score: Score


def widen(tuning: Tuning) -> None:
    """Keep the values in float whose rounding costs the answers most, until the budget holds or the latency forbids it."""
    before, outcome = tuning.bench.score.sqnr_db, tuning.outcome()
    if tuning.metric is not None and (why := _why_not(tuning, outcome)):
        _told(tuning, before, f"not tried: {why}", kept=False)
        return
    chain = _chain(tuning)
    if not chain:
        _told(tuning, before, "no single value's rounding costs the answers", kept=False)
        return
    chosen, metric = (chain[-1], None) if tuning.metric is None else _shown(tuning, chain)
    if chosen is None and outcome is Outcome.NOT_SHOWN:
        _told(
            tuning,
            before,
            f"{len(chain)} values in float would not show the budget either, so the faster graph stays",
            kept=False,
        )
        return
    chosen = chosen or chain[-1]
    tuning.take(chosen.quantized, chosen.score, chosen.kept)
    tuning.metric = metric
    _told(tuning, before, f"{', '.join(chosen.kept)} stay float", kept=True)


def _why_not(tuning: Tuning, outcome: Outcome) -> str:
    """Why no speed is given up: the samples are too few to say that it is needed, or that it would help."""
    assert (
        tuning.evaluator is not None
        and tuning.metric is not None
        and tuning.budget.max_drop is not None
    )
    if outcome is Outcome.NOT_SHOWN and tuning.metric.drop <= tuning.budget.max_drop:
        return "the drop is within the budget as far as the samples tell, and they are too few to show it"
    if outcome is Outcome.NOT_SHOWN and not tuning.evaluator.could_show(
        tuning.plain, tuning.budget.max_drop
    ):
        return "so few samples show this budget for no model at all"
    return ""


def _told(tuning: Tuning, before: float, what: str, *, kept: bool) -> None:
    tuning.steps.append(
        Step(
            name="keep-float",
            what=what,
            before_db=before,
            after_db=tuning.bench.score.sqnr_db,
            kept=kept,
        )
    )


def _chain(tuning: Tuning) -> list[_Wider]:
    """Graphs with more and more values in float, each with more decibels; without a metric it ends where there are enough."""
    bench, budget = tuning.bench, tuning.budget
    found: list[_Wider] = []
    current, reached = bench.quantized, bench.score
    for value in sensitive(bench):
        trial = without_rounding(current, [value])
        score = bench.judged(trial)
        if bench.late or not score.better(reached, _WORTH_DB):
            continue
        if (
            budget.max_latency is not None
            and latencies([trial], one(bench))[0] > budget.max_latency
        ):
            continue
        current, reached = trial, score
        found.append(
            _Wider(kept=(*(found[-1].kept if found else ()), value), quantized=trial, score=score)
        )
        tuning.points.append((f"float: {', '.join(found[-1].kept[-3:])}", trial, score.sqnr_db))
        if tuning.metric is None and score.sqnr_db >= budget.min_sqnr:
            break
    return found


def _shown(tuning: Tuning, chain: list[_Wider]) -> tuple[_Wider | None, Metric | None]:
    """The fastest graph of the chain down to which the budget is shown, and its metric; else the metric of the most accurate one."""
    assert tuning.evaluator is not None and tuning.budget.max_drop is not None
    chosen: _Wider | None = None
    found: Metric | None = None
    for wider in reversed(chain):
        tuning.bench.tell(f"metric with {len(wider.kept)} values in float")
        metric = tuning.evaluator.compare(tuning.plain, wider.quantized)
        if metric.outcome(tuning.budget.max_drop) is not Outcome.SHOWN:
            return chosen, found or metric
        chosen, found = wider, metric
    return chosen, found


def sensitive(bench: Bench) -> list[str]:
    """Values whose rounding costs most: the statistics choose whom to ask, and the answers decide the order."""
    found = [pair.value for pair in pairs(bench.quantized)]
    found.sort(key=lambda value: -_coarse(bench, value))
    gains = {}
    for value in found[:_SENSITIVE]:
        bench.tell(f"sensitivity of {value}")
        gains[value] = bench.judged(without_rounding(bench.quantized, [value])).sqnr_db
    return sorted(gains, key=lambda value: -gains[value])


def _coarse(bench: Bench, value: str) -> float:
    """The step of the rounding against the smallest channel's reach: what a channel can still tell apart."""
    stats = bench.stats.get(value)
    if stats is None or value not in bench.ranges:
        return 0.0
    low, high = bench.ranges[value]
    if stats.channel_low is None or stats.channel_high is None:
        return (high - low) / max(stats.rms, 1e-30)
    reach = stats.channel_high - stats.channel_low
    alive = reach[reach > 0]
    return float((high - low) / max(np.percentile(alive, 10), 1e-30)) if alive.size else 0.0
