"""RMSNorm's epsilon 1e-6 became 1e-5: families of language models differ in it, and only quiet rows show it."""

from pathlib import Path

import numpy as np
import torch
from onnx import GraphProto
from onnx.numpy_helper import from_array

from bench.architectures import RotaryBlock
from bench.corpus import Built, Meta, edit, export, give_weights, nodes, producer

META = Meta(
    kind="causal-lm",
    about="the epsilon under the root of one RMSNorm is ten times too large",
    cause="attribute",
    stage="export",
)


def build(folder: Path) -> Built:
    torch.manual_seed(37)
    model = give_weights(RotaryBlock(32, 4), 37)
    hidden = torch.randn(1, 6, 32)
    shapes = ({0: "batch", 1: "length"},)
    correct = export(model, (hidden,), folder / "correct.onnx", shapes, dynamo=False)

    def enlarge(graph: GraphProto) -> list[str]:
        shifted = producer(graph, nodes(graph, "Sqrt")[1].input[0])
        shifted.input[1] = "larger_epsilon"
        graph.initializer.append(from_array(np.array(1e-5, dtype=np.float32), "larger_epsilon"))
        return [shifted.name]

    guilty = edit(correct, folder / "faulty.onnx", enlarge)
    return Built(
        model=model,
        example_inputs=(hidden,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.randn(1, 6, 32) * 0.003,),
    )
