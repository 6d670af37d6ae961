"""TransformerEncoder in eval mode zeroes padded positions (nested tensors); the exported graph computes them."""

from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from bench.corpus import Built, Meta, export, give_weights, nodes

META = Meta(
    kind="transformer",
    about="mean over all positions behind nn.TransformerEncoder with src_key_padding_mask; padded rows are 0 in torch alone",
    cause="masking",
    stage="export",
    native=True,
)


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(16, 3)

    def encode(self, x: Tensor, padding: Tensor) -> Tensor:
        return self.encoder(x, src_key_padding_mask=padding)

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        return self.head(self.encode(x, padding).mean(1))


class ExplicitEncoder(Encoder):
    """What eager mode does, said aloud: where all padding is on the right, padded positions are 0."""

    def encode(self, x: Tensor, padding: Tensor) -> Tensor:
        encoded = self.encoder(x, src_key_padding_mask=padding)
        right = (padding[:, 1:] | ~padding[:, :-1]).all()
        return torch.where(padding[:, :, None] & right, torch.zeros_like(encoded), encoded)


def build(folder: Path) -> Built:
    generator = torch.Generator().manual_seed(1)
    model = give_weights(Encoder(), 33)
    other = ExplicitEncoder().eval()
    other.load_state_dict(model.state_dict())
    example = (torch.randn(2, 6, 16, generator=generator), torch.zeros(2, 6, dtype=torch.bool))
    shapes = ({0: "batch", 1: "seq"}, {0: "batch", 1: "seq"})
    faulty = export(model, example, folder / "faulty.onnx", shapes)
    correct = export(other, example, folder / "correct.onnx", shapes)
    guilty = [
        node.name for node in nodes(onnx.load(faulty).graph, "LayerNormalization", "ReduceMean")
    ][::-1][:2]
    padding = torch.zeros(2, 6, dtype=torch.bool)
    padding[1, 4:] = True
    trigger = (torch.randn(2, 6, 16, generator=generator), padding)
    return Built(
        model=model,
        example_inputs=example,
        dynamic_shapes=shapes,
        faulty=faulty,
        correct=correct,
        guilty=guilty,
        trigger=trigger,
    )
