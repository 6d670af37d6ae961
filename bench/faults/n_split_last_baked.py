"""`x.split(size, 1)[-1]` with a dynamic length: the dynamo exporter takes the chunk with the example's last index."""

from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from bench.corpus import Built, Meta, export, give_weights, nodes

META = Meta(
    kind="transformer",
    about="the last chunk of a long sequence; a longer input gives a middle chunk instead",
    cause="baked-dimension",
    stage="export",
    native=True,
)


CHUNK = 4


class LastChunk(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 8)
        self.head = nn.Linear(8, 3)

    def last(self, x: Tensor) -> Tensor:
        return x.split(CHUNK, dim=1)[-1]

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.last(self.embed(ids)).mean(1))


class SlicedLastChunk(LastChunk):
    def last(self, x: Tensor) -> Tensor:
        return x[:, (x.shape[1] - 1) // CHUNK * CHUNK :]


def build(folder: Path) -> Built:
    generator = torch.Generator().manual_seed(1)
    model = give_weights(LastChunk(), 23)
    other = SlicedLastChunk().eval()
    other.load_state_dict(model.state_dict())
    example = (torch.randint(0, 50, (2, 10), generator=generator),)
    shapes = ({0: "batch", 1: "seq"},)
    faulty = export(model, example, folder / "faulty.onnx", shapes)
    correct = export(other, example, folder / "correct.onnx", shapes)
    guilty = [node.name for node in nodes(onnx.load(faulty).graph, "SequenceAt", "SplitToSequence")]
    trigger = (torch.randint(0, 50, (2, 19), generator=generator),)
    return Built(
        model=model,
        example_inputs=example,
        dynamic_shapes=shapes,
        faulty=faulty,
        correct=correct,
        guilty=guilty,
        trigger=trigger,
    )
