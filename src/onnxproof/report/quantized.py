"""A quantized model for people: what it keeps, what it costs, what was tried, and where the error comes in."""

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from onnxproof.quantization.paired_metric import Outcome
from onnxproof.report.plain import percent, safe, visible
from onnxproof.report.terminal import COLOURS
from onnxproof.results.judging import level_words

if TYPE_CHECKING:
    from onnxproof.quantization.paired_metric import Metric
    from onnxproof.quantization.result import Quantized

_FEW = 6


def headline(result: "Quantized") -> Text:
    """The verdict as a word, then the sentence."""
    doubts = [finding for finding in result.findings if finding.doubts]
    parts = [
        f"{result.path}: {_db(result.score.sqnr_db)} against the float model"
        + (" (in doubt)" if doubts else "")
    ]
    if result.metric is not None:
        m = result.metric
        parts.append(
            f"metric {m.before:.4g} -> {m.after:.4g} (drop {m.drop:+.4f}, {_interval(m)}, {m.samples} samples)"
        )
    elif result.score.agreement is not None:
        parts.append(f"the same best class for {percent(result.score.agreement)}")
    parts.append(
        f"{result.size / 1e6:.3g} MB of {result.float_size / 1e6:.3g}, {_ms(result.latency_s)} of {_ms(result.float_latency_s)} a pass"
    )
    more = (
        f"; {doubts[0].what}" + (f", and {len(doubts) - 1} more doubts" if len(doubts) > 1 else "")
        if doubts
        else ""
    )
    return Text.assemble(
        (result.verdict.value.upper(), COLOURS[result.verdict]),
        "  " + visible(", ".join(parts) + more),
    )


def show(result: "Quantized", out: Console, *, verbose: bool = False) -> None:
    """Print the whole report."""
    out.print(headline(result), soft_wrap=True)
    if not result.met:
        out.print(
            safe(f"  the budget does not hold: {_missed(result)}"), style="yellow", soft_wrap=True
        )
    done, heavy = result.census.heavy
    facts = [
        f"scheme {result.scheme}",
        f"{result.samples} calibration samples",
        f"{done} of {heavy} heavy nodes run as integers",
        f"{result.tried} graphs tried",
    ]
    facts += [f"{result.recalled} of them known from an earlier run"] if result.recalled else []
    out.print("  " + " · ".join([*facts, f"{result.seconds:.1f} s"]), style="dim", soft_wrap=True)
    for finding in result.findings[:_FEW]:
        out.print(safe(f"  {finding.code}: {finding.what}"), style="yellow", soft_wrap=True)
        out.print(safe(f"    = help: {finding.help}"), style="dim", soft_wrap=True)
    out.print()
    out.print(_steps(result))
    out.print()
    out.print(_ledger(result))
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


def _missed(result: "Quantized") -> str:
    budget, metric = result.budget, result.metric
    if metric is not None and budget.max_drop is not None and result.outcome is not Outcome.SHOWN:
        return _drop(metric, budget.max_drop, result.outcome)
    if budget.max_latency is not None and result.latency_s > budget.max_latency:
        return f"a pass takes {_ms(result.latency_s)}, and {_ms(budget.max_latency)} is allowed"
    return f"{_db(result.score.sqnr_db)} of {budget.min_sqnr:g} dB that were aimed at"


def _drop(metric: "Metric", most: float, outcome: "Outcome") -> str:
    """What the samples say, and what would be needed to know more."""
    if outcome is Outcome.BEYOND:
        return f"the metric drops by {metric.drop:.4f} ({_interval(metric)}), and {most:.4f} is allowed; the most accurate graph that was tried is written"
    said = f"a drop of at most {most:.4f} is not shown with {metric.samples} samples: {_interval(metric)}"
    needed = metric.needed(most)
    if metric.samples < 2:
        more = "let the evaluator return one score for each sample, or take its number as it is with `--confidence 0`"
    elif needed is None:
        more = "the estimate itself is beyond it, so more samples would hardly show it"
    else:
        more = f"about {needed:,} samples would show it if the drop stays as it is"
    return f"{said}; {more}; the fastest graph is written all the same"


def _interval(metric: "Metric") -> str:
    return (
        f"{metric.confidence:.0%} interval {metric.low:+.4f} to {metric.high:+.4f}"
        if metric.confidence
        else "no interval asked for"
    )


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for place, name in enumerate(columns):
        table.add_column(name, justify="left" if place == 0 else "right", no_wrap=place == 0)
    return table


def _steps(result: "Quantized") -> Table:
    table = _table("recipe", "before", "after", "")
    table.columns[-1].justify = "left"
    for step in result.steps:
        table.add_row(
            safe(step.name),
            _db(step.before_db),
            _db(step.after_db) if step.kept else "",
            safe(step.what if step.kept else f"not kept: {step.what}"),
        )
    return table


def _ledger(result: "Quantized") -> Table:
    table = _table("stage", "SQNR", "steps", "same class")
    for entry in result.ledger:
        table.add_row(
            safe(entry.stage),
            _db(entry.sqnr_db),
            f"{entry.steps:.2f}",
            "" if entry.agreement is None else percent(entry.agreement),
        )
    return table


def _ranges(result: "Quantized", most: int) -> Table:
    """The ranges that fit held-out data worst."""
    table = _table(
        f"range ({min(most, len(result.proof.ranges))} of {len(result.proof.ranges)}, the worst first)",
        "clips",
        "unused",
        "from",
        "to",
    )
    for found in result.proof.ranges[:most]:
        table.add_row(
            safe(found.tensor),
            percent(found.clipped, 3),
            percent(found.unused, 0),
            f"{found.chosen_low:.4g}",
            f"{found.chosen_high:.4g}",
        )
    return table


def _front(result: "Quantized") -> Table:
    table = _table("tried (* nothing beats it)", "SQNR", "a pass", "size", "metric")
    for point in result.front:
        table.add_row(
            safe(f"{'*' if point.best else ' '} {point.name}"),
            _db(point.sqnr_db),
            _ms(point.latency_s),
            f"{point.size / 1e6:.3g} MB",
            "" if point.metric is None else f"{point.metric:.4g}",
        )
    return table


def _db(value: float) -> str:
    return level_words(value)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"
