"""Wrong parameters of quantized files: planted from a seed, and what `verify` says of them and of their healthy twins.

    python -m bench.quantized_faults --seed 7 [--nets mlp conv] [--json PATH]

A fault counts where it costs the answers 3 dB or more; the others are printed as harmless. Caught: not FAITHFUL. Alarm: a healthy file that is not FAITHFUL.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch

import onnxproof
from bench.quantized_files import NETS, OURS, WAYS, Quantized, by_runtime, quantized_files
from bench.quantized_kinds import KINDS, PARAMETERS, TWINS, NotApplicable, Planted
from onnxproof.errors import OnnxproofError
from onnxproof.quantization.scoring import compare, compute_outputs
from onnxproof.results import Verdict
from onnxproof.results.proof import Proof

_COSTS_DB = 3.0
"""A change that costs less is no fault: the error's energy is not doubled."""
_NARROW = "calibration-narrow"
_NARROWED = 0.35
"""What the calibration data of the narrow ones is multiplied by: inner 16-bit ranges then clip a fifth of the values and more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One file and what was said of it."""

    file: str
    kind: str
    healthy: bool
    db: float
    verdict: str
    node: bool = False
    code: str = ""
    proven: bool = False
    right: bool = False
    nodes: tuple[str, ...] = ()
    evidence: str = ""
    seconds: float = 0.0


def level_db(found: Quantized, path: Path) -> float:
    """The SQNR of the file in dB, as it is served or without optimisation, whichever is less; minus infinity where it is refused."""
    model = onnx.load(path)
    with torch.no_grad():
        truth = found.module(torch.from_numpy(found.served)).numpy()
    samples = [("served", {model.graph.input[0].name: found.served})]
    try:
        outputs = [compute_outputs(model, samples, level) for level in ("", "disabled")]
    except OnnxproofError:
        return float("-inf")
    return min(compare([[truth]], answers).sqnr_db for answers in outputs)


def examine(found: Quantized, path: Path, budget_s: float) -> Proof:
    """Verify a file on the served data."""
    return onnxproof.verify(
        found.module,
        path,
        (torch.from_numpy(found.served[:2]),),
        dynamic_shapes=({0: "batch"},),
        data={"x": found.served},
        budget_s=budget_s,
    )


def row_of(
    found: Quantized, path: Path, kind: str, planted: Planted | None, budget_s: float
) -> Row:
    """Verify one file, and hold what was said against what was planted."""
    began = time.perf_counter()
    proof = examine(found, path, budget_s)
    first = proof.causes[0] if proof.causes else None
    nodes = () if proof.location is None else tuple(proof.location.nodes)
    guilty = set() if planted is None else _names(path, planted.guilty)
    codes = () if planted is None else planted.codes
    return Row(
        file=f"{found.net} {found.how}",
        kind=kind,
        healthy=planted is None,
        db=round(level_db(found, path), 1),
        verdict=proof.verdict.value,
        node=bool(nodes) and nodes[0] in guilty,
        code="" if first is None else first.code,
        proven=first is not None and first.proven,
        right=first is not None and first.code in codes,
        nodes=nodes[:3],
        evidence="" if first is None else first.evidence,
        seconds=round(time.perf_counter() - began, 1),
    )


def _names(path: Path, outputs: tuple[str, ...]) -> set[str]:
    nodes = onnx.load(path).graph.node
    return {node.name or node.output[0] for node in nodes if set(node.output) & set(outputs)}


def planted_rows(found: Quantized, seed: int, kinds: list[str], budget_s: float) -> Iterator[Row]:
    """Every kind once in one file."""
    healthy_db = level_db(found, found.path)
    for place, kind in enumerate(KINDS):
        if kind not in kinds:
            continue
        source = [ord(letter) for letter in found.net + found.how]
        random = np.random.default_rng([seed, place, *source])
        model = onnx.load(found.path)
        try:
            planted = KINDS[kind](model, random)
        except NotApplicable:
            continue
        path = found.path.with_name(f"{found.path.stem}-{kind}.onnx")
        onnx.save(model, path)
        db = level_db(found, path)
        if db > healthy_db - _COSTS_DB:
            yield Row(file=f"{found.net} {found.how}", kind=kind, healthy=True, db=db, verdict="")
            continue
        yield row_of(found, path, kind, planted, budget_s)


def healthy_rows(found: Quantized, budget_s: float) -> Iterator[Row]:
    """The file itself, and the same file in other words."""
    yield row_of(found, found.path, "healthy", None, budget_s)
    for name, change in TWINS.items():
        model = onnx.load(found.path)
        try:
            change(model)
        except NotApplicable:
            continue
        path = found.path.with_name(f"{found.path.stem}-{name}.onnx")
        onnx.save(model, path)
        yield row_of(found, path, name, None, budget_s)


def narrow_row(found: Quantized, budget_s: float) -> Row:
    """The file calibrated on data a third as large."""
    from dataclasses import replace

    path = found.path.with_name(f"{found.path.stem}-{_NARROW}.onnx")
    way = replace(WAYS[found.how], calibrated_on=_NARROWED)
    source = found.path.parent / "float.onnx"
    by_runtime(source, found.served, way, path)
    codes = ("calibration", "quant-saturation", *PARAMETERS)
    pairs = [n.output[0] for n in onnx.load(path).graph.node if n.op_type == "QuantizeLinear"]
    return row_of(found, path, _NARROW, Planted(guilty=tuple(pairs), codes=codes), budget_s)


def all_rows(found: Quantized, options: argparse.Namespace) -> Iterator[Row]:
    """Everything that is asked about one quantized file."""
    if "healthy" in options.kinds:
        yield from healthy_rows(found, options.budget)
    yield from planted_rows(found, options.seed, options.kinds, options.budget)
    if _NARROW in options.kinds and found.how in WAYS:
        yield narrow_row(found, options.budget)


def summary(rows: list[Row]) -> dict[str, Any]:
    """The figures of the table's last lines."""
    faults = [row for row in rows if not row.healthy]
    healthy = [row for row in rows if row.healthy and row.verdict]
    caught = [row for row in faults if row.verdict != Verdict.FAITHFUL.value]
    alarms = [row for row in healthy if row.verdict != Verdict.FAITHFUL.value]
    return {
        "faults": len(faults),
        "caught": len(caught),
        "healthy": len(healthy),
        "alarms": len(alarms),
        "node first": sum(row.node for row in faults),
        "cause right and proven": sum(row.right and row.proven for row in faults),
        "cause wrong and proven": sum(row.proven and not row.right for row in faults),
        "harmless": sum(not row.verdict for row in rows),
    }


def main() -> int:
    """Print a line for each file, then the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--nets", nargs="*", default=list(NETS))
    parser.add_argument("--ways", nargs="*", default=[*WAYS, *OURS])
    parser.add_argument("--kinds", nargs="*", default=["healthy", *KINDS, _NARROW])
    parser.add_argument("--budget", type=float, default=20.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for found in quantized_files(Path(folder), options.nets, options.ways):
            for row in all_rows(found, options):
                rows.append(row)
                print(line_of(row), flush=True)
    figures = summary(rows)
    for name, value in figures.items():
        print(f"{name:>24}: {value}")
    if options.json is not None:
        text = {"figures": figures, "rows": [asdict(row) for row in rows]}
        options.json.write_text(json.dumps(text, indent=1), encoding="utf-8")
    return 0


def line_of(row: Row) -> str:
    """One row for people: node and cause are marked where they are right."""
    marks = ("node" if row.node else "-", "right" if row.right else "-")
    proven = "proven" if row.proven else "-"
    return (
        f"{row.file:28} {row.kind:28} {row.db:6.1f} dB {row.verdict or 'harmless':9} {marks[0]:5}"
        f"{row.code:18} {marks[1]:6}{proven:7}{row.seconds:6.1f} s  {', '.join(row.nodes[:2])}"
    )


if __name__ == "__main__":
    sys.exit(main())
