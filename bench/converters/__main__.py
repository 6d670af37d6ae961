"""Healthy conversions without an alarm, and faults with their node and cause: `make bench-converters` writes docs/converters.md."""

import argparse
import json
import os
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "jax")
import onnx

import onnxproof
from bench.converters import faults, healthy
from bench.converters.healthy import Conversion
from onnxproof.results import Verdict

_BAD = (Verdict.DRIFT, Verdict.DIVERGED)


def _verify(conversion: Conversion, budget: float, explain: bool) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return onnxproof.verify(
            conversion.reference,
            conversion.path,
            conversion.example,
            budget_s=budget,
            explain=explain,
        )


def _ratio(proof: Any) -> float:
    ratios = [gap.noise_ratio for gap in proof.gaps if gap.domain is None and gap.compared]
    return max(ratios, default=0.0)


class Rows:
    """What was measured, kept in a file so that a run that was stopped goes on."""

    def __init__(self, path: Path | None, limit_s: float) -> None:
        self._path = path
        self._end = time.perf_counter() + limit_s
        self.by_part: dict[str, dict[str, list[str]]] = {"healthy": {}, "faults": {}}
        if path is not None and path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                part, row = json.loads(line)
                self.by_part[part][row[0]] = row

    def wants(self, part: str, name: str) -> bool:
        return name not in self.by_part[part] and time.perf_counter() < self._end

    def add(self, part: str, row: list[str]) -> None:
        self.by_part[part][row[0]] = row
        print(*row, flush=True)
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps([part, row]) + "\n")


def run_healthy(conversions: dict[str, Conversion], rows: Rows, budget: float) -> None:
    for conversion in conversions.values():
        if not rows.wants("healthy", conversion.name):
            continue
        begun = time.perf_counter()
        proof = _verify(conversion, budget, explain=False)
        rows.add(
            "healthy",
            [
                conversion.name,
                conversion.kind,
                proof.verdict.value,
                f"{_ratio(proof):.2g}",
                str(len({gap.case for gap in proof.gaps})),
                f"{time.perf_counter() - begun:.1f}",
            ],
        )


def run_faults(wrong: Iterable[faults.Fault], rows: Rows, budget: float) -> None:
    for fault in wrong:
        if not rows.wants("faults", fault.name):
            continue
        proof = _verify(fault.conversion, budget, explain=True)
        graph = onnx.load(fault.conversion.path).graph
        op_types = {node.name or node.output[0]: node.op_type for node in graph.node}
        located = list(proof.location.nodes if proof.location else ())
        first = op_types.get(located[0], "") if located else ""
        rows.add(
            "faults",
            [
                fault.name,
                "native" if fault.native else "planted",
                "yes" if proof.verdict in _BAD else "no",
                _node_words(fault.op_type, first),
                _cause_words(fault.codes, next(iter(proof.causes), None)),
            ],
        )


def _node_words(wanted: str, first: str) -> str:
    if not wanted:
        return f"({first})"
    return f"{'yes' if first.startswith(wanted) else 'no'} ({first or 'none'})"


def _cause_words(codes: tuple[str, ...], cause: Any) -> str:
    given = "none" if cause is None else f"{cause.code}, {'proven' if cause.proven else 'likely'}"
    if not codes:
        return f"({given})"
    return f"{'yes' if cause is not None and cause.code in codes else 'no'} ({given})"


def _table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def page(healthy_rows: list[list[str]], fault_rows: list[list[str]]) -> str:
    kinds = Counter(row[1] for row in healthy_rows)
    calm = sum(row[2] == "faithful" for row in healthy_rows)
    caught = sum(row[2] == "yes" for row in fault_rows)
    nodes = [row[3] for row in fault_rows if not row[3].startswith("(")]
    causes = [row[4] for row in fault_rows if not row[4].startswith("(")]
    return f"""# Conversions that are not from PyTorch, measured

`make bench-converters` runs this and writes this page. Kinds of reference: {", ".join(f"{kind} ({count})" for kind, count in kinds.items())}.

- Healthy conversions: {calm} of {len(healthy_rows)} are called faithful.
- Faults: {caught} of {len(fault_rows)} are caught, {sum(row[1] == "native" for row in fault_rows)} of them made by the converter itself.
- Of {len(nodes)} faults with one guilty node, it is named first in {sum(word.startswith("yes") for word in nodes)}.
- Of {len(causes)} faults whose cause has a code, the first cause is right in {sum(word.startswith("yes") for word in causes)}, and proven in {sum(word.startswith("yes") and "proven" in word for word in causes)}.

## Healthy

{_table(["model", "reference", "verdict", "worst x noise", "cases", "s"], healthy_rows)}

## Faults

A node or a cause in brackets was not asked for.

{_table(["fault", "made", "caught", "node named first", "first cause"], fault_rows)}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--rows", type=Path, help="keep what was measured here, and go on from it")
    parser.add_argument("--family", nargs="*", default=[], help="sklearn, lightgbm, ..., native")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after so many")
    parser.add_argument("--budget", type=float, default=30.0)
    chosen = parser.parse_args()
    rows = Rows(chosen.rows, chosen.seconds)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for family in healthy.families(chosen.family):
            conversions = {each.name: each for each in healthy.converted(family, folder)}
            run_healthy(conversions, rows, chosen.budget)
            run_faults(faults.planted(conversions), rows, chosen.budget)
        if not chosen.family or "native" in chosen.family:
            run_faults(faults.native(folder), rows, chosen.budget)
    if chosen.markdown:
        parts = [list(part.values()) for part in rows.by_part.values()]
        chosen.markdown.write_text(page(*parts), encoding="utf-8")


if __name__ == "__main__":
    main()
