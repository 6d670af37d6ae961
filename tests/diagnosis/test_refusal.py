"""A file that refuses a size which the module takes: the node that made another shape is named before the one that complains."""

import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

import onnxproof
from onnxproof import Verdict
from onnxproof.results import Stage


class Pooled(nn.Module):
    """A head behind an adaptive pooling, whose window the exporter fixes at the example's size."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Conv2d(3, 4, 3, padding=1)
        self.head = nn.Linear(16, 2)

    def forward(self, x: Tensor) -> Tensor:
        pooled = nn.functional.adaptive_avg_pool2d(torch.relu(self.features(x)), 2)
        return self.head(pooled.flatten(1))


def test_what_makes_another_shape_is_named_before_what_refuses_it(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module, x, path = Pooled().eval(), torch.randn(1, 3, 8, 8), tmp_path / "net.onnx"
    shapes = ({0: "batch", 2: "height", 3: "width"},)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (x,), path, dynamo=True, dynamic_shapes=shapes, verbose=False)
    proof = onnxproof.verify(module, path, (x,), dynamic_shapes=shapes, budget_s=60)
    assert (
        proof.verdict is Verdict.DIVERGED
        and proof.location is not None
        and proof.location.stage is Stage.EXPORT
    )
    first, last = proof.location.suspects[0], proof.location.suspects[-1]
    assert (first.op_type, last.op_type, last.why) == (
        "AveragePool",
        "Reshape",
        "the runtime gives up here",
    )
    assert first.source is not None and "adaptive_avg_pool2d" in first.source.text
