"""Attention scores are divided by the root of the model width instead of the head width, as in single-head textbooks."""

from pathlib import Path

import numpy as np
import torch
from onnx import GraphProto
from onnx.numpy_helper import from_array

from bench.architectures import TransformerStack
from bench.corpus import Built, Meta, edit, export, give_weights, nodes

META = Meta(
    kind="transformer",
    about="1/sqrt(d) of the second block was computed with the full width",
    cause="attribute",
    stage="export",
)


def build(folder: Path) -> Built:
    torch.manual_seed(18)
    model = give_weights(TransformerStack(2), 18)
    features = torch.randn(2, 5, 32)
    shapes = ({0: "batch", 1: "length"},)
    correct = export(model, (features,), folder / "correct.onnx", shapes)

    def rescale(graph: GraphProto) -> list[str]:
        divide = nodes(graph, "Div")[-1]
        divide.input[1] = "root_of_width"
        graph.initializer.append(from_array(np.array(32**0.5, dtype=np.float32), "root_of_width"))
        return [divide.name]

    guilty = edit(correct, folder / "faulty.onnx", rescale)
    return Built(
        model=model,
        example_inputs=(features,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.randn(3, 7, 32),),
    )
