"""Sentence vectors are averaged over padding too: the pooling layer of the embedding model was exported without its mask."""

from pathlib import Path

import torch
from onnx import GraphProto

from bench.architectures import TextEncoder
from bench.corpus import Built, Meta, edit, export, give_weights, nodes, producer

META = Meta(
    kind="embedding",
    about="mean pooling sums padded positions; identical while no text is padded",
    cause="masking",
    stage="export",
)


def build(folder: Path) -> Built:
    torch.manual_seed(20)
    model = give_weights(TextEncoder(1), 20)
    ids, mask = torch.randint(0, 97, (2, 8)), torch.ones(2, 8, dtype=torch.bool)
    shapes = ({0: "batch", 1: "length"}, {0: "batch", 1: "length"})
    correct = export(model, (ids, mask), folder / "correct.onnx", shapes, dynamo=False)

    def unmask(graph: GraphProto) -> list[str]:
        total = nodes(graph, "ReduceSum")[0]
        weighted = producer(graph, total.input[0])
        total.input[0] = weighted.input[0]
        graph.node.remove(weighted)
        return [total.name]

    guilty = edit(correct, folder / "faulty.onnx", unmask)
    padded = torch.arange(8)[None] < torch.tensor([[8], [3]])
    return Built(
        model=model,
        example_inputs=(ids, mask),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(ids, padded),
    )
