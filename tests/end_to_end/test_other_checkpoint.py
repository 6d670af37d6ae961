"""The plainest deployment mistake: the file was made from another checkpoint."""

from pathlib import Path

import pytest
import torch

import onnxproof


def net(seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(8, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 3)
    ).eval()


@pytest.mark.parametrize("seed", [1, 2])
def test_another_checkpoint_is_named_and_cured(tmp_path: Path, seed: int) -> None:
    x = (torch.randn(2, 8),)
    assert (
        onnxproof.export(net(0), x, tmp_path / "net.onnx", budget_s=3).verdict
        is onnxproof.Verdict.FAITHFUL
    )
    proof = onnxproof.verify(net(seed), tmp_path / "net.onnx", x, budget_s=60)
    assert proof.verdict is onnxproof.Verdict.DIVERGED
    cause = proof.causes[0]
    assert (
        (cause.code, cause.proven) == ("weights", True)
        and cause.fix is not None
        and cause.fix.verdict is onnxproof.Verdict.FAITHFUL
    )
