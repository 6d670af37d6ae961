"""Fuzz, or replay a call that failed."""

import argparse
import collections
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

from bench.fuzz.run import Result, in_processes, one, prepare, table
from bench.fuzz.samples import ALL_KINDS, Call


def main() -> int:
    """1 where a call did what none may do."""
    parser = argparse.ArgumentParser(prog="python -m bench.fuzz", description=__doc__)
    parser.add_argument(
        "--seed",
        type=int,
        default=None,
        help="any number; drawn from the clock where it is left out",
    )
    parser.add_argument("--count", type=int, default=200, help="calls")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument(
        "--kind", action="append", choices=ALL_KINDS, help="these kinds of damage only"
    )
    parser.add_argument(
        "--failures",
        type=Path,
        default=Path("fuzz-failures"),
        help="where the files of failing calls are kept",
    )
    parser.add_argument("--replay", type=Path, help="run one of those again, and show what it says")
    parser.add_argument("--json", type=Path, help="write every result")
    words = parser.parse_args()
    if words.replay is not None:
        return replay(words.replay)
    seed = int(time.time()) % 1_000_000 if words.seed is None else words.seed
    start = time.perf_counter()
    results = in_processes(seed, words.count, words.jobs, words.failures, words.kind or ALL_KINDS)
    if words.json is not None:
        words.json.write_text(json.dumps([asdict(result) for result in results], indent=1))
    sys.stdout.write(table(results) + "\n")
    return summary(results, seed, time.perf_counter() - start, words.failures)


def summary(results: list[Result], seed: int, seconds: float, failures: Path) -> int:
    """The last lines: each fault once, with the line that replays it."""
    bad = [result for result in results if result.faults]
    groups = collections.defaultdict(list)
    for result in bad:
        groups[tuple(result.faults), result.detail.splitlines()[0] if result.detail else ""].append(
            result
        )
    for (faults, detail), members in sorted(groups.items(), key=lambda item: -len(item[1])):
        sys.stdout.write(
            f"\n{len(members)} times {', '.join(faults)}: {ascii(detail)[:300]}\n  {', '.join(sorted({m.kind for m in members})[:6])}\n"
            f"  python -m bench.fuzz --replay {failures}/{members[0].seed}-{members[0].index}\n"
        )
    sys.stdout.write(
        f"\nseed {seed}: {len(results)} calls, {len(bad)} with faults, {sum(r.seconds for r in results):.0f} s of processor time, {seconds:.0f} s\n"
    )
    return int(bool(bad))


def replay(folder: Path) -> int:
    """Run a kept call again where its files are."""
    from bench.fuzz.models import bases

    prepare()
    call = Call.load(folder)
    result = one(call, folder.absolute(), bases())
    sys.stdout.write(f"onnxproof {call.words!a}\n")
    for name in ("stdout", "stderr"):
        sys.stdout.write(
            ascii((folder / name).read_text(errors="replace")).replace("\\n", "\n") + "\n"
        )
    sys.stdout.write(
        f"exit code {result.code}, verdict {result.verdict or 'none'}, faults: {', '.join(result.faults) or 'none'} {result.detail!a}\n"
    )
    return int(bool(result.faults))


if __name__ == "__main__":
    sys.exit(main())
