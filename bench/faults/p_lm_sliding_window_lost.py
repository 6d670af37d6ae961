"""The sliding window of attention was dropped by a converter that knows only causal masks: short texts are identical."""

from pathlib import Path

import torch
from onnx import GraphProto
from torch import Tensor, nn

from bench.corpus import Built, Meta, edit, export, give_weights, nodes, rewire

META = Meta(
    kind="causal-lm",
    about="attention reaches past its window of eight tokens",
    cause="masking",
    stage="export",
)


class WindowAttention(nn.Module):
    def __init__(self, width: int = 24, window: int = 8) -> None:
        super().__init__()
        self.tokens, self.window = nn.Embedding(50, width), window
        self.q, self.k, self.v = (nn.Linear(width, width, bias=False) for _ in range(3))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids)
        place = torch.arange(ids.shape[1])
        distance = place[:, None] - place[None, :]
        seen = (distance >= 0) & (distance < self.window)
        scores = self.q(x) @ self.k(x).transpose(-2, -1) * x.shape[-1] ** -0.5
        return (
            torch.where(seen, scores, float("-inf")).softmax(-1) @ self.v(x) @ self.tokens.weight.T
        )


def build(folder: Path) -> Built:
    torch.manual_seed(38)
    model = give_weights(WindowAttention(), 38)
    ids = torch.randint(0, 50, (2, 6))
    shapes = ({0: "batch", 1: "length"},)
    correct = export(model, (ids,), folder / "correct.onnx", shapes)

    def widen(graph: GraphProto) -> list[str]:
        both = nodes(graph, "And")[0]
        rewire(graph, both.output[0], both.input[0])
        graph.node.remove(both)
        return [nodes(graph, "Where")[0].name, nodes(graph, "GreaterOrEqual")[0].name]

    guilty = edit(correct, folder / "faulty.onnx", widen)
    return Built(
        model=model,
        example_inputs=(ids,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.randint(0, 50, (2, 15)),),
    )
