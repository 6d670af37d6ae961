"""What a proof says about a quantized model's quality, for people: decibels, agreement, clipping, and where the error comes from."""

from rich.console import Console
from rich.table import Table

from onnxproof.report.plain import percent, safe
from onnxproof.results import judging
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
    found = judging.asked(proof.gaps)
    for backend, output in dict.fromkeys((gap.backend, gap.output) for gap in found):
        mine = [gap for gap in found if (gap.backend, gap.output) == (backend, output)]
        parts = [judging.level_words(judging.pooled_db(mine))]
        channels = [gap.channel_db for gap in mine if gap.channel_db is not None]
        parts += [f"worst channel {judging.level_words(min(channels))}"] if channels else []
        agreed = [(gap.top1, gap.compared) for gap in mine if gap.top1 is not None]
        parts += (
            [
                f"same best class {percent(sum(t * n for t, n in agreed) / sum(n for _, n in agreed))}"
            ]
            if agreed
            else []
        )
        clips = [gap.clipped for gap in mine if gap.clipped is not None]
        parts += [f"{percent(sum(clips) / len(clips))} of the inputs clipped"] if clips else []
        where = (
            "your data"
            if mine[0].group == "data"
            else "the example inputs (give --data for an answer on real ones)"
        )
        out.print(
            safe(f"quality on {backend}, `{output}`: {', '.join(parts)}; on {where}"),
            soft_wrap=True,
        )


def waterfall(proof: Proof, out: Console) -> None:
    """The steps from the served model to float."""
    if not proof.waterfall:
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name, side in (
        ("where the error comes from", "left"),
        ("share", "right"),
        ("recovers", "right"),
        ("then", "right"),
    ):
        table.add_column(name, justify=side, no_wrap=True)  # type: ignore[arg-type]
    for step in proof.waterfall:
        after = judging.level_words(step.after_db)
        table.add_row(
            safe(_WORDS.get(step.code, step.code)),
            percent(step.share, 1),
            "" if step.code == "rest" else f"{step.db:+.1f} dB",
            after,
        )
    table.add_row("all of it", percent(sum(step.share for step in proof.waterfall), 1), "", "")
    out.print()
    out.print(table)
