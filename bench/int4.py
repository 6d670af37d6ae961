"""`make bench-int4`: language models with weights of 4 bits, ours beside ONNX Runtime's quantizers, on models that the bench trains itself.

KL in nats a token and perplexity are those of the files on held-out text that no tool saw; bytes are those of the file, bits those of a weight that is kept in blocks, with scales and
zero points; seconds and memory those of a process of its own. Ours are compared at equal bytes and at equal bits: `w4` stores tied embeddings once, so that at equal bytes it has more bits.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from bench import int4_models as models
from bench import quantize_tools as tools
from bench.int4_others import TOOLS
from onnxproof.quantization.blockwise.matrices import find_matrices, split_gemms
from onnxproof.quantization.blockwise.text_losses import LanguageShape, TextJudge
from onnxproof.quantization.float_graph import prepare
from onnxproof.verification import block_reading

_LIMIT_S = 3600
_BITS = 4.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One file, or the reason why there is none."""

    tool: str
    kl: float = math.nan
    low: float = math.nan
    high: float = math.nan
    rise: float = math.nan
    size: int = 0
    bits: float = math.nan
    seconds: float = math.nan
    cpu: float = math.nan
    mb: float = math.nan
    missing: str = ""


def make(words: list[str], tool: str) -> dict[str, float]:
    """Run one tool; gives what it took."""
    python = sys.executable
    if tool.startswith("onnxsim"):
        python = tools.python_of("onnxsim")
    done = subprocess.run(
        [python, "-W", "ignore", "-m", "bench.int4_others", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=_LIMIT_S,
    )
    if done.returncode:
        raise tools.NotThere(tools.last_line(done.stderr))
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


class Comparison:
    """One model: every tool's file, measured alike."""

    def __init__(self, trained: models.Trained, folder: Path) -> None:
        self.trained, self.folder = trained, folder
        self.plain = split_gemms(prepare(trained.path))
        self.source, self.calibration = folder / "float.onnx", folder / "calibration.npz"
        onnx.save(self.plain, self.source)
        np.savez(self.calibration, input_ids=trained.calibration)
        texts = trained.held_out
        batches = [(str(k), {"input_ids": texts[k : k + 16]}) for k in range(0, len(texts), 16)]
        shape = LanguageShape(logits="logits", tokens="input_ids")
        self.judge = TextJudge(self.plain, shape, batches)
        matrices = find_matrices(self.plain)
        self.weights = sum(matrix.rows * matrix.columns for matrix in matrices)

    def row(self, tool: str, budget: str = "") -> Row:
        """One tool's file, measured."""
        name = f"{tool} {budget}".strip()
        target = self.folder / f"{name.replace(' ', '-').replace(',', '')}.onnx"
        words = [tool, str(self.source), str(self.calibration), str(target)]
        try:
            spent = make([*words, *([budget] if budget else [])], tool)
        except tools.NotThere as why:
            return Row(tool=name, missing=str(why))
        model = onnx.load(target)
        losses = self.judge.losses(model)
        metric = losses.kl_metric()
        if not metric.drop:
            return Row(tool=name, missing="quantized nothing")
        row = Row(
            tool=name,
            kl=metric.drop,
            low=metric.low,
            high=metric.high,
            rise=losses.perplexity / losses.float_perplexity - 1,
            size=target.stat().st_size,
            bits=bits_of(model),
            **spent,
        )
        print(f"  {self.trained.name}: {row}", file=sys.stderr, flush=True)
        return row

    def rows(self, *, once: bool = False) -> list[Row]:
        """All tools, then ours at the bytes of the smallest of ONNX Runtime's own defaults and at its bits; unless `once` also at 4.5 bits, and at the bits of the tool with the least KL."""
        rows = [self.row(tool) for tool in TOOLS]
        defaults = [row for row in rows if row.tool.startswith("ort default") and row.size]
        smallest = min(defaults, key=lambda row: row.size)
        rows.append(self.row("onnxproof", f"max_size={smallest.size}"))
        rows.append(self.row("onnxproof", f"bits={math.floor(1000 * smallest.bits) / 1000}"))
        if not once:
            rows.append(self.row("onnxproof", f"bits={_BITS}"))
            best = min((row for row in rows if row.tool in TOOLS and row.size), key=_kl)
            rows.append(self.row("onnxproof", f"bits={math.floor(1000 * best.bits) / 1000}"))
        return rows


def _kl(row: Row) -> float:
    return row.kl


def bits_of(model: onnx.ModelProto) -> float:
    """Bits of a weight in blocks; what two nodes share is counted once."""
    stored = {
        weight.node.input[weight.storage.scales]: weight for weight in block_reading.find(model)
    }
    size = sum(weight.storage.size for weight in stored.values())
    weights = sum(math.prod(weight.shape) for weight in stored.values())
    return 8 * size / max(weights, 1)


def table(name: str, comparison: Comparison, rows: list[Row]) -> list[str]:
    """Markdown."""
    perplexity = math.exp(float(np.mean(comparison.judge.losses(comparison.plain).cross_entropy)))
    size = comparison.source.stat().st_size
    lines = [f"| {name} | float | | {perplexity:.3f} | {size:,} | | | | |"]
    for row in rows:
        if row.missing:
            lines.append(f"| | {row.tool} | {row.missing} | | | | | | |")
            continue
        lines.append(
            f"| | {row.tool} | {row.kl:.6f} ({row.low:.6f} to {row.high:.6f}) | {row.rise:+.2%} | {row.size:,} | {row.bits:.2f}"
            f" | {row.seconds:.1f} | {row.cpu:.1f} | {row.mb:.0f} |"
        )
    return lines


def verdicts(name: str, rows: list[Row]) -> list[str]:
    """The bars, met or missed."""
    by_tool = {row.tool: row for row in rows if not row.missing}
    ours = [row for row in rows if row.tool.startswith("onnxproof") and not row.missing]
    lines = []
    for tool in TOOLS:
        other = by_tool.get(tool)
        if other is None:
            continue
        for what in ("size", "bits"):
            limit = getattr(other, what)
            fitting = [row for row in ours if getattr(row, what) <= limit]
            if what == "bits":
                fitting = [row for row in fitting if "bits=" in row.tool]
            if fitting:
                lines.append(_verdict(name, other, min(fitting, key=lambda row: row.kl), what))
    at_bits = by_tool.get(f"onnxproof bits={_BITS}")
    if at_bits is not None:
        word = "met" if at_bits.rise <= 0.02 else "MISSED"
        lines.append(f"- {name}: perplexity {at_bits.rise:+.2%} at {_BITS} bits a weight: {word}")
    return lines


def _verdict(name: str, other: Row, best: Row, what: str) -> str:
    share = best.kl / other.kl
    asked = 0.5 if other.tool.startswith("ort default") else 1.0
    word = "met" if share <= asked else "MISSED"
    terms = f"{best.size / other.size:.2f} of its bytes"
    if what == "bits":
        terms = f"{best.bits:.2f} bits a weight beside its {other.bits:.2f}"
    return f"- {name}: {share:.3f} of the KL of {other.tool} at {terms}: {word}"


_ABOUT = """# Four bits, measured

One run of `make bench-int4`. The models are trained by the bench itself, for {steps} steps on the sources of Python's library: small, and far from converged. All tools calibrate on the same
{calibrated} sequences of {length} tokens; KL and perplexity are those on {held} held-out sequences that no tool saw. Seconds are of a machine that may have run much else, so compare the CPU seconds; ours has the proof of the file
and its timing in it. Gemms were written as MatMul and Add for all tools, since ONNX Runtime's quantizers pass a Gemm over. ONNX Runtime's GPTQ takes the longest blocks that it does not fail with.

Bits are those of a weight that is kept in blocks, with its share of scales and zero points. Tied embeddings (GPT-2, Qwen3) are stored once by `w4` and twice by the others, or left float: at equal bytes that leaves it many more
bits. At equal bits (those of ONNX Runtime's smallest default, and those of the tool with the least KL) it has no such advantage, and keeps the tables in as few bits as all else, which most of the others leave float.
"""


def main() -> None:
    """Train what is not trained yet, let every tool quantize it, and print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--once", action="store_true", help="ours at the others' bytes alone")
    parser.add_argument("--markdown", type=Path)
    arguments = parser.parse_args()
    head = [
        "| model | tool | KL, nats a token (95 %) | perplexity | bytes | bits | seconds | CPU s | MB |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    lines, ends = [], []
    for kind in models.KINDS:
        if arguments.only not in kind.name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            comparison = Comparison(models.trained(kind), Path(folder))
            rows = comparison.rows(once=arguments.once)
            lines += table(kind.name, comparison, rows)
            ends += verdicts(kind.name, rows)
        print("\n".join([*head, *lines, "", *ends]), flush=True)
    if arguments.markdown is not None:
        about = _ABOUT.format(
            steps=models.KINDS[0].steps,
            calibrated=models.CALIBRATED_ON,
            length=models.LENGTH,
            held=models.HELD_OUT,
        )
        arguments.markdown.write_text("\n".join([about, *head, *lines, "", *ends]) + "\n")


if __name__ == "__main__":
    main()
