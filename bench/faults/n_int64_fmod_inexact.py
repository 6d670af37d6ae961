"""ONNX Runtime's Mod(fmod=1) divides int64 in double precision: the remainder of a large identifier is another number."""

from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from bench.corpus import Built, Meta, export, give_weights, nodes

META = Meta(
    kind="embedding",
    about="hash bucket by torch.fmod of a 60-bit identifier; the embedding row is the wrong one",
    cause="kernel",
    stage="runtime",
    native=True,
)


class HashBucket(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(1000, 4)

    def bucket(self, key: Tensor) -> Tensor:
        return torch.fmod(key, 1000)

    def forward(self, key: Tensor) -> Tensor:
        return self.table(self.bucket(key))


class RemainderBucket(HashBucket):
    def bucket(self, key: Tensor) -> Tensor:
        return torch.remainder(key, 1000)


def build(folder: Path) -> Built:
    generator = torch.Generator().manual_seed(1)
    model = give_weights(HashBucket(), 43)
    other = RemainderBucket().eval()
    other.load_state_dict(model.state_dict())
    example = (torch.randint(0, 100000, (5,), generator=generator),)
    shapes = ({0: "keys"},)
    faulty = export(model, example, folder / "faulty.onnx", shapes)
    correct = export(other, example, folder / "correct.onnx", shapes)
    guilty = [node.name for node in nodes(onnx.load(faulty).graph, "Mod")]
    trigger = (torch.randint(2**58, 2**60, (5,), generator=generator),)
    return Built(
        model=model,
        example_inputs=example,
        dynamic_shapes=shapes,
        faulty=faulty,
        correct=correct,
        guilty=guilty,
        trigger=trigger,
    )
