"""Cost and memory of a verification against the size of the model: `make bench-scale`.

    python -m bench.scale                              # 0.2 million to 355 million parameters, nodes, outputs
    python -m bench.scale --models bert,llama --faults # a billion too, and faults deep inside
    OMP_NUM_THREADS=1 python -m bench.scale --cpu-clock # a budget of CPU seconds of one thread: for a machine that does much else

Each measurement has a process of its own. Peak memory is that of one process; CPU seconds are over the seconds of its forward passes.
"""

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.scale.child import CPU_CLOCK
from onnxproof.system import temporary

_PEAK, _PEAK_EXPLAINING, _BESIDE_GB = 1.35, 1.6, 0.3
"""Bars: times the peak of the plain script, and gigabytes beside."""
_NODES, _OUTPUTS = (8, 16, 32, 64), (2, 8, 32)
_HEAD = "| model | parameters | nodes | plain GB | verify GB | x plain | seconds | time / passes | cases | verdict |"


def measure(what: str, name: str, path: Path, *words: str) -> dict[str, Any]:
    """One measurement in a process of its own."""
    command = [sys.executable, "-m", "bench.scale.child", what, name, str(path), *words]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
    measured: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return measured


def model_row(name: str, folder: Path, budget_s: float, *clock: str) -> dict[str, Any]:
    """A model, exported once, beside the plain script; `clock` may be the child's `CPU_CLOCK`."""
    path = folder / name / f"{name}.onnx"
    path.parent.mkdir(parents=True, exist_ok=True)
    facts = measure("write", name, path)
    plain = measure("plain", name, path)
    found = measure("verify", name, path, str(budget_s), *clock)
    return {**facts, **found, "name": name, "plain_gb": plain["peak_gb"], "path": str(path)}


def fault_rows(row: dict[str, Any], budget_s: float) -> Iterator[dict[str, Any]]:
    """Faults in the middle of the model: what was said, and what explaining took."""
    source = Path(row["path"])
    for kind in ("epsilon", "scale", "weight"):
        path = source.with_name(f"{source.stem}-{kind}.onnx")
        planted = measure("write-fault", row["name"], path, str(source))
        found = measure("explain", row["name"], path, str(budget_s))
        yield {**found, **planted, "name": row["name"], "kind": kind, "plain_gb": row["plain_gb"]}


def show(row: dict[str, Any]) -> str:
    """One line of the table."""
    share = row["wall"] / max(row["forward"], 1e-9)
    cells = [
        row["name"],
        f"{row['parameters'] / 1e6:.1f} M",
        str(row["nodes"]),
        f"{row['plain_gb']:.2f}",
        f"{row['peak_gb']:.2f}",
        f"{row['peak_gb'] / row['plain_gb']:.2f}",
        f"{row['wall']:.0f}",
        f"{share:.2f}",
        str(row["cases"]),
        row["verdict"],
    ]
    return f"| {' | '.join(cells)} |"


def show_fault(row: dict[str, Any]) -> str:
    """One line of the table of faults."""
    named = ", ".join(row["nodes_named"][:1]) or "none"
    cause = ", ".join(row["causes"][:1]) or "none"
    right = "yes" if row["guilty"] in row["nodes_named"] else "no"
    cells = [row["name"], row["kind"], row["verdict"], named, right, cause]
    cells += [f"{row['peak_gb'] / row['plain_gb']:.2f}", f"{row['wall']:.0f}"]
    return f"| {' | '.join(cells)} |"


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """The slope of a line through the logarithms."""
    xs, ys = [math.log(size) for size in sizes], [math.log(cost) for cost in costs]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    above = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
    return above / sum((x - mean_x) ** 2 for x in xs)


def sweep(kind: str, counts: Sequence[int], size: str, folder: Path) -> str:
    """CPU seconds of a case against nodes or outputs, fitted."""
    rows = [model_row(f"{kind}-{count}", folder, 20.0) for count in counts]
    each = [row["cpu"] / max(row["cases"], 1) for row in rows]
    power = exponent([row[size] for row in rows], each)
    points = ", ".join(
        f"{row[size]}: {seconds * 1000:.0f} ms" for row, seconds in zip(rows, each, strict=True)
    )
    return f"CPU of a case against {size}: exponent {power:.2f} ({points})"


def main() -> int:
    """Measure, print, and say by the exit code whether the bars of memory were met."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", default="mlp,resnet,bert,gpt2")
    parser.add_argument("--budget", type=float, default=60.0)
    parser.add_argument("--faults", action="store_true")
    parser.add_argument("--sweeps", action="store_true")
    parser.add_argument("--cpu-clock", action="store_true")
    options = parser.parse_args()
    clock = [CPU_CLOCK] if options.cpu_clock else []
    met = True
    print(f"{_HEAD}\n|{' --- |' * 10}")
    with temporary.Folder() as folder:
        for name in options.models.split(","):
            row = model_row(name, folder, options.budget, *clock)
            print(show(row), flush=True)
            met &= row["peak_gb"] <= _PEAK * row["plain_gb"] + _BESIDE_GB
            for fault in fault_rows(row, options.budget) if options.faults else ():
                print(show_fault(fault), flush=True)
                met &= fault["peak_gb"] <= _PEAK_EXPLAINING * row["plain_gb"] + _BESIDE_GB
        if options.sweeps:
            print(sweep("deep", _NODES, "nodes", folder))
            print(sweep("broad", _OUTPUTS, "outputs", folder))
    return int(not met)


if __name__ == "__main__":
    sys.exit(main())
