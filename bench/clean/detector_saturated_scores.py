"""A detector that sees nothing: logits near -18, scores of 1e-8, where a sigmoid kernel's absolute error is all there is."""

from pathlib import Path

import torch
from torch import Tensor

from bench.architectures import Detector
from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="detector", about="dense scores around 1e-8, far below any threshold in use")


class Dense(Detector):
    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        return self.dense(image)


def build(folder: Path) -> Built:
    model = give_weights(Dense(), 62)
    with torch.no_grad():
        model.scores.bias.fill_(-18.0)
    axes = ({0: "batch", 2: "height", 3: "width"},)
    return healthy(
        folder / "detector_saturated_scores.onnx",
        model,
        (normal(2, 3, 32, 32),),
        axes,
        dynamo=False,
    )
