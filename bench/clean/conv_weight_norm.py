"""Weight norm kept as a parametrisation: the graph computes the weights by itself, at each call or when folded."""

from pathlib import Path

from torch import nn
from torch.nn.utils import parametrizations

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(
    kind="audio", about="weight-normalised 1-D convolutions and LeakyReLU, a vocoder's body"
)


def build(folder: Path) -> Built:
    model = nn.Sequential(
        parametrizations.weight_norm(nn.Conv1d(8, 16, 5, padding=2)), nn.LeakyReLU(0.1),
        parametrizations.weight_norm(nn.ConvTranspose1d(16, 8, 4, 2, 1)), nn.LeakyReLU(0.1),
        nn.Conv1d(8, 1, 3, padding=1), nn.Tanh(),
    )  # fmt: skip
    axes = ({0: "batch", 2: "frames"},)
    return healthy(
        folder / "conv_weight_norm.onnx",
        give_weights(model, 122),
        (normal(2, 8, 20),),
        axes,
        dynamo=False,
    )
