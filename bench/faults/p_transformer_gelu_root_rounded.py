"""Someone typed GELU's root of two as 1.414 in a hand-written graph: every value is off by one part in ten thousand."""

from pathlib import Path

import numpy as np
import torch
from onnx import GraphProto
from onnx.numpy_helper import from_array

from bench.architectures import TransformerStack
from bench.corpus import Built, Meta, edit, export, give_weights, nodes, producer

META = Meta(
    kind="transformer",
    about="Erf(x / 1.414) instead of Erf(x / sqrt(2)); within atol 1e-4, rtol 1e-3",
    cause="attribute",
    stage="export",
)


def build(folder: Path) -> Built:
    torch.manual_seed(109)
    model = give_weights(TransformerStack(2), 109)
    features = torch.randn(1, 5, 32)
    shapes = ({0: "batch", 1: "length"},)
    correct = export(model, (features,), folder / "correct.onnx", shapes, dynamo=False)

    def shorten(graph: GraphProto) -> list[str]:
        divide = producer(graph, nodes(graph, "Erf")[1].input[0])
        graph.initializer.append(from_array(np.array(1.414, dtype=np.float32), "short_root"))
        divide.input[1] = "short_root"
        return [divide.name]

    guilty = edit(correct, folder / "faulty.onnx", shorten)
    return Built(
        model=model,
        example_inputs=(features,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.randn(2, 8, 32),),
    )
