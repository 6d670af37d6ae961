"""The row for unknown categories differs: the table was exported before that row was filled, and the example has no unknowns."""

from pathlib import Path

import torch
from onnx import GraphProto

from bench.architectures import Tabular
from bench.corpus import (
    Built,
    Meta,
    edit,
    export,
    give_weights,
    nodes,
    read_constant,
    write_constant,
)

META = Meta(
    kind="tabular",
    about="the last row of one embedding table is stale",
    cause="weights",
    stage="export",
)


def build(folder: Path) -> Built:
    torch.manual_seed(79)
    model = give_weights(Tabular(), 79)
    categories, numbers = torch.randint(0, 6, (4, 3)), torch.randn(4, 6)
    shapes = ({0: "batch"}, {0: "batch"})
    correct = export(model, (categories, numbers), folder / "correct.onnx", shapes, dynamo=False)

    def stale(graph: GraphProto) -> list[str]:
        lookup = next(n for n in nodes(graph, "Gather") if n.input[0] == "embeddings.2.weight")
        table = read_constant(graph, lookup.input[0])
        table[-1] = 0
        write_constant(graph, lookup.input[0], table)
        return [lookup.name]

    guilty = edit(correct, folder / "faulty.onnx", stale)
    unknown = categories.clone()
    unknown[1, 2] = 30
    return Built(
        model=model,
        example_inputs=(categories, numbers),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(unknown, numbers),
    )
