"""The split into heads has the example's length written in: twice that length is attended in two separate halves."""

from pathlib import Path

import numpy as np
import torch
from onnx import GraphProto

from bench.architectures import TransformerStack
from bench.corpus import Built, Meta, edit, export, give_weights, nodes, write_constant

META = Meta(
    kind="transformer",
    about="Reshape to (-1, 6, 3, heads, size): a sequence of twelve becomes two of six",
    cause="baked-dimension",
    stage="export",
)


def build(folder: Path) -> Built:
    torch.manual_seed(16)
    model = give_weights(TransformerStack(1), 16)
    features = torch.randn(2, 6, 32)
    shapes = ({0: "batch", 1: "length"},)
    correct = export(model, (features,), folder / "correct.onnx", shapes, dynamo=False)

    def bake(graph: GraphProto) -> list[str]:
        split = nodes(graph, "Reshape")[0]
        split.input[1] = "example_split"
        write_constant(graph, "example_split", np.array([-1, 6, 3, 4, 8], dtype=np.int64))
        return [split.name]

    guilty = edit(correct, folder / "faulty.onnx", bake)
    return Built(
        model=model,
        example_inputs=(features,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.randn(2, 12, 32),),
    )
