"""Complex numbers: a file holds them as their real view `[..., 2]`, which is compared as such, said, and not taken for another shape."""

import contextlib
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import onnxproof
from onnxproof.results import Verdict
from onnxproof.results.proof import Proof
from onnxproof.runtimes.session.execution import as_complex

Function = Callable[[torch.Tensor], torch.Tensor]
WINDOW = torch.hann_window(8)
REAL, COMPLEX = (
    torch.randn(4, 32, generator=torch.Generator().manual_seed(1)),
    torch.randn(4, 9, dtype=torch.complex64, generator=torch.Generator().manual_seed(1)),
)


class Complex(torch.nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def _verified(
    path: Path, function: Function, exported: Function, x: torch.Tensor, *, explain: bool = False
) -> Proof:
    with contextlib.redirect_stdout(io.StringIO()):
        torch.onnx.export(Complex(exported).eval(), (x,), path, external_data=False, verbose=False)
    return onnxproof.verify(Complex(function).eval(), path, (x,), budget_s=5, explain=explain)


OUTPUTS: dict[str, Function] = {
    "fft": torch.fft.fft,
    "rfft": torch.fft.rfft,
    "stft": lambda x: torch.stft(x, 8, return_complex=True, window=WINDOW),
    "view_as_complex": lambda x: torch.view_as_complex(x.reshape(x.shape[0], -1, 2)),
    "polar": lambda x: torch.polar(x.abs(), x),
}
INPUTS: dict[str, Function] = {
    "real out": lambda x: torch.view_as_real(x * 2).sum(-1),
    "complex out": lambda x: x * (1 + 2j),
    "irfft": torch.fft.irfft,
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_a_complex_output_is_compared_as_its_real_view(tmp_path: Path, name: str) -> None:
    proof = _verified(tmp_path / "m.onnx", OUTPUTS[name], OUTPUTS[name], REAL)
    assert proof.verdict is Verdict.FAITHFUL, proof.sentence()
    assert [
        f.what
        for f in proof.findings
        if f.code == "complex-as-real" and "the file returns its real view" in f.what
    ]
    assert all(gap.compared for gap in proof.gaps if gap.group != "nonfinite")


@pytest.mark.parametrize("name", INPUTS)
def test_a_complex_input_is_handed_over_as_its_real_view(tmp_path: Path, name: str) -> None:
    proof = _verified(tmp_path / "m.onnx", INPUTS[name], INPUTS[name], COMPLEX)
    assert proof.verdict is Verdict.FAITHFUL, proof.sentence()
    assert [
        f.what
        for f in proof.findings
        if f.code == "complex-as-real" and "the file takes its real view" in f.what
    ]


WRONG: dict[str, Function] = {
    "conjugated": lambda x: torch.fft.fft(x).conj().resolve_conj(),
    "real and imaginary swapped": lambda x: torch.view_as_complex(
        torch.view_as_real(torch.fft.fft(x)).flip(-1).contiguous()
    ),
    "a thousandth more": lambda x: torch.fft.fft(x) * 1.001,
    "the imaginary part alone": lambda x: torch.view_as_complex(
        torch.view_as_real(torch.fft.fft(x)) * torch.tensor([1.0, 1.01])
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_complex_output_is_diverged(tmp_path: Path, name: str) -> None:
    proof = _verified(
        tmp_path / "m.onnx", torch.fft.fft, WRONG[name], REAL, explain=name == "conjugated"
    )
    assert proof.verdict is Verdict.DIVERGED, proof.sentence()


def test_a_conjugated_input_is_diverged(tmp_path: Path) -> None:
    proof = _verified(
        tmp_path / "m.onnx",
        lambda x: x * (1 + 2j),
        lambda x: x.conj().resolve_conj() * (1 + 2j),
        COMPLEX,
    )
    assert proof.verdict is Verdict.DIVERGED, proof.sentence()


def test_a_real_reference_is_no_complex_one() -> None:
    """Only where the reference is complex is a last dim of 2 a real and an imaginary part."""
    array = np.arange(6, dtype=np.float32).reshape(3, 2)
    assert as_complex(array, "float32") is array
    found = as_complex(array, "complex64")
    assert found is not None
    assert found.tolist() == [1j, 2 + 3j, 4 + 5j]
    assert as_complex(array[:, :1], "complex64") is not None
    assert as_complex(None, "complex64") is None
