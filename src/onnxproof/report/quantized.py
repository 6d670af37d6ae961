"""A quantized model for people: what it keeps, what it costs, what was tried, and where the error comes in."""

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from onnxproof.quantization.paired_metric import Outcome
from onnxproof.report import blockwise_table as blockwise
from onnxproof.report import text_pairs
from onnxproof.report.matrix_table import plain_table
from onnxproof.report.plain import percent, safe, visible
from onnxproof.report.terminal import COLOURS
from onnxproof.results.judging import level_words

if TYPE_CHECKING:
    from onnxproof.quantization.paired_metric import Metric
    from onnxproof.quantization.result import Quantized

_FEW = 6
"""Findings and ranges that are shown unless it is verbose."""


def headline(result: "Quantized") -> Text:
    """The verdict as a word, then the sentence."""
    doubts = [finding for finding in result.findings if finding.doubts]
    quality = f"{result.path}: {_db(result.score.sqnr_db)} against the float model"
    if doubts:
        quality += " (in doubt)"
    parts = [quality]
    if result.blockwise is not None:
        parts.append(blockwise.summary(result.blockwise))
    if result.metric is not None:
        metric = result.metric
        details = f"drop {metric.drop:+.4f}, {_interval(metric)}, {metric.samples} samples"
        parts.append(f"metric {metric.before:.4g} -> {metric.after:.4g} ({details})")
    elif result.score.agreement is not None:
        parts.append(f"the same best class for {percent(result.score.agreement)}")
    elif result.score.retrieval is not None:
        parts.append(f"the same nearest neighbour for {percent(result.score.retrieval)}")
    parts.append(
        f"{result.size / 1e6:.3g} MB of {result.float_size / 1e6:.3g}, {_ms(result.latency_s)} of {_ms(result.float_latency_s)} a pass"
    )
    sentence = ", ".join(parts)
    if doubts:
        sentence += f"; {doubts[0].what}"
    if len(doubts) > 1:
        sentence += f", and {len(doubts) - 1} more doubts"
    word = (result.verdict.value.upper(), COLOURS[result.verdict])
    return Text.assemble(word, "  " + visible(sentence))


def show(result: "Quantized", out: Console, *, verbose: bool = False) -> None:
    """Print the whole report."""
    out.print(headline(result), soft_wrap=True)
    if not result.met:
        missed = safe(f"  the budget does not hold: {_reason_missed(result)}")
        out.print(missed, style="yellow", soft_wrap=True)
    out.print("  " + " · ".join(_facts(result)), style="dim", soft_wrap=True)
    for finding in result.findings[:_FEW]:
        out.print(safe(f"  {finding.code}: {finding.what}"), style="yellow", soft_wrap=True)
        out.print(safe(f"    = help: {finding.help}"), style="dim", soft_wrap=True)
    out.print()
    if result.steps:
        out.print(_steps(result))
    if result.blockwise is not None:
        blockwise.show(result.blockwise, out, verbose=verbose)
    out.print()
    out.print(_stages(result))
    if result.samples and result.proof.ranges:
        out.print()
        out.print(_ranges(result, len(result.proof.ranges) if verbose else _FEW))
    if verbose or len(result.front) > 1:
        out.print()
        out.print(_front(result))
    if result.census.fallback:
        kinds = ", ".join(f"{count} {kind}" for kind, count in result.census.fallback.items())
        out.print()
        out.print(
            safe(f"still float: {kinds}; {result.census.conversions} conversions on the way"),
            soft_wrap=True,
        )
    if result.proof.replay:
        out.print(f"\nprove it again:\n  {safe(result.proof.replay)}", soft_wrap=True)


def _facts(result: "Quantized") -> list[str]:
    integer, heavy = result.census.heavy
    facts = [
        f"scheme {result.scheme}",
        f"{result.samples} calibration samples",
        f"{integer} of {heavy} heavy nodes run as integers",
        f"{result.tried} graphs tried",
    ]
    if result.blockwise is not None:
        facts += blockwise.facts(result.blockwise)
    if result.proof.texts:
        facts.append(text_pairs.summary(result.proof.texts))
    if result.speed is not None:
        facts.append(f"a pass takes {result.speed}")
    if result.recalled:
        facts.append(f"{result.recalled} of them known from an earlier run")
    return [*facts, f"{result.seconds:.1f} s"]


def _reason_missed(result: "Quantized") -> str:
    budget, metric = result.budget, result.metric
    if metric is not None and budget.max_drop is not None and result.outcome is not Outcome.SHOWN:
        return _drop(metric, budget.max_drop, result.outcome)
    if budget.max_size is not None and result.size > budget.max_size:
        return f"the file has {result.size:,} bytes, and {budget.max_size:,} are allowed"
    if result.blockwise is not None:
        reason = blockwise.reason_missed(result.blockwise, budget)
        if reason:
            return reason
    if budget.max_latency is not None and result.latency_s > budget.max_latency:
        return f"a pass takes {_ms(result.latency_s)}, and {_ms(budget.max_latency)} is allowed"
    return f"{_db(result.score.sqnr_db)} of {budget.min_sqnr:g} dB that were aimed at"


def _drop(metric: "Metric", most: float, outcome: "Outcome") -> str:
    """What the samples say, and what would be needed to know more."""
    if outcome is Outcome.BEYOND:
        return f"the metric drops by {metric.drop:.4f} ({_interval(metric)}), and {most:.4f} is allowed; the most accurate graph that was tried is written"
    problem = f"a drop of at most {most:.4f} is not shown with {metric.samples} samples: {_interval(metric)}"
    needed = metric.samples_needed(most)
    if metric.samples < 2:
        more = "let the evaluator return one score for each sample, or take its number as it is with `--confidence 0`"
    elif needed is None:
        more = "the estimate itself is beyond it, so more samples would hardly show it"
    else:
        more = f"about {needed:,} samples would show it if the drop stays as it is"
    return f"{problem}; {more}; the fastest graph is written all the same"


def _interval(metric: "Metric") -> str:
    if not metric.confidence:
        return "no interval asked for"
    return f"{metric.confidence:.0%} interval {metric.low:+.4f} to {metric.high:+.4f}"


def _steps(result: "Quantized") -> Table:
    table = plain_table("recipe", "before", "after", "")
    table.columns[-1].justify = "left"
    for step in result.steps:
        after, what = "", f"not kept: {step.what}"
        if step.kept:
            after, what = _db(step.after_db), step.what
        table.add_row(safe(step.name), _db(step.before_db), after, safe(what))
    return table


def _stages(result: "Quantized") -> Table:
    table = plain_table("stage", "SQNR", "steps", "same class")
    for error in result.ledger:
        agreement = ""
        if error.agreement is not None:
            agreement = percent(error.agreement)
        table.add_row(safe(error.stage), _db(error.sqnr_db), f"{error.steps:.2f}", agreement)
    return table


def _ranges(result: "Quantized", most: int) -> Table:
    """The ranges that fit held-out data worst."""
    ranges = result.proof.ranges
    title = f"range ({min(most, len(ranges))} of {len(ranges)}, the worst first)"
    table = plain_table(title, "clips", "unused", "from", "to")
    for each in ranges[:most]:
        table.add_row(
            safe(each.tensor),
            percent(each.clipped, 3),
            percent(each.unused, 0),
            f"{each.chosen_low:.4g}",
            f"{each.chosen_high:.4g}",
        )
    return table


def _front(result: "Quantized") -> Table:
    table = plain_table("tried (* nothing beats it)", "SQNR", "a pass", "size", "metric")
    for point in result.front:
        mark = "*" if point.best else " "
        metric = ""
        if point.metric is not None:
            metric = f"{point.metric:.4g}"
        table.add_row(
            safe(f"{mark} {point.name}"),
            _db(point.sqnr_db),
            _ms(point.latency_s),
            f"{point.size / 1e6:.3g} MB",
            metric,
        )
    return table


def _db(value: float) -> str:
    return level_words(value)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"
