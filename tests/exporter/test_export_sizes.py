"""`int(size)`: Python asks for the number, and torch fixes the dim at it; ours keeps it open where the file is then right for every size."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from support.exports import answer, calm, dim, export, naive  # noqa: F401 - the fixture is used by being here
from torch import nn

import onnxproof
from onnxproof.results import Verdict

X = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(1))
LONGER = torch.randn(2, 8, 4, generator=torch.Generator().manual_seed(2))


class Counted(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length = int(x.shape[1])
        return x.sum(1) / length


class Halved(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, int(x.shape[1] / 2) :].sum(1)


class Asked(nn.Module):
    """Whether it is an integer is asked: it is one."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length = int(x.size(1))
        return x.sum(1) / length if isinstance(length, int) else x.sum(1)


class Bounded(nn.Module):
    """What is assumed is the module's own rule."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length = int(x.shape[1])
        if length > 8:
            raise ValueError("too long")
        return x.sum(1) / length


@pytest.mark.parametrize(
    "module",
    [Counted(), Halved(), Asked(), Bounded()],
    ids=["counted", "halved", "asked", "bounded"],
)
def test_a_size_that_int_freezes_in_the_naive_file_is_kept_open_in_one_capture(
    module: nn.Module, tmp_path: Path
) -> None:
    auto = torch.export.Dim.AUTO
    wrong = naive(module, (X,), tmp_path / "naive.onnx", dynamic_shapes=({0: auto, 1: auto},))
    assert (
        np.abs(answer(wrong, LONGER) - module(LONGER).numpy()).max() > 1e-2
    )  # it takes eight, and counts six

    proof = export(module, (X,), tmp_path / "m.onnx")
    assert (
        proof.verdict is Verdict.FAITHFUL
        and dim(proof, "x", 1).name == "sequence"
        and proof.export.attempts == ()
    )
    assert (
        np.abs(
            answer(onnxruntime.InferenceSession(tmp_path / "m.onnx"), LONGER)
            - module(LONGER).numpy()
        ).max()
        < 1e-5
    )
    assert "int" not in globals()  # the user's file has its own `int` again


class Masked(nn.Module):
    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return (x * mask.unsqueeze(-1)).sum(1) / int(x.shape[1])


def test_two_lengths_that_must_agree_stay_open_together(tmp_path: Path) -> None:
    proof = export(Masked(), (X, torch.ones(2, 6)), tmp_path / "m.onnx")
    assert proof.verdict is Verdict.FAITHFUL and proof.export.attempts == ()
    assert dim(proof, "x", 1).name == dim(proof, "mask", 1).name == "sequence"


class Padded(nn.Module):
    """Behind `int` stands a branch on the length: open, the file would be right for even ones alone."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length = int(x.shape[1])
        return x.sum(1) / length if length % 2 == 0 else x.sum(1)


class Keeps(Padded):
    """The same, and something is left in the module before the capture is stopped."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.last = x if not hasattr(self, "last") else self.last * x.shape[1]
        return super().forward(x)


class Looked(nn.Module):
    """A size that is looked up must be a number."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum(1) * {6: 1.0}.get(int(x.shape[1]), 2.0)


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (Padded(), "the file would be right for Mod(x[1], 2) == 0 alone at test_export_sizes.py:"),
        (Keeps(), "the file would be right for Mod(x[1], 2) == 0 alone at test_export_sizes.py:"),
        (Looked(), "torch can't go on with it: TypeError"),
    ],
    ids=["branch", "state", "key"],
)
def test_what_would_be_open_and_wrong_stays_fixed_with_the_reason(
    module: nn.Module, words: str, tmp_path: Path
) -> None:
    proof = export(module, (X,), tmp_path / "m.onnx")
    fixed = dim(proof, "x", 1)
    assert (
        proof.verdict is Verdict.FAITHFUL
        and fixed.name == ""
        and fixed.baked
        and fixed.source is not None
        and "int(" in fixed.source.text
    )
    assert [(tried.name, tried.worked) for tried in proof.export.attempts] == [
        ("open sizes", False)
    ] and words in proof.export.attempts[0].what
    assert "int" not in globals() and not hasattr(module, "last")


HELPER = """
def length(x):
    return int(x.shape[1])
"""
FACTORY = """
import torch
from {source} import {name}


class Net(torch.nn.Module):
    def forward(self, x):
        return x.sum(1) / {call}(x)


def build():
    return Net(), (torch.randn(2, 6, 4),)
"""


@pytest.mark.parametrize(("name", "call"), [("length", "length"), ("helper", "helper.length")])
def test_other_files_of_the_project_keep_sizes_open_too(
    name: str, call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / f"project_{name}"
    place.mkdir()
    (place / "__init__.py").write_text("")
    (place / "helper.py").write_text(HELPER)
    (place / "model.py").write_text(
        FACTORY.format(
            source=f"project_{name}.helper" if name == "length" else f"project_{name}",
            name=name,
            call=call,
        )
    )
    monkeypatch.syspath_prepend(tmp_path)
    proof = onnxproof.export(
        f"project_{name}.model:build", None, tmp_path / "m.onnx", budget_s=1.5, explain=False
    )
    assert (
        proof.verdict is Verdict.FAITHFUL
        and dim(proof, "x", 1).name == "sequence"
        and proof.export.attempts == ()
    )
