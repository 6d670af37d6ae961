"""A router that picks two of six experts: a near tie sends a token elsewhere, and its whole output changes."""

from pathlib import Path

from bench.architectures import MixtureOfExperts
from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="transformer", about="mixture of experts with top-2 routing and einsum")


def build(folder: Path) -> Built:
    model = give_weights(MixtureOfExperts(), 73)
    axes = ({0: "batch", 1: "length"},)
    return healthy(folder / "experts_top_two.onnx", model, (normal(2, 6, 24),), axes, dynamo=True)
