"""The lengths of a packed batch were dropped: the backward direction starts in the padding of shorter rows."""

from pathlib import Path

import torch
from onnx import GraphProto
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from bench.corpus import Built, Meta, edit, export, give_weights, nodes

META = Meta(
    kind="rnn",
    about="LSTM sequence_lens input removed; identical while all rows have full length",
    cause="masking",
    stage="export",
)


class PackedTagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 10, bidirectional=True, batch_first=True)
        self.head = nn.Linear(20, 3)

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(features, lengths, batch_first=True)
        hidden, _ = pad_packed_sequence(
            self.lstm(packed)[0], batch_first=True, total_length=features.shape[1]
        )
        return self.head(hidden)


def build(folder: Path) -> Built:
    torch.manual_seed(55)
    model = give_weights(PackedTagger(), 55)
    features, lengths = torch.randn(2, 6, 6), torch.tensor([6, 6])
    shapes = ({0: "batch", 1: "length"}, {0: "batch"})
    correct = export(model, (features, lengths), folder / "correct.onnx", shapes, dynamo=False)

    def forget(graph: GraphProto) -> list[str]:
        layer = nodes(graph, "LSTM")[0]
        layer.input[4] = ""
        return [layer.name]

    guilty = edit(correct, folder / "faulty.onnx", forget)
    return Built(
        model=model,
        example_inputs=(features, lengths),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.randn(3, 7, 6), torch.tensor([7, 4, 2])),
    )
