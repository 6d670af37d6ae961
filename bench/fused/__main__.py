"""Faults in fused and in 4-bit files, drawn from a seed, and what `verify` says of them and of their healthy twins.

python -m bench.fused --seed 7 [--count 20] [--twins 12] [--only-model llama] [--only-kind scale] [--json PATH]

Caught: another verdict than the healthy file has. Located: the guilty node is the first one named. Cause right: the first cause is true of
what was planted, proven or not. The bar: at least 18 of 20 caught with node and cause right, no alarm, no wrong cause called proven.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from random import Random

from bench.fused.block_kinds import BLOCKS
from bench.fused.kinds import FUSED
from bench.fused.subjects import sources
from bench.fused.twins import TWINS
from bench.mutants import cache, rows, summary
from bench.mutants.draw import Mutant, Workshop
from bench.mutants.mutation import Change
from bench.mutants.rows import Row

CACHE = Path("~/.cache/onnxproof-fused").expanduser()
_TRIES = 60
"""Draws of a kind and a model before none is left that applies."""


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=20, help="faults to draw")
    parser.add_argument("--twins", type=int, default=12, help="healthy twins to draw")
    parser.add_argument("--only-model", default="", help="subjects whose name holds this")
    parser.add_argument("--only-kind", default="", help="kinds whose name holds this")
    parser.add_argument("--budget", type=float, default=30.0, help="seconds for a verification")
    parser.add_argument("--json", type=Path, help="keep all rows")
    parser.add_argument("--cache", type=Path, default=CACHE, help="where healthy files are kept")
    return parser.parse_args(arguments)


def draw_all(options: argparse.Namespace, workshop: Workshop) -> Iterator[tuple[Row, Mutant]]:
    """Faults in fused and in 4-bit files in turn, each kind once before any comes twice; then the twins."""
    rng = Random(options.seed)
    turns = [_kinds(rng, kinds, options.only_kind) for kinds in (FUSED, BLOCKS)]
    turns = [turn for turn in turns if turn]
    for index in range(options.count):
        kinds = turns[index % len(turns)]
        mutant = _draw(workshop, kinds, rng, healthy=False)
        if mutant is not None:
            yield rows.row_of(mutant, options.seed, index, healthy=False), mutant
    kinds = _kinds(rng, TWINS, "")
    for index in range(options.twins):
        mutant = _draw(workshop, kinds, rng, healthy=True)
        if mutant is not None:
            yield rows.row_of(mutant, options.seed, index, healthy=True), mutant


def _kinds(rng: Random, register: Mapping[str, Change], only: str) -> list[Change]:
    names = sorted(name for name in register if only in name)
    rng.shuffle(names)
    return [register[name] for name in names]


def _draw(workshop: Workshop, kinds: list[Change], rng: Random, *, healthy: bool) -> Mutant | None:
    """The next kind in a model that it applies to; the kinds are taken in turn."""
    for _ in range(_TRIES):
        if not kinds:
            return None
        change = kinds.pop(0)
        kinds.append(change)
        subjects = sorted(workshop.health)
        rng.shuffle(subjects)
        for subject in subjects:
            mutant = workshop.change(subject, change, rng)
            if mutant is not None and workshop.accepts(mutant, healthy=healthy):
                return mutant
    return None


def judged(row: Row, health: cache.Health) -> str:
    """What is bad about a row; a 4-bit file passes with the verdict of its healthy form."""
    if row.healthy:
        return "" if row.verdict in ("faithful", health.verdict) else "ALARM"
    if row.verdict in ("crash", "timeout"):
        return row.verdict.upper()
    if row.verdict in ("faithful", health.verdict) and row.rank is None:
        return "MISSED"
    if row.proven_wrong:
        return "WRONG AND PROVEN"
    wrong = []
    if row.rank != 1:
        wrong.append("node")
    if not row.cause_right:
        wrong.append("cause")
    return " and ".join(wrong)


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw, verify, print; the exit code says whether the bar was missed."""
    options = parse(arguments)
    chosen = {name: one for name, one in sources().items() if options.only_model in name}
    health = [cache.prepare_apart(one, options.cache, options.budget) for one in chosen.values()]
    workshop = Workshop.of(options.cache, health)
    done: list[Row] = []
    bad: dict[int, str] = {}
    for row, mutant in draw_all(options, workshop):
        row = rows.verify(
            row,
            mutant.model,
            chosen[row.model],
            options.cache,
            budget_s=options.budget,
            limit=8 * options.budget,
        )
        bad[len(done)] = judged(row, workshop.health[row.model])
        done.append(row)
        print(summary.line(row), bad[len(done) - 1] or "right", flush=True)
        if options.json:
            options.json.write_text(json.dumps([asdict(one) for one in done], indent=1))
    faults = [place for place, row in enumerate(done) if not row.healthy]
    right = sum(not bad[place] for place in faults)
    print(summary.totals(done))
    alarms = [word for word in bad.values() if word in ("ALARM", "WRONG AND PROVEN")]
    print(f"caught with node and cause right: {right} of {len(faults)}; alarms {len(alarms)}")
    return int(right < 0.9 * len(faults) or bool(alarms))


if __name__ == "__main__":
    sys.exit(main())
