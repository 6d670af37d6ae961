"""Run the operators, or those that are left of a run that was stopped."""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import bench.operators
from bench.operators.run import run
from bench.operators.table import summary, table


def main() -> int:
    """1 where a sample ended its process or the bench itself failed."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.operators",
        description=bench.operators.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, default=None, help="drawn from the clock if left out")
    parser.add_argument("--only", default="", help="names of operators, with commas between them")
    parser.add_argument("--samples", type=int, default=2, help="how many of each operator")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--json", type=Path, help="append a line of JSON for each sample")
    parser.add_argument("--markdown", type=Path, help="write the rows as a table")
    words = parser.parse_args()
    seed = words.seed
    if seed is None:
        seed = int(time.time()) % 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        path = words.json or Path(folder) / "rows.jsonl"
        rows = run(words.only, seed, words.samples, words.jobs, path)
    print(f"\nseed {seed}: {summary(rows)}")
    if words.markdown is not None:
        words.markdown.write_text(table(rows, seed, words.samples))
    return int(any(row.verdict in ("crash", "hang", "failed") for row in rows))


if __name__ == "__main__":
    sys.exit(main())
