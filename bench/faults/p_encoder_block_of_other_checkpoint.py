"""One feed-forward layer comes from the checkpoint a few steps earlier (raw instead of averaged weights)."""

from pathlib import Path

import numpy as np
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
    about="one layer's weight is a few optimizer steps old: 0.3 % away",
    cause="weights",
    stage="export",
)


def build(folder: Path) -> Built:
    torch.manual_seed(23)
    model = give_weights(TextEncoder(2), 23)
    ids, mask = torch.randint(0, 97, (2, 9)), torch.ones(2, 9, dtype=torch.bool)
    shapes = ({0: "batch", 1: "length"}, {0: "batch", 1: "length"})
    correct = export(model, (ids, mask), folder / "correct.onnx", shapes, dynamo=False)

    def age(graph: GraphProto) -> list[str]:
        layer = next(n for n in nodes(graph, "MatMul") if "/blocks.1/feed/feed.0" in n.name)
        weight = read_constant(graph, layer.input[1])
        step = np.random.default_rng(23).standard_normal(weight.shape).astype(np.float32)
        write_constant(graph, layer.input[1], weight * (1 + 0.003 * step))
        return [layer.name]

    guilty = edit(correct, folder / "faulty.onnx", age)
    return Built(
        model=model,
        example_inputs=(ids, mask),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.randint(0, 97, (3, 12)), torch.ones(3, 12, dtype=torch.bool)),
    )
