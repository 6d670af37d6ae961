"""A registered dataclass as the output, with its fields in another order than they are computed."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="tabular", about="dataclass output registered with torch.export")


@dataclass
class Prediction:
    logits: Tensor
    embedding: Tensor


torch.export.register_dataclass(
    Prediction, serialized_type_name="bench.clean.outputs_dataclass.Prediction"
)


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(8, 16), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Prediction:
        embedding = torch.tanh(self.body(x))
        return Prediction(embedding=embedding, logits=self.head(embedding))


def build(folder: Path) -> Built:
    return healthy(
        folder / "outputs_dataclass.onnx",
        give_weights(Classifier(), 113),
        (normal(3, 8),),
        ({0: "batch"},),
        dynamo=True,
    )
