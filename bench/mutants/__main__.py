"""Draw faults and healthy twins from a seed, verify each, and print what was caught, named and proven.

python -m bench.mutants --seed 7 --count 100 --twins 50
python -m bench.mutants --seed 7 --count 10 --only-model bert --only-kind epsilon

"""

import argparse
import concurrent.futures
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from bench.mutants import cache, rows, summary
from bench.mutants.draw import Mutant, Workshop
from bench.mutants.mutation import load_kinds
from bench.mutants.rows import Row
from bench.mutants.subjects import sources

CACHE = Path("~/.cache/onnxproof-mutants").expanduser()


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=40, help="faults to draw")
    parser.add_argument("--twins", type=int, default=0, help="healthy twins to draw")
    parser.add_argument(
        "--first", type=int, default=0, help="index of the first, to go on or replay one"
    )
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument(
        "--only-model", default="", help="subjects whose name holds one of these, with commas"
    )
    parser.add_argument("--only-kind", default="", help="kinds whose name holds this")
    parser.add_argument("--budget", type=float, default=30.0, help="seconds for a verification")
    parser.add_argument("--json", type=Path, help="keep all rows")
    parser.add_argument("--markdown", type=Path, help="write the tables of docs/mutants.md")
    parser.add_argument("--cache", type=Path, default=CACHE, help="where exports are kept")
    parser.add_argument("--keep", type=Path, help="write the changed files here")
    parser.add_argument("--dry", action="store_true", help="draw, but do not verify")
    return parser.parse_args(arguments)


def prepare_all(options: argparse.Namespace) -> list[cache.Health]:
    """Export what was not exported yet, each in a process of its own, and say what can't be used."""
    parts = options.only_model.split(",")
    chosen = [one for name, one in sources().items() if any(part in name for part in parts)]
    return [cache.prepare_apart(source, options.cache, options.budget) for source in chosen]


def draw_all(options: argparse.Namespace, workshop: Workshop) -> Iterator[tuple[Row, Mutant]]:
    """Faults and twins in turn, so that a run that is ended early has both."""
    for index in range(options.first, options.first + max(options.count, options.twins)):
        for healthy, count in ((False, options.count), (True, options.twins)):
            if index - options.first >= count:
                continue
            mutant = workshop.draw(
                options.seed, index, healthy=healthy, only_kind=options.only_kind
            )
            if mutant is not None:
                yield rows.row_of(mutant, options.seed, index, healthy=healthy), mutant


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw, verify, print; the exit code says whether anything was missed, alarmed, crashed or wrongly proven."""
    options = parse(arguments)
    load_kinds()
    workshop = Workshop.of(options.cache, prepare_all(options))
    done: list[Row] = []

    def verify(drawn: tuple[Row, Mutant]) -> None:
        row, mutant = drawn
        if options.keep:
            _keep(options.keep, row, mutant)
        if options.dry:
            row.verdict = "not run"
        else:
            row = rows.verify(
                row,
                mutant.model,
                sources()[row.model],
                options.cache,
                budget_s=options.budget,
                limit=8 * options.budget,
            )
        done.append(row)
        print(summary.line(row), flush=True)
        if options.json:
            options.json.write_text(json.dumps([asdict(one) for one in done], indent=1))

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for _ in pool.map(verify, draw_all(options, workshop)):
            pass
    done.sort(key=lambda row: (row.index, row.healthy))
    print("\n" + summary.totals(done))
    print(summary.by(done, "kind"))
    print(summary.by(done, "model"))
    if options.markdown:
        options.markdown.write_text(summary.page(done))
    return int(any(row.wrong for row in done))


def _keep(folder: Path, row: Row, mutant: Mutant) -> None:
    """The changed file under a name that says what it is."""
    import onnx

    folder.mkdir(parents=True, exist_ok=True)
    word = "twin" if row.healthy else "fault"
    onnx.save(mutant.model, folder / f"{word}_{row.seed}_{row.index}.onnx")


if __name__ == "__main__":
    sys.exit(main())
