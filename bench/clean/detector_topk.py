"""Boxes chosen by score and clamped to the image: rounding may swap two neighbours of nearly equal score."""

from pathlib import Path

from bench.architectures import Detector
from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="detector", about="top-k, gather and clamp: boxes, scores, labels")


def build(folder: Path) -> Built:
    model = give_weights(Detector(), 61)
    return healthy(
        folder / "detector_topk.onnx", model, (normal(2, 3, 32, 32),), ({0: "batch"},), dynamo=True
    )
