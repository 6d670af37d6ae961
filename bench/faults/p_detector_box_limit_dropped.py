"""The limit on predicted log-sizes, which detection heads use against overflow, was dropped: only wild boxes differ."""

from pathlib import Path

import torch
from onnx import GraphProto
from torch import Tensor, nn

from bench.corpus import Built, Meta, edit, export, give_weights, nodes, rewire

META = Meta(
    kind="detector",
    about="exp(min(dw, log(1000 / 16))) lost its minimum",
    cause="clipping",
    stage="export",
)


class BoxDecoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.regress = nn.Linear(12, 4)

    def forward(self, features: Tensor, anchors: Tensor) -> Tensor:
        delta = self.regress(features)
        centre = anchors[:, :2] + delta[:, :2] * anchors[:, 2:]
        size = anchors[:, 2:] * delta[:, 2:].clamp(max=4.135).exp()
        return torch.cat([centre - size / 2, centre + size / 2], 1)


def build(folder: Path) -> Built:
    torch.manual_seed(81)
    model = give_weights(BoxDecoder(), 81)
    features, anchors = torch.randn(5, 12), torch.rand(5, 4) * 30 + 1
    shapes = ({0: "boxes"}, {0: "boxes"})
    correct = export(model, (features, anchors), folder / "correct.onnx", shapes)

    def drop(graph: GraphProto) -> list[str]:
        limit = nodes(graph, "Clip")[0]
        rewire(graph, limit.output[0], limit.input[0])
        graph.node.remove(limit)
        return [nodes(graph, "Exp")[0].name]

    guilty = edit(correct, folder / "faulty.onnx", drop)
    return Built(
        model=model,
        example_inputs=(features, anchors),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.randn(5, 12) * 8, anchors),
    )
