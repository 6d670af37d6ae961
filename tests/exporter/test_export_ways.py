"""Each way that is known to help helps with something: it is taken, proven, named in the record, and captures nothing twice."""

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from support.exports import calm, dim, export, naive  # noqa: F401 - the fixture is used by being here
from torch import nn

import onnxproof
from onnxproof.exporter import fallbacks
from onnxproof.results import Verdict


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """One entry a capture: whether it was strict."""
    real, seen = torch.export.export, []

    def counted(*given: Any, **named: Any) -> Any:
        seen.append(bool(named.get("strict")))
        return real(*given, **named)

    monkeypatch.setattr(torch.export, "export", counted)
    return seen


def taken(proof: onnxproof.Proof) -> list[str]:
    assert proof.export is not None
    return [attempt.name for attempt in proof.export.attempts if attempt.worked]


class Scaled(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * float(x.max())


def test_a_value_that_python_asks_for_is_kept_by_reading_the_bytecode(
    tmp_path: Path, captures: list[bool]
) -> None:
    proof = export(Scaled(), (torch.randn(2, 3),), tmp_path / "m.onnx")
    assert proof.verdict is Verdict.FAITHFUL and taken(proof) == ["strict"]
    assert captures == [
        False,
        True,
    ]  # what could not be captured has nothing to decompose or to replace


class Medians(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - x.median(1, keepdim=True)[0]


def test_an_operator_is_replaced_in_the_program_that_was_captured_once(
    tmp_path: Path, captures: list[bool]
) -> None:
    proof = export(Medians(), (torch.randn(3, 5),), tmp_path / "m.onnx")
    assert (
        proof.verdict is Verdict.FAITHFUL
        and taken(proof) == ["replacement"]
        and captures == [False]
    )
    assert (
        torch.ops.aten.median.dim not in torch._decomp.decomposition_table
    )  # torch's table is as it was


REPLACES = """
import torch


def copysign(x, y):
    return torch.where((y < 0) | ((y == 0) & (1 / y < 0)), -x.abs(), x.abs())  # a negative zero has a sign, too
"""


class Signs(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.copysign(x, y)


def test_another_package_registers_a_replacement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = (torch.randn(2, 3), torch.randn(2, 3))
    with pytest.raises(
        onnxproof.OnnxproofError,
        match=r"tried replacement: no replacement of `prims\.signbit` is known",
    ) as caught:
        export(Signs(), inputs, tmp_path / "m.onnx")
    assert "`return torch.copysign(x, y)`" in str(caught.value) and f"--> {__file__}:" in str(
        caught.value
    )  # the line, though torch took its operator apart
    (tmp_path / "acme_signs.py").write_text(REPLACES)
    info = tmp_path / "acme_signs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-signs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[onnxproof.replacements]\naten.copysign.Tensor = acme_signs:copysign\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    proof = export(Signs(), inputs, tmp_path / "m.onnx")
    assert proof.verdict is Verdict.FAITHFUL and taken(proof) == ["replacement"]
    sys.modules.pop("acme_signs")


@torch.library.custom_op("onnxproof_tests::products", mutates_args=())
def products(x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """As a library's grouped kernel: an operator of its own that no exporter knows."""
    return torch.stack([x @ weight for weight in weights]).sum(0)


@products.register_fake
def _(x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    return x.new_empty(x.shape[0], weights.shape[2])


class Experts(nn.Module):
    """A mixture of experts that asks its configuration how to compute them, as those of the library transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(_experts_implementation="grouped_mm")
        self.weights = nn.Parameter(torch.randn(3, 4, 5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.config._experts_implementation == "batched_mm":
            return torch.einsum("bi,eio->bo", x, self.weights)
        return products(x, self.weights)


def test_experts_are_computed_by_batched_products(tmp_path: Path, captures: list[bool]) -> None:
    module = Experts()
    proof = export(module, (torch.randn(2, 4),), tmp_path / "m.onnx")
    assert (
        proof.verdict is Verdict.FAITHFUL
        and taken(proof) == ["experts"]
        and captures == [False, False]
    )
    assert (
        "ONNX has no translation for the operator `onnxproof_tests.products`"
        in proof.export.attempts[0].what
    )
    assert module.config._experts_implementation == "grouped_mm"  # the user's choice again


class Outside(torch.autograd.Function):
    """Arithmetic outside of torch, with a translation that the older exporter reads."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(np.frompyfunc(abs, 1, 1)(x.detach().numpy()).astype(np.float32))

    @staticmethod
    def symbolic(g: Any, x: Any) -> Any:
        return g.op("Abs", x)


class Calls(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Outside.apply(x) + 1


def test_a_symbolic_that_the_older_exporter_reads_is_used_by_tracing(tmp_path: Path) -> None:
    proof = export(Calls(), (torch.randn(2, 3),), tmp_path / "m.onnx")
    assert proof.verdict is Verdict.FAITHFUL and taken(proof) == ["traced"]
    assert dim(proof, "x", 0).name == "batch"


class LogOfSum(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.log(x.abs() + 1e-8)


class NearlyOne(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * 1.000004).cumsum(1)


class SmallBuffer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("floor", torch.tensor(1e-9))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.floor) * x


@pytest.mark.parametrize(
    ("module", "removed"),
    [
        (LogOfSum(), "+ 1e-08"),
        (NearlyOne(), "* 1.000004"),
        (SmallBuffer(), "+ 9.99999972e-10"),
        (nn.RMSNorm(4, eps=1e-9), "+ 1e-09"),
    ],
)
def test_a_constant_that_the_rewriter_removes_is_kept_without_it(
    tmp_path: Path, module: nn.Module, removed: str
) -> None:
    proof = export(module, (torch.randn(3, 4),), tmp_path / "m.onnx")
    assert proof.verdict is Verdict.FAITHFUL and taken(proof) == ["unoptimized"]
    assert proof.export is not None
    assert f"rewriter removed `{removed}`" in proof.export.attempts[0].what
    assert not [f for f in proof.findings if f.code == "constant-removed"]


def test_the_line_of_a_removed_constant_is_named(tmp_path: Path) -> None:
    proof = export(LogOfSum(), (torch.randn(3, 4),), tmp_path / "m.onnx")
    assert proof.export is not None
    line = LogOfSum.forward.__code__.co_firstlineno + 1
    assert f"`+ 1e-08` at {__file__}:{line}" in proof.export.attempts[0].what


def test_a_removed_constant_is_a_finding_where_the_other_file_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fallbacks, "_verify", lambda job, model: Verdict.DIVERGED)
    proof = export(LogOfSum(), (torch.randn(3, 4),), tmp_path / "m.onnx")
    assert proof.verdict is Verdict.DIVERGED and taken(proof) == []
    (found,) = [f for f in proof.findings if f.code == "constant-removed"]
    assert "removed `+ 1e-08` at" in found.what and "optimize=False" in found.help


class Neutral(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.log(x.abs() + 1e-6) * 1.0 + 0.0 + (x + 1e-6) * 1.0001


def test_operations_that_change_nothing_may_go(tmp_path: Path) -> None:
    proof = export(Neutral(), (torch.randn(3, 4),), tmp_path / "m.onnx")
    assert proof.verdict is Verdict.FAITHFUL and taken(proof) == []
    assert not [f for f in proof.findings if f.code == "constant-removed"]
