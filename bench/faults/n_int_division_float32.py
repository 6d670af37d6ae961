"""`div(int64, k, rounding_mode='floor')` of the dynamo exporter runs in float32: identifiers beyond 2**24 lose digits."""

from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from bench.corpus import Built, Meta, export, nodes

META = Meta(
    kind="embedding",
    about="hash bucket of a 40-bit identifier by integer division; the exported graph casts it to float32",
    cause="integer-width",
    stage="export",
    native=True,
)


class Bucket(nn.Module):
    def forward(self, key: Tensor) -> tuple[Tensor, Tensor]:
        bucket = torch.div(key, 1000, rounding_mode="floor")
        return bucket, key - bucket * 1000


class IntegerBucket(nn.Module):
    def forward(self, key: Tensor) -> tuple[Tensor, Tensor]:
        bucket = (key - key % 1000) // 1000
        return bucket, key - bucket * 1000


def build(folder: Path) -> Built:
    model = Bucket().eval()
    example = (torch.tensor([1234, 998001, 55, 70000]),)
    shapes = ({0: "keys"},)
    faulty = export(model, example, folder / "faulty.onnx", shapes)
    correct = export(IntegerBucket().eval(), example, folder / "correct.onnx", shapes)
    guilty = [node.name for node in nodes(onnx.load(faulty).graph, "Cast", "Div")]
    trigger = (torch.tensor([987654321987, 123456789123, 2**33 + 7, -(2**40) - 3]),)
    return Built(
        model=model,
        example_inputs=example,
        dynamic_shapes=shapes,
        faulty=faulty,
        correct=correct,
        guilty=guilty,
        trigger=trigger,
    )
