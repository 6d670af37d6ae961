"""The cause `train-mode`: a norm by the statistics of the batch."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from support.module_workbenches import file_of, module_workbench, node, without_line
from support.workbenches import without_tally

from onnxproof.diagnosis.causes import train_mode
from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench

RNG = np.random.default_rng(0)
X = {"x": (RNG.normal(size=(6, 3)) * 3 + 2).astype(np.float32)}
NOTHING = "no such change of the module gives what the candidate gives"
STATISTICS = {
    "mean": np.array([0.5, -1.0, 2.0], np.float32),
    "var": np.array([4.0, 1.0, 0.25], np.float32),
}
CONSTANTS = {
    **STATISTICS,
    "axes": np.array([0]),
    "eps": np.array(1e-5, np.float32),
    "scale": np.ones(3, np.float32),
    "bias": np.zeros(3, np.float32),
}


class Norm(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(3)
        self.norm.load_state_dict(
            {
                "weight": torch.ones(3),
                "bias": torch.zeros(3),
                "running_mean": torch.from_numpy(STATISTICS["mean"]),
                "running_var": torch.from_numpy(STATISTICS["var"]),
                "num_batches_tracked": torch.tensor(7),
            }
        )
        self.eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)


class OwnStatistics(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean = torch.tensor(STATISTICS["mean"]).to(x.dtype)
        var = torch.tensor(STATISTICS["var"]).to(x.dtype)
        return torch.nn.functional.batch_norm(x, mean, var, training=True)


def batch_norm(mean: str, var: str) -> list[Any]:
    """A norm by these values; `batch_mean` and `batch_var` are those of the batch."""
    return [
        node("ReduceMean", "x", "axes", output="batch_mean"),
        node("Sub", "x", "batch_mean", output="centred"),
        node("Mul", "centred", "centred", output="squares"),
        node("ReduceMean", "squares", "axes", output="batch_var"),
        node("Sub", "x", mean, output="shifted"),
        node("Add", var, "eps", output="safe"),
        node("Sqrt", "safe", output="deviation"),
        node("Div", "shifted", "deviation"),
    ]


def bench_of(
    folder: Path, module: torch.nn.Module, nodes: list[Any], inputs: Any, call: str = ""
) -> Workbench:
    file = file_of(nodes, inputs, CONSTANTS)
    return module_workbench(folder, module, file, inputs, located={"y": call})


def test_a_norm_by_the_statistics_of_the_batch_is_named(tmp_path: Path) -> None:
    module = Norm()
    bench = bench_of(tmp_path, module, batch_norm("batch_mean", "batch_var"), X)
    tried = train_mode.test(bench)
    assert isinstance(tried, Tried)
    assert (tried.proven, tried.in_reference, tried.fix) == (True, True, None)
    assert without_tally(tried.evidence) == (
        "the module with its BatchNorm layers in training mode gives what the candidate gives"
    )
    assert not module.training
    assert module.norm.num_batches_tracked.item() == 7  # a copy was trained


def test_running_statistics_in_the_place_of_the_batches_own_are_named(tmp_path: Path) -> None:
    nodes = batch_norm("mean", "var")
    bench = bench_of(tmp_path, OwnStatistics(), nodes, X, "native_batch_norm")
    tried = train_mode.test(bench)
    assert isinstance(tried, Tried)
    assert without_line(tried.evidence).endswith(
        "by the running statistics gives what the candidate gives"
    )


def test_only_the_mean_of_the_batch_is_no_training_mode(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, Norm(), batch_norm("batch_mean", "var"), X)
    assert bench.before > 0.1
    assert train_mode.test(bench) == NOTHING


def test_one_row_has_no_statistics_to_go_by(tmp_path: Path) -> None:
    row = {"x": X["x"][:1]}
    assert train_mode.test(bench_of(tmp_path, Norm(), batch_norm("batch_mean", "var"), row)) == (
        NOTHING
    )


def test_a_module_without_a_norm_has_no_other_mode(tmp_path: Path) -> None:
    class Double(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    bench = bench_of(tmp_path, Double(), batch_norm("batch_mean", "batch_var"), X)
    assert train_mode.test(bench) == NOTHING
