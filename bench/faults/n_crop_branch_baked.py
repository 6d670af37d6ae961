"""`if x.shape[1] > 8` is decided once, at export; the dynamo exporter keeps no guard and no limit in the file."""

from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from bench.corpus import Built, Meta, export, give_weights, nodes

META = Meta(
    kind="causal-lm",
    about="a context window that crops long inputs; exported with a short one, it never crops",
    cause="baked-branch",
    stage="export",
    native=True,
)


WINDOW = 8


class Cropped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(40, 8)
        self.head = nn.Linear(8, 4)

    def crop(self, ids: Tensor) -> Tensor:
        return ids[:, -WINDOW:] if ids.shape[1] > WINDOW else ids

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(torch.tanh(self.embed(self.crop(ids))).mean(1))


class AlwaysCropped(Cropped):
    def crop(self, ids: Tensor) -> Tensor:
        return ids[:, -WINDOW:]


def build(folder: Path) -> Built:
    generator = torch.Generator().manual_seed(1)
    model = give_weights(Cropped(), 24)
    other = AlwaysCropped().eval()
    other.load_state_dict(model.state_dict())
    example = (torch.randint(0, 40, (2, 6), generator=generator),)
    shapes = ({0: "batch", 1: "seq"},)
    faulty = export(model, example, folder / "faulty.onnx", shapes)
    correct = export(other, example, folder / "correct.onnx", shapes, dynamo=False)
    guilty = [node.name for node in nodes(onnx.load(faulty).graph, "Gather")]
    trigger = (torch.randint(0, 40, (2, 13), generator=generator),)
    return Built(
        model=model,
        example_inputs=example,
        dynamic_shapes=shapes,
        faulty=faulty,
        correct=correct,
        guilty=guilty,
        trigger=trigger,
    )
