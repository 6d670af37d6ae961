"""The clamp on relative distance is off by one (7 instead of 8), so only sequences longer than that read another bias."""

from pathlib import Path

import numpy as np
import torch
from onnx import GraphProto
from onnx.numpy_helper import from_array
from torch import Tensor, nn

from bench.corpus import Built, Meta, edit, export, give_weights, nodes

META = Meta(
    kind="transformer",
    about="clamp(-8, 8) became clamp(-8, 7) on relative positions",
    cause="clipping",
    stage="export",
)


class RelativeAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(16, 16) for _ in range(3))
        self.distance = nn.Embedding(17, 1)

    def forward(self, x: Tensor) -> Tensor:
        place = torch.arange(x.shape[1])
        apart = (place[None, :] - place[:, None]).clamp(-8, 8) + 8
        scores = self.query(x) @ self.key(x).transpose(-2, -1) / 4 + self.distance(apart)[..., 0]
        return scores.softmax(-1) @ self.value(x)


def build(folder: Path) -> Built:
    torch.manual_seed(107)
    model = give_weights(RelativeAttention(), 107)
    x = torch.randn(2, 6, 16)
    shapes = ({0: "batch", 1: "length"},)
    correct = export(model, (x,), folder / "correct.onnx", shapes, dynamo=False)

    def move(graph: GraphProto) -> list[str]:
        limit = nodes(graph, "Clip")[0]
        graph.initializer.append(from_array(np.array(7, dtype=np.int64), "lower_limit"))
        limit.input[2] = "lower_limit"
        return [limit.name]

    guilty = edit(correct, folder / "faulty.onnx", move)
    return Built(
        model=model,
        example_inputs=(x,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.randn(2, 14, 16),),
    )
