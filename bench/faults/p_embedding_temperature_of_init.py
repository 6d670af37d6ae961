"""A contrastive model was exported with the initial temperature (1 / 0.07) instead of the trained one."""

from pathlib import Path

import numpy as np
import torch
from onnx import GraphProto
from onnx.numpy_helper import from_array
from torch import Tensor, nn
from torch.nn import functional

from bench.corpus import Built, Meta, edit, export, give_weights, nodes

META = Meta(
    kind="embedding",
    about="logits are scaled by exp of the untrained logit_scale",
    cause="weights",
    stage="export",
)


class Contrast(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.image, self.text = nn.Linear(10, 6), nn.Linear(14, 6)
        self.logit_scale = nn.Parameter(torch.tensor(0.0))

    def forward(self, pictures: Tensor, captions: Tensor) -> Tensor:
        left, right = (
            functional.normalize(self.image(pictures), dim=-1),
            functional.normalize(self.text(captions), dim=-1),
        )
        return (self.logit_scale.exp() * left @ right.T).softmax(-1)


def build(folder: Path) -> Built:
    torch.manual_seed(94)
    model = give_weights(Contrast(), 94)
    with torch.no_grad():
        model.logit_scale.fill_(3.1)
    pictures, captions = torch.randn(3, 10), torch.randn(4, 14)
    shapes = ({0: "pictures"}, {0: "captions"})
    correct = export(model, (pictures, captions), folder / "correct.onnx", shapes)

    def cool(graph: GraphProto) -> list[str]:
        scale = nodes(graph, "Mul")[0]
        graph.initializer.append(from_array(np.array(1 / 0.07, dtype=np.float32), "initial_scale"))
        scale.input[0] = "initial_scale"
        return [scale.name]

    guilty = edit(correct, folder / "faulty.onnx", cool)
    return Built(
        model=model,
        example_inputs=(pictures, captions),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.randn(5, 10), torch.randn(3, 14)),
    )
