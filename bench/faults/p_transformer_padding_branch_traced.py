"""`if mask.all()` skips the masking of full batches; tracing with a full batch kept only that branch."""

from pathlib import Path

import torch
from onnx import load
from torch import Tensor

from bench.architectures import TextEncoder
from bench.corpus import Built, Meta, export, give_weights, nodes

META = Meta(
    kind="transformer",
    about="the branch for padded batches is not in the file",
    cause="baked-branch",
    also=("masking",),
    stage="export",
    native=True,
)


class Shortcut(TextEncoder):
    """A fast path for batches without padding, as inference code has it."""

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        if bool(mask.all()):
            x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
            for block in self.blocks:
                x = block(x)
            return x.mean(1)
        return super().forward(ids, mask)


def build(folder: Path) -> Built:
    torch.manual_seed(96)
    model, plain = give_weights(Shortcut(1), 96), give_weights(TextEncoder(1), 96)
    ids, mask = torch.randint(0, 97, (2, 8)), torch.ones(2, 8, dtype=torch.bool)
    shapes = ({0: "batch", 1: "length"}, {0: "batch", 1: "length"})
    correct = export(plain, (ids, mask), folder / "correct.onnx", shapes)
    faulty = export(model, (ids, mask), folder / "faulty.onnx", shapes, dynamo=False)
    graph = load(faulty).graph
    guilty = [nodes(graph, "Softmax")[0].name, nodes(graph, "ReduceMean")[-1].name]
    padded = torch.arange(8)[None] < torch.tensor([[8], [4]])
    return Built(
        model=model,
        example_inputs=(ids, mask),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=faulty,
        guilty=guilty,
        trigger=(ids, padded),
    )
