"""A small vision transformer."""

from pathlib import Path

from bench.architectures import VisionTransformer
from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="vit", about="patch conv, class token, learned positions, four blocks")


def build(folder: Path) -> Built:
    model = give_weights(VisionTransformer(), 45)
    return healthy(
        folder / "vit_small.onnx", model, (normal(2, 3, 32, 32),), ({0: "batch"},), dynamo=False
    )
