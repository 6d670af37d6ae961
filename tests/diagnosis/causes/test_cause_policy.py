"""The causes of a quantization loss judge by the user's policy."""

from types import SimpleNamespace
from typing import Any

import onnx
import pytest

from onnxproof.diagnosis.causes import unfused
from onnxproof.diagnosis.counterfactuals import quantized_study
from onnxproof.diagnosis.counterfactuals.workbench import Tried
from onnxproof.options import Policy


@pytest.mark.parametrize(("drift_db", "proven"), [(15.0, None), (25.0, True), (35.0, False)])
def test_a_loss_is_healed_by_the_users_own_limit(
    drift_db: float, proven: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = SimpleNamespace(graph_db=20.0, sqnr_db=lambda model: 30.0, fuse_layers=onnx.ModelProto)
    monkeypatch.setattr(quantized_study, "study", lambda bench: study)
    bench: Any = SimpleNamespace(policy=Policy(drift_db=drift_db))
    tried = unfused.test(bench)
    if proven is None:
        assert tried == "with 20.0 dB the graph is as good as healthy quantized models are"
    else:
        assert isinstance(tried, Tried)
        assert tried.proven is proven
