"""The output head of a float32 model was stored through float16 to halve the largest tensor of the file."""

from pathlib import Path

import numpy as np
import torch
from onnx import GraphProto

from bench.architectures import CachedCausalLM
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
    kind="causal-lm",
    about="the head's weight was rounded to float16",
    cause="precision",
    stage="export",
)


def build(folder: Path) -> Built:
    torch.manual_seed(41)
    model = give_weights(CachedCausalLM(), 41)
    ids, past = torch.randint(0, 61, (1, 3)), torch.randn(2, 2, 1, 4, 4, 8)
    shapes = ({0: "batch", 1: "new"}, {2: "batch", 4: "seen"})
    correct = export(model, (ids, past), folder / "correct.onnx", shapes, dynamo=False)

    def halve(graph: GraphProto) -> list[str]:
        head = nodes(graph, "MatMul")[-1]
        write_constant(
            graph,
            head.input[1],
            read_constant(graph, head.input[1]).astype(np.float16).astype(np.float32),
        )
        return [head.name]

    guilty = edit(correct, folder / "faulty.onnx", halve)
    return Built(
        model=model,
        example_inputs=(ids, past),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.randint(0, 61, (2, 2)), torch.randn(2, 2, 2, 4, 9, 8)),
    )
