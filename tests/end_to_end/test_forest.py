"""A forest whose splits are a whole table: a boundary that moved shows only for values that lie exactly on a split."""

import warnings
from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

import onnxproof
from onnxproof import Verdict


class Forest(nn.Module):
    """Trees of one depth: each compares chosen features with its thresholds, and the answers number a leaf."""

    def __init__(self, trees: int = 12, depth: int = 4) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.register_buffer("feature", torch.randint(8, (trees * depth,)))
        self.register_buffer("threshold", torch.randn(trees, depth))
        self.register_buffer("leaves", torch.randn(trees, 2**depth))
        self.register_buffer("weight", 2 ** torch.arange(depth))

    def forward(self, x: Tensor) -> Tensor:
        trees, depth = self.threshold.shape
        leaf = (
            (x[:, self.feature].view(-1, trees, depth) > self.threshold).long() * self.weight
        ).sum(-1)
        return (
            self.leaves.expand(leaf.shape[0], -1, -1)
            .gather(2, leaf.unsqueeze(-1))
            .squeeze(-1)
            .mean(-1)
        )


def test_a_split_that_takes_its_own_boundary_is_found(tmp_path: Path) -> None:
    module, x, path = Forest().eval(), torch.randn(6, 8), tmp_path / "forest.onnx"
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module, (x,), path, dynamo=True, dynamic_shapes=({0: "batch"},), verbose=False
        )
    assert (
        onnxproof.verify(module, path, (x,), dynamic_shapes=({0: "batch"},)).verdict
        is Verdict.FAITHFUL
    )
    model = onnx.load(path)
    (split,) = [node for node in model.graph.node if node.op_type == "Greater"]
    split.op_type = "GreaterOrEqual"
    onnx.save(model, path)
    proof = onnxproof.verify(module, path, (x,), dynamic_shapes=({0: "batch"},))
    assert (
        proof.verdict is Verdict.DIVERGED
        and proof.location is not None
        and proof.location.nodes[0] == split.name
    )
    assert proof.causes[0].code == "comparison" and proof.causes[0].proven
