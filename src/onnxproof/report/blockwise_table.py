"""Weights in blocks for people: bits against KL for every matrix, what more bits would buy, and the front."""

import math
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from onnxproof.quantization.paired_metric import Outcome
from onnxproof.report.matrix_table import number, plain_table, show_matrices
from onnxproof.report.plain import percent

if TYPE_CHECKING:
    from onnxproof.quantization.blockwise.result import Blockwise
    from onnxproof.quantization.paired_metric import Metric
    from onnxproof.quantization.tuning_state import Budget


def show(blocks: "Blockwise", out: Console, *, verbose: bool) -> None:
    """Both tables."""
    show_matrices(blocks.matrices, out, verbose=verbose)
    out.print()
    out.print(_front(blocks))


def summary(blocks: "Blockwise") -> str:
    """Bits, KL and perplexity in a few words."""
    words = f"{blocks.bits:.2f} bits a weight"
    if blocks.kl is None or blocks.perplexity is None:
        return words
    return (
        f"{words}, KL {number(blocks.kl.drop)} nats a token ({_interval(blocks.kl)}),"
        f" perplexity {blocks.float_perplexity:.4g} -> {blocks.quantized_perplexity:.4g} ({_rise(blocks):+.2%})"
    )


def _rise(blocks: "Blockwise") -> float:
    assert blocks.perplexity is not None
    return math.expm1(blocks.perplexity.drop)


def _interval(metric: "Metric") -> str:
    if not metric.confidence:
        return "no interval asked for"
    return f"{metric.confidence:.0%} interval {number(metric.low)} to {number(metric.high)}, {metric.samples} texts"


def facts(blocks: "Blockwise") -> list[str]:
    """How it computes, and why."""
    how = "computes in float" if not blocks.accuracy_level else "rounds its inputs to 8 bits"
    return [f"accuracy_level {blocks.accuracy_level}: {how}; {blocks.level_reason}"]


def reason_missed(blocks: "Blockwise", budget: "Budget") -> str:
    """Which limit of a budget does not hold; empty where it is none of these."""
    if budget.bits is not None and blocks.bits > budget.bits:
        return f"{blocks.bits:.2f} bits a weight are the fewest, and {budget.bits:g} are allowed"
    return _reason_kl(blocks.kl, budget.max_kl) or _reason_perplexity(
        blocks.perplexity, budget.max_perplexity
    )


def _reason_kl(metric: "Metric | None", most: float | None) -> str:
    if most is None or metric is None or metric.outcome(most) is Outcome.SHOWN:
        return ""
    return f"KL {number(metric.drop)} nats ({_interval(metric)}), and {most:g} is allowed"


def _reason_perplexity(metric: "Metric | None", most: float | None) -> str:
    if most is None or metric is None or metric.outcome(math.log1p(most)) is Outcome.SHOWN:
        return ""
    rise, low, high = (math.expm1(value) for value in (metric.drop, metric.low, metric.high))
    return (
        f"the perplexity rises by {rise:+.2%} ({metric.confidence:.0%} interval {low:+.2%} to {high:+.2%}, {metric.samples} texts),"
        f" and {percent(most)} is allowed"
    )


def _front(blocks: "Blockwise") -> Table:
    """Every graph that was built."""
    table = plain_table("built (* nothing beats it)", blocks.unit, "bytes", "a pass")
    for point in blocks.front:
        mark = "*" if point.best else " "
        table.add_row(
            f"{mark} {point.name}",
            number(point.cost),
            f"{point.size:,}",
            f"{point.latency_s * 1e3:.3g} ms",
        )
    return table
