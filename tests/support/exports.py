"""Exports as the tests make them: the naive call of torch.onnx.export that everybody makes, and ours beside it."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

import onnxproof
from onnxproof.exporter.export import quiet
from onnxproof.results import ExportedDim, Finding

BUDGET_S = 1.5


@pytest.fixture(autouse=True)
def calm(monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread, one seed, and short proofs of what helps."""
    monkeypatch.setattr("onnxproof.exporter.fallbacks.TRIAL_S", 2 * BUDGET_S)
    torch.set_num_threads(1)
    torch.manual_seed(0)


def naive(
    module: nn.Module, inputs: tuple[Any, ...], path: Path, **options: Any
) -> onnxruntime.InferenceSession:
    """What everybody calls; it must succeed, or the pitfall is none."""
    with quiet():
        torch.onnx.export(
            module, inputs, path, dynamo=options.pop("dynamo", True), external_data=False, **options
        )
    return onnxruntime.InferenceSession(path)


def answer(session: onnxruntime.InferenceSession, *arrays: torch.Tensor) -> np.ndarray:
    names = [port.name for port in session.get_inputs()]
    return session.run(
        None, {name: array.numpy() for name, array in zip(names, arrays, strict=True)}
    )[0]


def export(module: nn.Module, inputs: Any, path: Path, **options: Any) -> onnxproof.Proof:
    return onnxproof.export(module, inputs, path, budget_s=BUDGET_S, explain=False, **options)


def dim(proof: onnxproof.Proof, name: str, axis: int) -> ExportedDim:
    assert proof.export is not None
    return next(row for row in proof.export.dims if (row.input, row.axis) == (name, axis))


def finding(proof: onnxproof.Proof, code: str) -> Finding:
    return next(found for found in proof.findings if found.code == code)
