"""Anchor decoding: exp of the predicted size, corners from centres, IoU of all pairs: tiny differences of large numbers."""

from pathlib import Path

import torch
from torch import Tensor

from bench.architectures import Detector
from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(
    kind="detector", about="exp-decoded boxes in image coordinates and their pairwise overlap"
)


class Overlaps(Detector):
    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        raw = self.dense(image)[1]
        centre, size = raw[..., :2] * 8 + 500, 20 * raw[..., 2:].clamp(max=4).exp()
        low, high = centre - size / 2, centre + size / 2
        inner = (
            (
                torch.minimum(high[:, :, None], high[:, None])
                - torch.maximum(low[:, :, None], low[:, None])
            )
            .clamp(min=0)
            .prod(-1)
        )
        area = (high - low).prod(-1)
        return torch.cat([low, high], -1), inner / (area[:, :, None] + area[:, None] - inner)


def build(folder: Path) -> Built:
    model = give_weights(Overlaps(), 64)
    return healthy(
        folder / "detector_anchor_decode.onnx",
        model,
        (normal(2, 3, 24, 24),),
        ({0: "batch"},),
        dynamo=False,
    )
