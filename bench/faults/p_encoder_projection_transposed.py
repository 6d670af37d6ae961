"""The square output projection of attention was transposed twice by a weight converter; no shape can complain."""

from pathlib import Path

import torch
from onnx import GraphProto

from bench.architectures import TextEncoder
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
    kind="transformer",
    about="a square Linear weight is transposed",
    cause="weight-layout",
    stage="export",
)


def build(folder: Path) -> Built:
    torch.manual_seed(15)
    model = give_weights(TextEncoder(2), 15)
    ids, mask = torch.randint(0, 97, (2, 9)), torch.ones(2, 9, dtype=torch.bool)
    shapes = ({0: "batch", 1: "length"}, {0: "batch", 1: "length"})
    correct = export(model, (ids, mask), folder / "correct.onnx", shapes)

    def transpose(graph: GraphProto) -> list[str]:
        squares = {tensor.name for tensor in graph.initializer if list(tensor.dims) == [32, 32]}
        projection = next(n for n in nodes(graph, "MatMul") if n.input[1] in squares)
        write_constant(graph, projection.input[1], read_constant(graph, projection.input[1]).T)
        return [projection.name]

    guilty = edit(correct, folder / "faulty.onnx", transpose)
    return Built(
        model=model,
        example_inputs=(ids, mask),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.randint(0, 97, (3, 12)), torch.ones(3, 12, dtype=torch.bool)),
    )
