"""The cause `state`: files that were made of a module at another moment, and faults of stateful modules that are something else."""

import contextlib
import copy
import io
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from support.planted_faults import told
from support.planted_models import normal, seeded
from torch import Tensor, nn

from onnxproof import api
from onnxproof.results import Verdict
from onnxproof.results.proof import Proof

BUDGET_S = 60.0


class Counting(nn.Module):
    """A decoder that counts its steps by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.positions, self.head, self.steps = nn.Embedding(32, 6), nn.Linear(6, 3), 0

    def forward(self, x: Tensor) -> Tensor:
        here = self.positions(torch.tensor(self.steps))
        self.steps += 1
        return self.head(torch.tanh(x + here))


class Running(nn.Module):
    """A mean that moves with every call, also outside of training."""

    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 3)
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x: Tensor) -> Tensor:
        self.mean = 0.8 * self.mean + 0.2 * x.detach().mean(0)
        return self.second(torch.relu(self.first(x - self.mean)))


class Lagging(Running):
    """The same, one call late."""

    def forward(self, x: Tensor) -> Tensor:
        made = self.second(torch.relu(self.first(x - self.mean)))
        self.mean = 0.8 * self.mean + 0.2 * x.detach().mean(0)
        return made


class Remembering(nn.Module):
    """A recurrent layer that goes on where the last call ended."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head, self.last = nn.GRUCell(6, 6), nn.Linear(6, 3), None

    def forward(self, x: Tensor) -> Tensor:
        self.last = self.cell(x, torch.zeros_like(x) if self.last is None else self.last)
        return self.head(self.last)


class Scaling(nn.Module):
    """A scale that is taken from the first input and kept."""

    def __init__(self) -> None:
        super().__init__()
        self.mix, self.scales = nn.Linear(6, 6), {}  # type: ignore[var-annotated]

    def forward(self, x: Tensor) -> Tensor:
        if "scale" not in self.scales:
            self.scales["scale"] = float(x.abs().max())
        return self.mix(x / self.scales["scale"]).cumsum(1)


EXAMPLE = normal(4, 6)


def made(kind: type[nn.Module]) -> nn.Module:
    """As new: what is kept between calls is empty."""
    module = seeded(kind(), 2)
    for buffer in module.buffers():
        buffer.zero_()
    return module


def called(module: Any, times: int) -> Any:
    with torch.no_grad():
        for _ in range(times):
            module(EXAMPLE)
    return module


def exported(module: nn.Module, path: Path) -> Path:
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        torch.no_grad(),
    ):
        warnings.simplefilter("ignore")
        torch.onnx.export(
            copy.deepcopy(module),
            (EXAMPLE,),
            str(path),
            dynamo=False,
            input_names=["x"],
            opset_version=17,
        )
    return path


def verified(module: nn.Module, path: Path) -> Proof:
    return api.verify(module, path, (EXAMPLE,), budget_s=BUDGET_S)


TRACED = {Running: 1}
"""The legacy exporter calls the module once and writes down what is in its buffers then."""


@pytest.mark.parametrize(
    ("kind", "calls", "name"),
    [
        (Counting, 3, "`steps` (3 for 0)"),
        (Running, 2, "`mean` (a tensor [6] for a tensor [6])"),
        (Remembering, 1, "`last` (a tensor [4, 6] for None)"),
        (Scaling, 1, "`scales` (1 items for 0 items)"),
    ],
)
def test_a_file_of_a_module_that_was_called_before(
    kind: type[nn.Module], calls: int, name: str, tmp_path: Path
) -> None:
    proof = verified(made(kind), exported(called(made(kind), calls), tmp_path / "m.onnx"))
    assert proof.verdict is Verdict.DIVERGED
    assert (proof.causes[0].code, proof.causes[0].proven) == ("state", True), told(proof)
    assert (
        f"after {calls + TRACED.get(kind, 0)} more call" in proof.causes[0].evidence
        and name in proof.causes[0].evidence
    )


@pytest.mark.parametrize(
    ("kind", "calls", "words"),
    [
        (Counting, 4, "as before any call"),
        (Running, 3, "as after 1 call on the example"),
        (Remembering, 2, "as before any call"),
    ],
)
def test_a_module_that_was_called_since(
    kind: type[nn.Module], calls: int, words: str, tmp_path: Path
) -> None:
    module = made(kind)
    path = exported(module, tmp_path / "m.onnx")
    proof = verified(called(module, calls), path)
    assert proof.verdict is Verdict.DIVERGED
    assert (proof.causes[0].code, proof.causes[0].proven) == ("state", True), told(proof)
    assert words in proof.causes[0].evidence


def test_a_buffer_that_the_file_names_is_read_from_it(tmp_path: Path) -> None:
    """Nobody knows what the module was called with before the export, but the file has what came of it."""
    module = made(Lagging)
    module.mean += normal(6, seed=8)  # type: ignore[operator]
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module, (EXAMPLE,), tmp_path / "m.onnx", dynamo=True, external_data=False, verbose=False
        )
    proof = verified(made(Lagging), tmp_path / "m.onnx")
    assert (proof.causes[0].code, proof.causes[0].proven) == ("state", True), told(proof)
    assert (
        "with its state as the file has it" in proof.causes[0].evidence
        and "`mean`" in proof.causes[0].evidence
    )


@pytest.mark.parametrize("kind", [Counting, Remembering])
def test_another_fault_of_such_a_module_is_not_taken_for_it(
    kind: type[nn.Module], tmp_path: Path
) -> None:
    module, other = made(kind), made(kind)
    with torch.no_grad():
        weight = other.get_parameter("head.weight")
        weight += 0.1 * torch.sin(torch.arange(weight.numel())).reshape(weight.shape)
    proof = verified(module, exported(other, tmp_path / "m.onnx"))
    assert proof.verdict is Verdict.DIVERGED
    assert "state" not in [cause.code for cause in proof.causes], told(proof)
    assert (proof.causes[0].code, proof.causes[0].proven) == ("weights", True), told(proof)


def test_a_module_without_state_is_not_asked(tmp_path: Path) -> None:
    module, other = (
        seeded(nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2)), seed) for seed in (0, 1)
    )
    proof = verified(module, exported(other, tmp_path / "m.onnx"))
    assert "state: a forward pass changes nothing in the module" in proof.tried


@pytest.mark.parametrize("kind", [Counting, Remembering])
def test_a_file_of_the_same_moment_is_faithful(kind: type[nn.Module], tmp_path: Path) -> None:
    module = called(made(kind), 2)
    proof = verified(module, exported(module, tmp_path / "m.onnx"))
    assert proof.verdict is Verdict.FAITHFUL and not proof.causes, told(proof)
    assert "state" in {finding.code for finding in proof.findings}
