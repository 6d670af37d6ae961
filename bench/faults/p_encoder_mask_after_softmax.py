"""The padding mask multiplies the weights after the softmax, which then no longer sum to one where there is padding."""

from pathlib import Path

import torch
from onnx import load

from bench.architectures import SelfAttention, Tensor, TextEncoder
from bench.corpus import Built, Meta, export, give_weights, nodes

META = Meta(
    kind="transformer",
    about="padding is masked after the softmax instead of before; visible with padding only",
    cause="masking",
    stage="export",
)


class LateMask(SelfAttention):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            self.qkv(x)
            .view(batch, length, 3, self.heads, width // self.heads)
            .permute(2, 0, 3, 1, 4)
        )
        weights = (q @ k.transpose(-2, -1) / (width // self.heads) ** 0.5).softmax(-1)
        mixed = (weights * mask[:, None, None, :]) @ v
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


def build(folder: Path) -> Built:
    torch.manual_seed(19)
    model = give_weights(TextEncoder(1), 19)
    wrong = TextEncoder(1).eval()
    wrong.blocks[0].attention = LateMask(32, 4)
    wrong.load_state_dict(model.state_dict())
    ids, mask = torch.randint(0, 97, (2, 8)), torch.ones(2, 8, dtype=torch.bool)
    shapes = ({0: "batch", 1: "length"}, {0: "batch", 1: "length"})
    correct = export(model, (ids, mask), folder / "correct.onnx", shapes)
    faulty = export(wrong, (ids, mask), folder / "faulty.onnx", shapes)
    graph = load(faulty).graph
    softmax = nodes(graph, "Softmax")[0]
    late = next(n for n in nodes(graph, "Mul") if softmax.output[0] in n.input)
    padded = torch.arange(8)[None] < torch.tensor([[8], [5]])
    return Built(
        model=model,
        example_inputs=(ids, mask),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=faulty,
        guilty=[late.name, softmax.name],
        trigger=(ids, padded),
    )
