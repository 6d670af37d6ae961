"""A half-precision module: its own rounding is 1e-3, and the CPU kernels of ONNX Runtime round elsewhere."""

from pathlib import Path

from bench.architectures import ConvNet
from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="conv", about="model.half(): three digits of rounding in both runtimes")


def build(folder: Path) -> Built:
    model = give_weights(ConvNet("batch", depth=3), 26).half()
    return healthy(
        folder / "conv_half.onnx",
        model,
        (normal(2, 3, 16, 16).half(),),
        ({0: "batch"},),
        dynamo=True,
    )
