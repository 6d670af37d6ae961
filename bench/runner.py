"""Run onnxproof over healthy models and faults, each in a process of its own, and print one row a run.

python -m bench.runner clean                      # the healthy models: margin to the thresholds
python -m bench.runner faults --jobs 2            # our faults and their correct twins
python -m bench.runner faults --only p_conv       # some of them

"""

import argparse
import concurrent.futures
import importlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.corpus import Built, Meta


@dataclass(slots=True, kw_only=True)
class Row:
    """One verification of one file."""

    case: str
    twin: str
    verdict: str = "crash"
    cause: str = ""
    also: list[str] = field(default_factory=list)
    """Other codes that name it rightly."""
    domain: str = ""
    notes: list[str] = field(default_factory=list)
    stage: str = ""
    nodes: list[str] = field(default_factory=list)
    guilty: list[str] = field(default_factory=list)
    causes: list[tuple[str, bool]] = field(default_factory=list)
    fixed: bool = False
    ratio: float = 0.0
    worst_ratio: float = 0.0
    worst_case: str = ""
    seconds: float = 0.0
    forward_s: float = 0.0
    cases: int = 0
    why: str = ""

    @property
    def caught(self) -> bool:
        """Flagged, or noted in an odd domain."""
        return self.verdict in ("diverged", "drift", "error") or bool(self.notes)

    @property
    def proves(self) -> str:
        """What the first cause is, if it is called proven: `right` or `wrong`."""
        if not self.causes or not self.causes[0][1]:
            return ""
        return "right" if self.causes[0][0] in (self.cause, *self.also) else "wrong"

    @property
    def rank(self) -> int | None:
        """The place of the first guilty node among those named, from 1."""
        return next(
            (place + 1 for place, node in enumerate(self.nodes) if node in self.guilty), None
        )

    @property
    def wrong(self) -> str:
        """What is bad about this row, if anything."""
        if self.verdict in ("crash", "timeout"):
            return self.verdict.upper()
        if self.twin == "faulty":
            return "" if self.caught else "MISSED"
        return "" if self.verdict == "faithful" else "FALSE ALARM"


def one(name: str, twin: str) -> Row | None:
    """Build a case and verify one of its two files, in this process."""
    module = importlib.import_module(name)
    meta: Meta = module.META
    row = Row(
        case=name.rpartition(".")[2],
        twin=twin,
        cause=meta.cause or "",
        also=list(meta.also),
        domain=meta.domain or "",
    )
    with tempfile.TemporaryDirectory() as folder:
        built: Built = module.build(Path(folder))
        path = built.faulty if twin == "faulty" else built.correct
        if path is None:
            return None
        import onnxproof
        from onnxproof.results import judging

        start = time.perf_counter()
        proof = onnxproof.verify(
            built.model, path, built.example_inputs, dynamic_shapes=built.dynamic_shapes
        )
        row.seconds = round(time.perf_counter() - start, 2)
        row.forward_s = round(sum(s for n, s in proof.seconds.items() if n != "total"), 2)
        row.verdict, row.notes = proof.verdict.value, sorted({n.domain.value for n in proof.notes})
        row.cases, row.guilty = len({g.case for g in proof.gaps}), list(built.guilty)
        row.causes = [(c.code, c.proven) for c in proof.causes]
        row.fixed = any(
            c.fix is not None and c.fix.verdict is not None and c.fix.verdict.value == "faithful"
            for c in proof.causes
        )
        if proof.location is not None:
            row.stage, row.nodes = proof.location.stage.value, list(proof.location.nodes)
        counted = [g for g in proof.gaps if g.domain is None]
        if counted:
            worst = max(counted, key=lambda g: judging.severity(g, proof.policy))
            row.ratio, row.worst_ratio, row.worst_case = (
                max(g.noise_ratio for g in counted),
                max(g.worst_ratio for g in counted),
                worst.case,
            )
    return row


def child(name: str, twin: str, limit: float) -> Row | None:
    """The same in a process of its own: a crash or a hang is a row, too."""
    command = [sys.executable, "-m", "bench.runner", "--child", name, twin]
    short = name.rpartition(".")[2]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return Row(case=short, twin=twin, verdict="timeout")
    rows = [line for line in done.stdout.splitlines() if line.startswith("ROW ")]
    if not rows:
        return Row(case=short, twin=twin, verdict="crash", why=(done.stderr or done.stdout)[-300:])
    found = json.loads(rows[-1][4:])
    return Row(**found) if found else None


def run(todo: Sequence[tuple[str, str]], jobs: int, limit: float) -> list[Row]:
    """All of them, a few at a time, each printed as it ends."""
    rows: list[Row] = []

    def go(item: tuple[str, str]) -> None:
        row = child(*item, limit)
        if row is not None:
            rows.append(row)
            print(line(row), flush=True)

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        list(pool.map(go, todo))
    return sorted(rows, key=lambda r: (r.case, r.twin))


def line(row: Row) -> str:
    """One row of the listing."""
    extra = f"node {row.rank or '-'} {row.causes[:1]} " if row.twin == "faulty" else ""
    return (
        f"{row.case:44s} {row.twin:8s} {row.verdict:9s} {row.ratio:10.3g} {row.worst_ratio:10.3g} {row.worst_case[:36]:36s} "
        f"{','.join(row.notes) or '-':12s} {extra}{row.seconds:6.1f}s {row.wrong} {row.why}"
    )


def summary(rows: Sequence[Row]) -> str:
    """The totals."""
    faulty, healthy = (
        [r for r in rows if r.twin == "faulty"],
        [r for r in rows if r.twin != "faulty"],
    )
    lines = []
    if faulty:
        firsts, threes = (
            sum(r.rank == 1 for r in faulty),
            sum(r.rank is not None and r.rank <= 3 for r in faulty),
        )
        proven = sum(r.proves == "right" for r in faulty)
        wrongly = sum(r.proves == "wrong" for r in faulty)
        lines.append(
            f"caught {sum(r.caught for r in faulty)}/{len(faulty)}; guilty node first {firsts}, within three {threes}; "
            f"right cause first and proven {proven}, another cause proven {wrongly}, fixed {sum(r.fixed for r in faulty)}"
        )
    if healthy:
        finite = [r for r in healthy if r.verdict == "faithful"]
        lines.append(
            f"healthy: {sum(r.verdict != 'faithful' for r in healthy)} false alarms of {len(healthy)}; "
            f"largest noise ratio {max((r.ratio for r in finite), default=0):.2f}, worst element {max((r.worst_ratio for r in finite), default=0):.2f}"
        )
    lines.append(
        f"{sum(r.seconds for r in rows):.0f} s in all, {sum(r.forward_s for r in rows):.0f} s of it in forward passes"
    )
    return "\n".join(lines)


def table(rows: Sequence[Row]) -> str:
    """The rows for the docs, the largest ratio first."""
    head = [
        "# The last measurement",
        "",
        "Made by `python -m bench.runner ... --markdown`: one row a verification with the default settings.",
        "",
        *(f"- {text}" for text in summary(rows).splitlines()),
        "",
        "| case | file | verdict | noise ratio | worst element | cases | notes |",
        "| --- | --- | --- | ---: | ---: | ---: | --- |",
    ]
    body = [
        f"| {r.case} | {r.twin} | {r.verdict} | {r.ratio:.2f} | {r.worst_ratio:.2f} | {r.cases} | {', '.join(r.notes)} |"
        for r in sorted(rows, key=lambda r: -r.ratio)
    ]
    return "\n".join([*head, *body]) + "\n"


def names(package: str, only: str) -> list[str]:
    """The cases of a package whose name holds one of the comma-separated words."""
    import pkgutil

    found = sorted(
        i.name
        for i in pkgutil.iter_modules(importlib.import_module(package).__path__)
        if not i.name.startswith("_")
    )
    return [
        f"{package}.{name}"
        for name in found
        if not only or any(word in name for word in only.split(","))
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, run, print, and say by the exit code whether anything was wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="*", help="clean, faults, or both (the default)")
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit", type=float, default=240.0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path, help="write the rows as a table")
    parser.add_argument("--child", nargs=2)
    options = parser.parse_args(arguments)
    if options.child:
        import torch

        torch.set_num_threads(1)
        found: Any = one(*options.child)
        print("ROW " + json.dumps(asdict(found) if found else None))
        return 0
    todo = []
    for what in options.what or ("clean", "faults"):
        for name in names(f"bench.{what}", options.only):
            todo += [(name, "faulty")] * (what == "faults") + [(name, "correct")]
    rows = run(todo, options.jobs, options.limit)
    print("\n" + summary(rows))
    if options.json:
        options.json.write_text(json.dumps([asdict(r) for r in rows], indent=1))
    if options.markdown:
        options.markdown.write_text(table(rows))
    return int(any(row.wrong for row in rows))


if __name__ == "__main__":
    sys.exit(main())
