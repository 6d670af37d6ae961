"""Steps up to *and including* the length are pooled: full-length rows cannot show it, shorter ones take one step of padding."""

from pathlib import Path

import torch
from onnx import GraphProto
from torch import Tensor, nn

from bench.corpus import Built, Meta, edit, export, give_weights, nodes

META = Meta(
    kind="rnn", about="arange < length became arange <= length", cause="comparison", stage="export"
)


class PooledGru(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gru, self.head = nn.GRU(5, 12, batch_first=True), nn.Linear(12, 3)

    def forward(self, series: Tensor, lengths: Tensor) -> Tensor:
        hidden = self.gru(series)[0]
        valid = torch.arange(series.shape[1])[None, :] < lengths[:, None]
        return self.head(torch.where(valid[..., None], hidden, -1e9).amax(1))


def build(folder: Path) -> Built:
    torch.manual_seed(105)
    model = give_weights(PooledGru(), 105)
    series, lengths = torch.randn(2, 7, 5), torch.tensor([7, 7])
    shapes = ({0: "batch", 1: "steps"}, {0: "batch"})
    correct = export(model, (series, lengths), folder / "correct.onnx", shapes, dynamo=False)

    def include(graph: GraphProto) -> list[str]:
        limit = nodes(graph, "Less")[0]
        limit.op_type = "LessOrEqual"
        return [limit.name]

    guilty = edit(correct, folder / "faulty.onnx", include)
    return Built(
        model=model,
        example_inputs=(series, lengths),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.randn(3, 7, 5), torch.tensor([1, 3, 7])),
    )
