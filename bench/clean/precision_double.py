"""A float64 module: its own noise is 1e-16, and no wider type stands by as the truth."""

from pathlib import Path

from torch import nn

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="tabular", about="model.double(), float64 in and out")


def build(folder: Path) -> Built:
    model = nn.Sequential(
        nn.Linear(9, 40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 3)
    )
    return healthy(
        folder / "precision_double.onnx",
        give_weights(model, 117).double(),
        (normal(5, 9).double(),),
        ({0: "batch"},),
        dynamo=False,
    )
