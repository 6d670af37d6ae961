"""A hand-written decoder graph concatenates the new keys in front of the past ones instead of behind them."""

from pathlib import Path

import torch
from onnx import GraphProto

from bench.architectures import CachedCausalLM
from bench.corpus import Built, Meta, edit, export, give_weights, nodes

META = Meta(
    kind="causal-lm",
    about="one layer's keys are concatenated as (new, past)",
    cause="cache",
    stage="export",
)


def build(folder: Path) -> Built:
    torch.manual_seed(31)
    model = give_weights(CachedCausalLM(), 31)
    ids, past = torch.randint(0, 61, (1, 3)), torch.randn(2, 2, 1, 4, 5, 8)
    shapes = ({0: "batch", 1: "new"}, {2: "batch", 4: "seen"})
    correct = export(model, (ids, past), folder / "correct.onnx", shapes, dynamo=False)

    def turn(graph: GraphProto) -> list[str]:
        axis = {n.name: n.attribute[0].i for n in nodes(graph, "Concat")}
        grown = [n for n in nodes(graph, "Concat") if axis[n.name] in (2, -2) and len(n.input) == 2]
        keys = grown[2]
        keys.input[0], keys.input[1] = keys.input[1], keys.input[0]
        return [keys.name]

    guilty = edit(correct, folder / "faulty.onnx", turn)
    return Built(
        model=model,
        example_inputs=(ids, past),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.randint(0, 61, (2, 2)), torch.randn(2, 2, 2, 4, 7, 8)),
    )
