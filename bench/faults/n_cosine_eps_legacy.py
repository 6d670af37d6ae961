"""cosine_similarity of the legacy exporter applies eps to the product of the norms: short vectors get another similarity."""

from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from bench.corpus import Built, Meta, export, nodes

META = Meta(
    kind="embedding",
    about="similarity of small embeddings with eps=1e-4; torch bounds each norm by eps, the legacy graph their product",
    cause="attribute",
    stage="export",
    native=True,
)


class Similarity(nn.Module):
    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return nn.functional.cosine_similarity(left, right, dim=1, eps=1e-4)


def build(folder: Path) -> Built:
    generator = torch.Generator().manual_seed(1)
    model = Similarity().eval()
    example = (torch.randn(3, 6, generator=generator), torch.randn(3, 6, generator=generator))
    shapes = ({0: "batch"}, {0: "batch"})
    faulty = export(model, example, folder / "faulty.onnx", shapes, dynamo=False)
    correct = export(model, example, folder / "correct.onnx", shapes)
    guilty = [node.name for node in nodes(onnx.load(faulty).graph, "Max", "Clip", "Div", "Sqrt")]
    trigger = (example[0] * 1e-3, example[1] * 1e-3)
    return Built(
        model=model,
        example_inputs=example,
        dynamic_shapes=shapes,
        faulty=faulty,
        correct=correct,
        guilty=guilty,
        trigger=trigger,
    )
