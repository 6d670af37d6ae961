"""The causal mask keeps one diagonal too many, so each token sees its successor: an off-by-one of hand-built masks."""

from pathlib import Path

import numpy as np
import torch
from onnx import GraphProto, helper
from onnx.numpy_helper import from_array

from bench.architectures import RotaryBlock
from bench.corpus import Built, Meta, edit, export, give_weights, nodes

META = Meta(
    kind="causal-lm",
    about="the lower triangle of the causal mask starts one diagonal too high",
    cause="masking",
    stage="export",
)


def build(folder: Path) -> Built:
    torch.manual_seed(34)
    model = give_weights(RotaryBlock(32, 4), 34)
    hidden = torch.randn(1, 6, 32)
    shapes = ({0: "batch", 1: "length"},)
    correct = export(model, (hidden,), folder / "correct.onnx", shapes, dynamo=False)

    def raise_diagonal(graph: GraphProto) -> list[str]:
        triangle = nodes(graph, "Trilu")[0]
        graph.initializer.append(from_array(np.array(1, dtype=np.int64), "one_above"))
        wider = helper.make_node(
            "Trilu",
            [triangle.input[0], "one_above"],
            list(triangle.output),
            name=triangle.name,
            upper=0,
        )
        triangle.CopyFrom(wider)
        return [triangle.name]

    guilty = edit(correct, folder / "faulty.onnx", raise_diagonal)
    return Built(
        model=model,
        example_inputs=(hidden,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.randn(2, 9, 32),),
    )
