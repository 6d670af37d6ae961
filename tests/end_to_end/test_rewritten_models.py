"""Faults of a rewritten model: the file is exported from a module that computes something a little different, with the same weights."""

import math
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

import onnxproof
from onnxproof.results.proof import Proof


class Rewritten(torch.nn.Module):
    """A module that may be told to compute the other thing."""

    def __init__(self, *, wrong: bool) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.wrong = wrong
        self.first = torch.nn.Linear(16, 16)
        self.second = torch.nn.Linear(16, 16)
        self.third = torch.nn.Linear(16, 16)


class GroupCount(Rewritten):
    """A norm over two groups instead of four: what is normalized already passes it unchanged."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        groups = 2 if self.wrong else 4
        return torch.tanh(functional.group_norm(self.first(x).transpose(1, 2), groups))


class LowBound(Rewritten):
    """A bound before a logarithm, far below the values' own size."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        bound = 1e-5 if self.wrong else 1e-10
        return torch.log10(self.first(x).pow(2).clamp(min=bound))


class RotaryBase(Rewritten):
    """Angles of another base, which sines and cosines of queries and keys all read."""

    def rotate(self, x: torch.Tensor) -> torch.Tensor:
        base = 500_000.0 if self.wrong else 10_000.0
        angles = torch.arange(x.shape[1])[:, None] * base ** (-torch.arange(0, 16, 2) / 16)
        angles = torch.cat([angles, angles], -1)
        turned = torch.cat([-x[..., 8:], x[..., :8]], -1)
        return x * angles.cos() + turned * angles.sin()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.rotate(self.first(x)) @ self.rotate(self.second(x)).transpose(1, 2)
        return torch.softmax(scores / math.sqrt(16), -1)


class WrongSource(Rewritten):
    """Values of an attention that are taken from the queries' side."""

    def forward(self, x: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        scores = self.first(x) @ self.second(memory).transpose(1, 2)
        return torch.softmax(scores / 4, -1) @ self.third(x if self.wrong else memory)


class OneTooMany(Rewritten):
    """A count that is one too large: only taking the 1 away is right, a small number in its place is not."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        size = self.first(x).abs().sum(-1, keepdim=True)
        return self.second(x) / ((size + 1) if self.wrong else size)


def proof_of(kind: type[Rewritten], folder: Path, inputs: int = 1) -> Proof:
    torch.manual_seed(11)
    example = tuple(torch.randn(2, 5, 16) for _ in range(inputs))
    shapes: Any = tuple({0: "batch", 1: "length"} for _ in example)
    program = torch.onnx.export(
        kind(wrong=True).eval(), example, dynamic_shapes=shapes, dynamo=True, verbose=False
    )
    assert program is not None
    program.save(folder / "wrong.onnx")
    return onnxproof.verify(
        kind(wrong=False).eval(), folder / "wrong.onnx", example, dynamic_shapes=shapes
    )


def first_node(proof: Proof) -> str:
    assert proof.location is not None and proof.location.suspects
    return proof.location.suspects[0].op_type


def test_a_norm_of_other_groups_is_named_and_not_what_it_reads(tmp_path: Path) -> None:
    proof = proof_of(GroupCount, tmp_path)
    assert first_node(proof) == "InstanceNormalization"
    assert (proof.causes[0].code, proof.causes[0].proven) == ("attribute", True)
    assert "with group=2 instead of 4" in proof.causes[0].evidence


def test_a_bound_is_named_where_a_logarithm_shows_it(tmp_path: Path) -> None:
    proof = proof_of(LowBound, tmp_path)
    assert first_node(proof) == "Clip"
    assert (proof.causes[0].code, proof.causes[0].proven) == ("clipping", True)
    assert "1e-10" in proof.causes[0].evidence


def test_the_product_that_makes_the_angles_is_named(tmp_path: Path) -> None:
    proof = proof_of(RotaryBase, tmp_path)
    assert first_node(proof) == "Mul"
    assert (proof.causes[0].code, proof.causes[0].proven) == ("weights", True)
    assert "torch.arange(x.shape[1])[:, None] * base" in proof.causes[0].evidence


def test_an_input_in_the_place_of_another_is_named(tmp_path: Path) -> None:
    proof = proof_of(WrongSource, tmp_path, inputs=2)
    assert (proof.causes[0].code, proof.causes[0].proven) == ("input-order", True)
    assert "reads `x`; with `memory` in its place" in proof.causes[0].evidence


def test_no_number_is_called_the_modules_that_is_not(tmp_path: Path) -> None:
    proof = proof_of(OneTooMany, tmp_path)
    assert first_node(proof) == "Add"
    evidence = [cause.evidence for cause in proof.causes if cause.code == "attribute"]
    assert any("is 1; with the neutral 0 the answers are right" in text for text in evidence)
    assert not any("the module's" in text for text in evidence)
