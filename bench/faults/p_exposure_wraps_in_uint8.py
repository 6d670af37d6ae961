"""Exposure is raised in uint8, where bright pixels wrap to black, instead of in int32 with a clamp."""

from pathlib import Path

import torch
from onnx import load
from torch import nn

from bench.corpus import Built, Meta, export, give_weights, nodes

META = Meta(
    kind="conv",
    about="uint8 addition wraps past 255; dark images are identical",
    cause="integer-width",
    stage="export",
)


class Exposure(nn.Module):
    def __init__(self, wide: bool = True) -> None:
        super().__init__()
        self.wide = wide
        self.net = nn.Sequential(
            nn.Conv2d(3, 6, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.LazyLinear(3)
        )

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        if self.wide:
            brighter = (image.to(torch.int32) + 48).clamp(max=255).to(torch.uint8)
        else:
            brighter = image + torch.tensor(48, dtype=torch.uint8)
        return self.net(brighter.float() / 255)


def build(folder: Path) -> Built:
    torch.manual_seed(9)
    model, narrow = Exposure(), Exposure(wide=False)
    image = torch.randint(0, 200, (1, 3, 16, 16), dtype=torch.uint8)
    model(image)
    narrow(image)
    give_weights(model, 9)
    narrow.load_state_dict(model.state_dict())
    shapes = ({0: "batch"},)
    correct = export(model, (image,), folder / "correct.onnx", shapes, dynamo=False)
    faulty = export(narrow.eval(), (image,), folder / "faulty.onnx", shapes, dynamo=False)

    guilty = [node.name for node in nodes(load(faulty).graph, "Add")]
    return Built(
        model=model,
        example_inputs=(image,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=faulty,
        guilty=guilty,
        trigger=(torch.randint(0, 256, (2, 3, 16, 16), dtype=torch.uint8),),
    )
