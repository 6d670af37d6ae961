"""Is the budget kept? A module whose forward pass takes a known time, a file that is right and one that is wrong, and budgets of 2 to 60 s.

    python -m bench.budget                      # the whole table, about nine minutes
    python -m bench.budget --budget 5 --pass-s 2

The pass sleeps, so that the table does not depend on the machine. A run is kept when it ends within 20 % of its budget, or within one forward pass.
"""

import argparse
import itertools
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper

import onnxproof

BUDGETS, PASSES = (2.0, 5.0, 20.0, 60.0), (0.001, 0.1, 2.0)
_SLACK = 0.2


class Slow(torch.nn.Module):
    """A small network that takes its time."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self._seconds = (
            torch.nn.Linear(8, 16),
            torch.nn.Linear(16, 4),
            seconds,
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Two layers, after a while."""
        time.sleep(self._seconds)
        return self.second(torch.nn.functional.gelu(self.first(x)))


def write(module: Slow, path: Path, *, wrong: bool) -> Path:
    """The file by hand, so that nothing is exported here; wrong is another approximation of the activation."""
    weights = {
        "w1": module.first.weight,
        "b1": module.first.bias,
        "w2": module.second.weight,
        "b2": module.second.bias,
    }
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h"], name="first", transB=1),
        helper.make_node(
            "Gelu", ["h"], ["a"], name="gelu", approximate="tanh" if wrong else "none"
        ),
        helper.make_node("Gemm", ["a", "w2", "b2"], ["y"], name="second", transB=1),
    ]
    ports = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", size])
        for name, size in (("x", 8), ("y", 4))
    ]
    graph = helper.make_graph(
        nodes,
        "slow",
        ports[:1],
        ports[1:],
        [numpy_helper.from_array(np.asarray(w.detach()), name) for name, w in weights.items()],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path
    )
    return path


def measure(
    folder: Path, budget_s: float, pass_s: float, *, wrong: bool
) -> tuple[float, onnxproof.Proof]:
    """Seconds of one verification, and what it said."""
    module = Slow(pass_s).eval()
    path = write(module, folder / "slow.onnx", wrong=wrong)
    start = time.perf_counter()
    proof = onnxproof.verify(
        module, path, (torch.randn(2, 8),), dynamic_shapes=({0: "batch"},), budget_s=budget_s
    )
    return time.perf_counter() - start, proof


def kept(seconds: float, budget_s: float, pass_s: float) -> bool:
    """Within 20 %, or within one forward pass."""
    return seconds <= budget_s + max(_SLACK * budget_s, pass_s)


def main(words: Sequence[str] | None = None) -> int:
    """Print the table; 1 when a budget was not kept."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--budget", type=float, nargs="*", default=BUDGETS)
    parser.add_argument("--pass-s", type=float, nargs="*", default=PASSES)
    options = parser.parse_args(words)
    torch.set_num_threads(1)
    late = 0
    with tempfile.TemporaryDirectory(prefix="onnxproof-") as folder:
        for wrong in (False, True):  # what is imported on the way is not what is measured
            measure(Path(folder), 20.0, 0.0, wrong=wrong)
        sys.stdout.write(
            "| budget | pass | file | seconds | kept | verdict | cases | causes | not reached |\n| --: | --: | --- | --: | --- | --- | --: | --- | --- |\n"
        )
        for budget_s, pass_s, wrong in itertools.product(
            options.budget, options.pass_s, (False, True)
        ):
            seconds, proof = measure(Path(folder), budget_s, pass_s, wrong=wrong)
            good = kept(seconds, budget_s, pass_s)
            late += not good
            said = ", ".join(dict.fromkeys(finding.code for finding in proof.findings))
            found = ", ".join(
                f"{cause.code}{' (proven)' if cause.proven else ''}" for cause in proof.causes[:1]
            )
            sys.stdout.write(
                f"| {budget_s:g} s | {pass_s:g} s | {'wrong' if wrong else 'right'} | {seconds:.1f} | {'yes' if good else 'NO'} | {proof.verdict.value} | {len(proof.sizes)} "
                f"| {found} | {said} |\n"
            )
            sys.stdout.flush()
    return int(late > 0)


if __name__ == "__main__":
    sys.exit(main())
