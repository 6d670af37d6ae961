"""What a proof says about a quantized model's quality, for people: decibels, agreement, clipping, and where the error comes from."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from onnxproof.report.plain import percent, safe
from onnxproof.results import Gap, judging
from onnxproof.results.proof import Proof

_WORDS = {
    "quant-saturation": "biases that don't fit their integers",
    "runtime": "the runtime, beyond what the graph says",
    "unfused": "roundings between what should be one",
    "calibration": "ranges from other data",
    "outlier": "rare large values in the ranges",
    "quant-scheme": "symmetric ranges",
    "channel-imbalance": "one scale for unequal channels",
    "8-bit activations": "activations in 8 bits",
    "weights: one scale a tensor": "one scale for a whole weight",
    "8-bit weights": "weights and biases as integers",
    "rest": "the rest",
}


def show(proof: Proof, out: Console) -> None:
    """One line a backend and output; nothing for a float candidate."""
    by_output: dict[tuple[str, str], list[Gap]] = {}
    for gap in judging.asked(proof.gaps):
        by_output.setdefault((gap.backend, gap.output), []).append(gap)
    for (backend, output), gaps in by_output.items():
        where = "the example inputs (give --data for an answer on real ones)"
        if gaps[0].group == "data":
            where = "your data"
        parts = ", ".join(_measures(gaps))
        line = f"quality on {backend}, `{output}`: {parts}; on {where}"
        out.print(safe(line), soft_wrap=True)


def _measures(gaps: Sequence[Gap]) -> list[str]:
    """The SQNR of one output, and what else was measured of it."""
    parts = [judging.level_words(judging.pooled_db(gaps))]
    channels = [gap.channel_db for gap in gaps if gap.channel_db is not None]
    if channels:
        parts.append(f"worst channel {judging.level_words(min(channels))}")
    best_class = _mean([(gap.top1, gap.compared) for gap in gaps])
    if best_class is not None:
        parts.append(f"same best class {percent(best_class)}")
    else:
        parts.append(f"cosine {min(gap.cosine for gap in gaps):.4f}")
    parts += _other_measures(gaps)
    return parts


def _other_measures(gaps: Sequence[Gap]) -> list[str]:
    """What is measured of some outputs only: neighbours of embeddings, KL of logits, clipped inputs."""
    parts = []
    neighbour = _mean([(gap.retrieval, gap.compared) for gap in gaps])
    if neighbour is not None:
        parts.append(f"same nearest neighbour {percent(neighbour)}")
    kl = judging.pooled_kl(gaps)
    if kl is not None:
        parts.append(f"KL {kl:.3g} nats a token")
    clipped = [gap.clipped for gap in gaps if gap.clipped is not None]
    if clipped:
        parts.append(f"{percent(sum(clipped) / len(clipped))} of the inputs clipped")
    return parts


def _mean(shares: Sequence[tuple[float | None, int]]) -> float | None:
    """The mean of what was measured, each weighed by its elements; None where nothing was."""
    measured = [(share, count) for share, count in shares if share is not None]
    if not measured:
        return None
    return sum(share * count for share, count in measured) / sum(count for _, count in measured)


def waterfall(proof: Proof, out: Console) -> None:
    """The steps from the served model to float."""
    if not proof.waterfall:
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("where the error comes from", no_wrap=True)
    for name in ("share", "recovers", "then"):
        table.add_column(name, justify="right", no_wrap=True)
    for step in proof.waterfall:
        recovered = f"{step.db:+.1f} dB"
        if step.code == "rest":
            recovered = ""
        table.add_row(
            safe(_WORDS.get(step.code, step.code)),
            percent(step.share, 1),
            recovered,
            judging.level_words(step.after_db),
        )
    table.add_row("all of it", percent(sum(step.share for step in proof.waterfall), 1), "", "")
    out.print()
    out.print(table)
