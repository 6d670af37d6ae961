"""The cache comes back as (values, keys): a wrapper stacked them in the order of another framework; the first step is fine."""

from pathlib import Path

import torch
from onnx import GraphProto

from bench.architectures import CachedCausalLM
from bench.corpus import Built, Meta, edit, export, give_weights, nodes

META = Meta(
    kind="causal-lm",
    about="the returned cache holds values where keys belong in the last layer",
    cause="output-order",
    stage="export",
    also=("cache",),
)


def build(folder: Path) -> Built:
    torch.manual_seed(33)
    model = give_weights(CachedCausalLM(), 33)
    ids, past = torch.randint(0, 61, (1, 3)), torch.randn(2, 2, 1, 4, 4, 8)
    shapes = ({0: "batch", 1: "new"}, {2: "batch", 4: "seen"})
    correct = export(model, (ids, past), folder / "correct.onnx", shapes)

    def swap(graph: GraphProto) -> list[str]:
        pair = next(n for n in nodes(graph, "Concat") if n.name == "node_stack_1")
        pair.input[0], pair.input[1] = pair.input[1], pair.input[0]
        return [pair.name]

    guilty = edit(correct, folder / "faulty.onnx", swap)
    return Built(
        model=model,
        example_inputs=(ids, past),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.randint(0, 61, (2, 2)), torch.randn(2, 2, 2, 4, 9, 8)),
    )
