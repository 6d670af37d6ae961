"""ONNX Runtime adds int64 in double precision: sums beyond 2**53 lose their last digits."""

from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from bench.corpus import Built, Meta, export, nodes

META = Meta(
    kind="tabular",
    about="checksum of 60-bit keys by sum(); ONNX Runtime's ReduceSum of int64 is rounded to a double",
    cause="kernel",
    stage="runtime",
    native=True,
)


class Checksum(nn.Module):
    def forward(self, keys: Tensor) -> Tensor:
        return keys.sum(1)


class ChecksumByScan(nn.Module):
    def forward(self, keys: Tensor) -> Tensor:
        return keys.cumsum(1)[:, -1]


def build(folder: Path) -> Built:
    generator = torch.Generator().manual_seed(1)
    model = Checksum().eval()
    example = (torch.randint(0, 1000, (2, 6), generator=generator),)
    shapes = ({0: "batch"},)
    faulty = export(model, example, folder / "faulty.onnx", shapes)
    correct = export(ChecksumByScan().eval(), example, folder / "correct.onnx", shapes)
    guilty = [node.name for node in nodes(onnx.load(faulty).graph, "ReduceSum")]
    trigger = (torch.randint(2**55, 2**58, (2, 6), generator=generator),)
    return Built(
        model=model,
        example_inputs=example,
        dynamic_shapes=shapes,
        faulty=faulty,
        correct=correct,
        guilty=guilty,
        trigger=trigger,
    )
