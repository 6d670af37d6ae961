"""The plainest image classifier. ONNX Runtime folds BatchNorm into the convolution, which rounds the weights again."""

from pathlib import Path

from bench.architectures import ConvNet
from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="conv", about="residual conv net, BatchNorm folded into the convolutions")


def build(folder: Path) -> Built:
    model = give_weights(ConvNet("batch", depth=4), 11)
    return healthy(
        folder / "conv_batchnorm_relu.onnx",
        model,
        (normal(2, 3, 24, 24),),
        ({0: "batch"},),
        dynamo=False,
    )
