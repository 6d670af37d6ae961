"""`diagonal()` is exported as a product with the identity: an infinity beside the diagonal makes 0 * inf = NaN on it."""

from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from bench.corpus import Built, Meta, export, nodes

META = Meta(
    kind="transformer",
    about="diagonal of a score matrix that is masked with -inf elsewhere; every diagonal element becomes NaN",
    cause="nan-handling",
    stage="export",
    native=True,
)


class MatchScore(nn.Module):
    """Scores of matching pairs; forbidden pairs are masked with -inf."""

    def pick(self, score: Tensor) -> Tensor:
        return score.diagonal()

    def forward(self, left: Tensor, right: Tensor, forbidden: Tensor) -> Tensor:
        return self.pick((left @ right.T).masked_fill(forbidden, -torch.inf))


class GatheredMatchScore(MatchScore):
    def pick(self, score: Tensor) -> Tensor:
        return score.gather(1, torch.arange(5)[:, None])[:, 0]


def build(folder: Path) -> Built:
    generator = torch.Generator().manual_seed(1)
    model = MatchScore().eval()
    vectors = (torch.randn(5, 4, generator=generator), torch.randn(5, 4, generator=generator))
    example = (*vectors, torch.zeros(5, 5, dtype=torch.bool))
    shapes = None
    faulty = export(model, example, folder / "faulty.onnx", shapes)
    correct = export(GatheredMatchScore().eval(), example, folder / "correct.onnx", shapes)
    guilty = [node.name for node in nodes(onnx.load(faulty).graph, "Mul", "ReduceSum")]
    trigger = (*vectors, torch.ones(5, 5, dtype=torch.bool).triu(1))
    return Built(
        model=model,
        example_inputs=example,
        dynamic_shapes=shapes,
        faulty=faulty,
        correct=correct,
        guilty=guilty,
        trigger=trigger,
    )
