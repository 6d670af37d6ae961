"""A module that keeps its answer finite where its dtype ends: the truth in float64 knows no such end, and must not hide it."""

import warnings
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import onnxproof
from onnxproof import Verdict


class Guard(nn.Module):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def forward(self, x: Tensor) -> Tensor:
        return torch.nan_to_num(x.to(self.dtype))


def _proof(dtype: torch.dtype, path: Path, *, dynamo: bool) -> onnxproof.Proof:
    module, x = Guard(dtype).eval(), torch.randn(2, 6, generator=torch.Generator().manual_seed(1))
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        dims = (
            {"dynamic_shapes": ({0: "batch"},)} if dynamo else {"dynamic_axes": {"x": {0: "batch"}}}
        )
        torch.onnx.export(
            module, (x,), path, dynamo=dynamo, input_names=["x"], verbose=False, **dims
        )
    return onnxproof.verify(module, path, (x,), dynamic_shapes=({0: "batch"},), budget_s=60)


def test_a_guard_that_a_runtime_with_more_range_undoes_is_found(tmp_path: Path) -> None:
    """ONNX Runtime carries float32 through half nodes on the CPU, so IsInf of 200000 is false, and the cast behind it gives inf."""
    proof = _proof(torch.float16, tmp_path / "guard.onnx", dynamo=False)
    assert proof.verdict is Verdict.DIVERGED and any(gap.lost for gap in proof.gaps)
    assert proof.causes[0].code == "precision" and "overflows" in proof.causes[0].evidence


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_a_guard_that_holds_is_faithful_and_leaves_no_notes(
    tmp_path: Path, dtype: torch.dtype
) -> None:
    proof = _proof(dtype, tmp_path / "guard.onnx", dynamo=True)
    assert proof.verdict is Verdict.FAITHFUL and not proof.notes
