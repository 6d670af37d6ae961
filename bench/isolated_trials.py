"""What it costs that hypotheses run in a process of their own: the same explanation in process and apart, in turns.

    python -m bench.isolated_trials

Each row is a module whose file lost an epsilon, so that hypotheses are ruled out before one is proven. `ratio` is the median, over the rounds,
of the time apart over the time in process beside it. `own` is the most private memory that the process apart held beyond what it shares with
its parent, looked at every 20 ms in a round that is not timed.
"""

import argparse
import copy
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import onnx
import torch
from torch import nn

import onnxproof
from onnxproof.diagnosis import causes, isolated_trials
from onnxproof.system.deadline import Deadline

_EVERY_S = 0.02
_CACHED = ("model", "before", "candidate_outputs")


class Net(nn.Module):
    """Two layers with a norm between them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width, eps=1e-2)
        self.second = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """One pass."""
        return self.second(self.norm(self.first(0.1 * x)))


def captured_arguments(width: int, folder: Path) -> tuple[Any, Any]:
    """The workbench of the wrong file, and what verifies a mended one."""
    module = Net(width).eval()
    example = torch.randn(2, width)
    path = folder / f"net{width}.onnx"
    torch.onnx.export(module, (example,), path, dynamo=True, external_data=False, verbose=False)
    model = onnx.load(path)
    node = next(n for n in model.graph.node if n.op_type == "LayerNormalization")
    next(a for a in node.attribute if a.name == "epsilon").f = 1e-5
    onnx.save(model, path)
    arguments: list[Any] = []

    def capture(*given: Any) -> causes.Report:
        arguments.extend(given)
        return causes.Report()

    with mock.patch.object(causes, "explain", capture):
        onnxproof.explain(module, path, (example,), budget_s=600)
    return arguments[0], arguments[1]


def explain(workbench: Any, verify: Any, *, apart: bool) -> tuple[float, causes.Report]:
    """Seconds and the report, with nothing left from the time before."""
    fresh = copy.copy(workbench)
    for name in _CACHED:
        fresh.__dict__.pop(name, None)
    fresh.deadline = Deadline.after(600)
    obstacle = "" if apart else "in process, to compare"
    with mock.patch.object(isolated_trials, "obstacle", lambda: obstacle):
        start = time.perf_counter()
        report = causes.explain(fresh, verify)
        return time.perf_counter() - start, report


@contextmanager
def most_private_bytes() -> Iterator[list[int]]:
    """The most that a child held for itself, meanwhile."""
    most, stop = [0], threading.Event()

    def look() -> None:
        while not stop.wait(_EVERY_S):
            for child in _children():
                most[0] = max(most[0], _private_bytes(child))

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield most
    finally:
        stop.set()
        watcher.join()


def _children() -> list[str]:
    return Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()


def _private_bytes(process: str) -> int:
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:  # it is gone
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_"))


def main() -> None:
    """Print a row for a small and for a large module."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    print(f"{'weights':>9} {'trials':>7} {'in process':>11} {'apart':>9} {'ratio':>6} {'own':>9}")
    with tempfile.TemporaryDirectory() as folder:
        for width in (32, 3600):
            workbench, verify = captured_arguments(width, Path(folder))
            taken: dict[bool, list[float]] = {True: [], False: []}
            answers: dict[bool, Any] = {}
            for turn in range(rounds + 1):
                for apart in (turn % 2 == 0, turn % 2 == 1):
                    seconds, report = explain(workbench, verify, apart=apart)
                    assert report.causes and report.causes[0].proven, report
                    answers[apart] = [(c.code, c.proven, c.fix) for c in report.causes]
                    if turn:
                        taken[apart].append(seconds)
            assert answers[True] == answers[False], answers  # or the times compare different work
            pairs = zip(taken[True], taken[False], strict=True)
            ratio = statistics.median(a / b for a, b in pairs)
            with most_private_bytes() as most:
                explain(workbench, verify, apart=True)
            inside, outside = (statistics.median(taken[apart]) for apart in (False, True))
            tried = len(report.skipped) + len(report.untried) + len(report.causes)
            print(
                f"{8 * width * width / 1e6:>6.1f} MB {tried:>7} {inside:>9.2f} s {outside:>7.2f} s"
                f" {ratio:>6.2f} {most[0] / 1e6:>6.0f} MB",
                flush=True,
            )


if __name__ == "__main__":
    main()
