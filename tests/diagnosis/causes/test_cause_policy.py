"""The causes of a quantization loss judge by the user's policy."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from support.module_workbenches import file_of, node
from support.workbenches import workbench

from onnxproof.diagnosis.causes import unfused
from onnxproof.diagnosis.counterfactuals import quantized_study
from onnxproof.diagnosis.counterfactuals.workbench import Tried
from onnxproof.options import Policy
from onnxproof.quantization.scoring import Score

X = {"x": np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32)}


@pytest.mark.parametrize(("drift_db", "proven"), [(10.0, None), (25.0, True), (35.0, False)])
def test_a_loss_is_healed_by_the_users_own_limit(
    drift_db: float, proven: bool | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, wrong, fused = (
        file_of([node("Mul", "x", "factor")], X, {"factor": np.array(factor, np.float32)})
        for factor in (1.0, 1.2, 1 + 10 ** (-31 / 20))
    )  # 14 dB, and 31 dB with the layers fused
    study = SimpleNamespace(
        graph_db=14.0,
        graph_score=Score(sqnr_db=14.0, agreement=None),
        score=lambda model: Score(sqnr_db=31.0, agreement=None),
        fuse_layers=lambda: fused,
    )
    monkeypatch.setattr(quantized_study, "study", lambda bench: study)
    bench = workbench(tmp_path, wrong, right, X, policy=Policy(drift_db=drift_db))
    tried = unfused.test(bench)
    if proven is None:
        assert tried == "with 14.0 dB the graph is as good as healthy quantized models are"
    else:
        assert isinstance(tried, Tried)
        assert tried.proven is proven
