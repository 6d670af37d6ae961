"""How much more than its own rounding a 4-bit file may lose: healthy files of ONNX Runtime's quantizers and ours, and the same files with a fault.

python -m bench.few_bits [--draws 2] [--seed 5] [--without-training]

`loses`: decibels by which a file is worse than the reference with its own weights rounded to the nearest of as many levels in as large blocks. `judging.ROUNDING_SLACK_DB` is the limit of it,
and `limits` the KL from which on a language model is no longer FAITHFUL: this prints how many healthy files and how many faults lie beyond each of several limits.
"""

import argparse
import logging
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from bench.fused import subjects
from bench.fused.block_kinds import BLOCKS
from bench.mutants.graph import Graph
from onnxproof.errors import OnnxproofError
from onnxproof.quantization.blockwise.float_twin import float_twin, stored_matrices, with_numbers
from onnxproof.quantization.blockwise.judge import Judge
from onnxproof.quantization.blockwise.matrices import split_gemms
from onnxproof.quantization.float_graph import prepare
from onnxproof.quantization.scoring import compare, compute_outputs
from onnxproof.verification import block_reading, block_weights

Batches = list[tuple[str, dict[str, np.ndarray]]]
_LIMITS = (0.75, 1.5, 3.0, 6.0, 12.0)
_NATS = (0.01, 0.025, 0.05, 0.1, 0.2, 0.4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A float graph with inputs to judge its files by."""

    name: str
    model: onnx.ModelProto
    batches: Batches
    trained: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One file."""

    source: str
    tool: str
    fault: str
    trained: bool
    db: float
    loses: float
    nats: float | None


def sources(folder: Path, *, train: bool) -> Iterator[Source]:
    """Networks with random weights, and language models that were trained."""
    rng = np.random.default_rng(3)
    plain: Mapping[str, Callable[[Path], Any]] = {
        "mlp": subjects.mlp,
        "stack": subjects.stack,
        "llama": lambda place: subjects.decoder(subjects.LLAMA, place),
        "gemma": lambda place: subjects.decoder(subjects.GEMMA, place),
        "rotary": lambda place: subjects.decoder(subjects.ROTARY, place),
    }
    for name, build in plain.items():
        place = folder / name
        place.mkdir()
        built = build(place)
        model = onnx.load(built.correct)
        (example,) = (np.asarray(one) for one in built.example_inputs)
        batches = []
        for k in range(4):
            drawn = rng.standard_normal(example.shape).astype(np.float32)
            if example.dtype.kind == "i":
                drawn = rng.integers(0, subjects.LLAMA.vocabulary, example.shape)
            batches.append((str(k), {model.graph.input[0].name: drawn}))
        yield Source(name=name, model=model, batches=batches)
    if train:
        from bench import int4_models

        for kind in int4_models.KINDS:
            trained = int4_models.trained(kind)
            texts = [("texts", {"input_ids": trained.held_out[:16]})]
            model = split_gemms(prepare(trained.path))
            yield Source(name=kind.name, model=model, batches=texts, trained=True)


def files(source: Source) -> Iterator[tuple[str, onnx.ModelProto]]:
    """Healthy files."""
    from onnxruntime.quantization.matmul_nbits_quantizer import (
        HQQWeightOnlyQuantConfig,
        MatMulNBitsQuantizer,
    )

    options: dict[str, dict[str, Any]] = {}
    for block in (16, 32, 64, 128):
        options[f"symmetric {block}"] = {"block_size": block, "is_symmetric": True}
        options[f"asymmetric {block}"] = {"block_size": block, "is_symmetric": False}
        options[f"hqq {block}"] = {"algo_config": HQQWeightOnlyQuantConfig(block_size=block)}
    for name, chosen in options.items():
        quantizer = MatMulNBitsQuantizer(_copy(source.model), **chosen)
        quantizer.process()
        yield name, quantizer.model.model
    for name, made in _grouped(source):
        yield name, made


def _grouped(source: Source) -> Iterator[tuple[str, onnx.ModelProto]]:
    """Blocks of columns that are alike, as GPTQ's act-order makes them."""
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    quantizer = MatMulNBitsQuantizer(_copy(source.model), block_size=16, is_symmetric=True)
    quantizer.process()
    made = quantizer.model.model
    try:
        subjects.group_columns(made, source.model, 16)
    except KeyError:
        return  # a product whose constant goes by another name
    yield "grouped 16", made


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    other = onnx.ModelProto()
    other.CopyFrom(model)
    return other


class Scale:
    """What is known of a source: its own answers, and those of its weights rounded as a file's are."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.floats = {
            tensor.name: numpy_helper.to_array(tensor)
            for tensor in source.model.graph.initializer
            if len(tensor.dims) == 2 and tensor.data_type == onnx.TensorProto.FLOAT
        }
        self.answers = compute_outputs(source.model, source.batches)
        self.judge = Judge(source.model, source.batches, None)

    def measure(
        self, tool: str, healthy: onnx.ModelProto, file: onnx.ModelProto, fault: str
    ) -> Measured:
        """A file beside its healthy form, whose blocks say what rounding must cost."""
        weights = block_reading.find(healthy)
        matrices = stored_matrices(weights, block_weights.find_origins(weights, self.floats))
        twin = float_twin(healthy, matrices, own=True)
        rounded = {w: w.rounded(each.plain) for each in matrices for w in each.weights}
        expected = self._db(with_numbers(twin, rounded))
        found = self._db(file)
        nats = self.judge.cost(file) if self.judge.unit == "nats" else None
        return Measured(
            source=self.source.name,
            tool=tool,
            fault=fault,
            trained=self.source.trained,
            db=found,
            loses=expected - found,
            nats=nats,
        )

    def _db(self, model: onnx.ModelProto) -> float:
        return compare(self.answers, compute_outputs(model, self.source.batches)).sqnr_db


def measure_all(source: Source, draws: int, seed: int) -> Iterator[Measured]:
    """Every healthy file of a source, and faults in it."""
    scale = Scale(source)
    rng = Random(f"{seed}/{source.name}")
    for tool, healthy in files(source):
        yield scale.measure(tool, healthy, healthy, "")
        for kind in sorted(BLOCKS):
            for _ in range(draws):
                file = _copy(healthy)
                del file.graph.value_info[:]
                if BLOCKS[kind](Graph(file, source.batches[0][1]), rng) is None:
                    break
                try:
                    yield scale.measure(tool, healthy, file, kind)
                except OnnxproofError:
                    break


def shares(rows: list[Measured]) -> Iterator[str]:
    """The tables."""
    healthy = [row for row in rows if not row.fault]
    faulty = [row for row in rows if row.fault]
    losses = [row.loses for row in healthy]
    yield f"{len(healthy)} healthy files lose {min(losses):.2f} to {max(losses):.2f} dB more than their rounding; {len(faulty)} faults"
    yield "limit of dB | healthy beyond | faults within"
    for limit in _LIMITS:
        beyond = sum(row.loses > limit for row in healthy)
        within = sum(row.loses <= limit for row in faulty)
        yield f"{limit:>11} | {beyond:>14} | {within:>13}"
    for trained in (True, False):
        ours = [row.nats for row in healthy if row.nats is not None and row.trained == trained]
        theirs = [row.nats for row in faulty if row.nats is not None and row.trained == trained]
        if not ours:
            continue
        word = "trained" if trained else "random"
        yield f"{word} language models: healthy files cost {min(ours):.3g} to {max(ours):.3g} nats a token"
        for limit in _NATS:
            beyond = sum(nats > limit for nats in ours)
            told = sum(nats > limit for nats in theirs)
            yield f"  beyond {limit}: {beyond} of {len(ours)} healthy, {told} of {len(theirs)} faulty"


def by_tool(rows: list[Measured]) -> Iterator[str]:
    """What healthy files of each kind lose at worst."""
    healthy = [row for row in rows if not row.fault]
    for tool in dict.fromkeys(row.tool for row in healthy):
        worst = max((row for row in healthy if row.tool == tool), key=lambda row: row.loses)
        yield f"{tool:>14}: at worst {worst.loses:+.2f} dB ({worst.source}, {worst.db:.1f} dB)"
    for kind in sorted({row.fault for row in rows if row.fault}):
        losses = sorted(row.loses for row in rows if row.fault == kind)
        yield f"{kind:>24}: {losses[0]:+.1f} to {losses[-1]:+.1f} dB, median {losses[len(losses) // 2]:+.1f}, {len(losses)} files"


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=2, help="faults of a kind in each file")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--without-training", action="store_true", help="random weights alone")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    rows: list[Measured] = []
    with tempfile.TemporaryDirectory() as folder:
        for source in sources(Path(folder), train=not options.without_training):
            rows += measure_all(source, options.draws, options.seed)
            print(f"{source.name}: {len(rows)} files", file=sys.stderr, flush=True)
    print("\n".join([*by_tool(rows), "", *shares(rows)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
