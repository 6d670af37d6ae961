"""Every operator of ours beside ONNX Runtime's kernel.

    python -m bench.evaluator [--seed 1] [--count 200] [--only MatMulNBits ...]

The exit code is 1 where an operator differs, or where a configuration was not run by both.
"""

import argparse
import sys

from bench.evaluator.compare import Comparison, compare, draw_configuration
from bench.evaluator.configurations import CONFIGURATIONS


def main() -> int:
    """Print a row for each operator."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--only", nargs="*", default=sorted(CONFIGURATIONS))
    options = parser.parse_args()
    print(f"{'operator':36s} {'agree':>6s} {'differ':>6s} {'refused':>7s} {'worst':>9s}")
    bad = 0
    for op_type in options.only:
        compared = [
            compare(op_type, draw_configuration(op_type, options.seed, place))
            for place in range(options.count)
        ]
        bad += _print_row(op_type, compared)
    print(f"{len(options.only)} operators, {options.count} configurations each, {bad} not right")
    return int(bad > 0)


def _print_row(op_type: str, compared: list[Comparison]) -> bool:
    """The row, below it the first problem of each kind; whether there was one."""
    problems = [(place, c.problem) for place, c in enumerate(compared) if c.problem]
    refused = [(place, c.refused) for place, c in enumerate(compared) if c.refused]
    agree = len(compared) - len(problems) - len(refused)
    worst = max((c.worst for c in compared if not c.problem), default=0.0)
    print(f"{op_type:36s} {agree:6d} {len(problems):6d} {len(refused):7d} {worst:9.1e}")
    for place, what in (*problems[:2], *refused[:2]):
        print(f"    configuration {place}: {what}")
    return bool(problems or refused)


if __name__ == "__main__":
    sys.exit(main())
