"""Centre points: a pixel counts where it equals the maximum around it, an exact comparison of floats that is safe here."""

from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from bench.architectures import Detector
from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(
    kind="detector",
    about="heat-map peaks by max-pool equality: a bool output and a sparse float output",
)


class Peaks(Detector):
    def forward(self, image: Tensor) -> dict[str, Tensor]:
        heat = self.scores(self.backbone(image)).sigmoid()
        peak = functional.max_pool2d(heat, 3, 1, 1) == heat
        return {
            "heat": heat * peak,
            "peak": peak,
            "count": torch.sum(peak & (heat > 0.5), dim=(1, 2, 3)),
        }


def build(folder: Path) -> Built:
    model = give_weights(Peaks(), 63)
    return healthy(
        folder / "detector_heatmap_peaks.onnx",
        model,
        (normal(2, 3, 32, 32),),
        ({0: "batch"},),
        dynamo=True,
    )
