"""ReLU written as Where(x > 0, x, 0) turns NaN into zero, where PyTorch passes it on: broken sensor frames look healthy."""

from pathlib import Path

import numpy as np
import torch
from onnx import GraphProto, helper
from onnx.numpy_helper import from_array

from bench.architectures import ConvNet
from bench.corpus import Built, Meta, edit, export, give_weights, nodes

META = Meta(
    kind="conv",
    about="one Relu became Where(Greater)",
    cause="nan-handling",
    stage="export",
    domain="nan",
)


def build(folder: Path) -> Built:
    torch.manual_seed(104)
    model = give_weights(ConvNet("none", width=8, depth=1, classes=3), 104)
    model.stem = torch.nn.Sequential(model.stem, torch.nn.ReLU())
    image = torch.randn(2, 3, 16, 16)
    shapes = ({0: "batch"},)
    correct = export(model, (image,), folder / "correct.onnx", shapes)

    def choose(graph: GraphProto) -> list[str]:
        relu = nodes(graph, "Relu")[0]
        graph.initializer.append(from_array(np.array(0, dtype=np.float32), "nothing"))
        positive = helper.make_node(
            "Greater", [relu.input[0], "nothing"], ["positive"], name="is_positive"
        )
        graph.node.insert(list(graph.node).index(relu), positive)
        relu.CopyFrom(
            helper.make_node(
                "Where", ["positive", relu.input[0], "nothing"], list(relu.output), name=relu.name
            )
        )
        return [relu.name, positive.name]

    guilty = edit(correct, folder / "faulty.onnx", choose)
    broken = image.clone()
    broken[0, 1] = float("nan")
    return Built(
        model=model,
        example_inputs=(image,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(broken,),
    )
