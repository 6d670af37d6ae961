"""HardSwish of a mobile network was replaced by the smooth Swish that it approximates."""

from pathlib import Path

import torch
from onnx import GraphProto, helper
from torch import nn

from bench.architectures import ConvNet
from bench.corpus import Built, Meta, edit, export, give_weights, nodes

META = Meta(kind="conv", about="HardSwish became x * sigmoid(x)", cause="attribute", stage="export")


def build(folder: Path) -> Built:
    torch.manual_seed(111)
    model = give_weights(ConvNet("batch", nn.Hardswish), 111)
    image = torch.randn(1, 3, 24, 24)
    shapes = ({0: "batch"},)
    correct = export(model, (image,), folder / "correct.onnx", shapes)

    def smooth(graph: GraphProto) -> list[str]:
        hard = nodes(graph, "HardSwish")[0]
        gate = helper.make_node("Sigmoid", [hard.input[0]], ["smooth_gate"], name="smooth_gate")
        graph.node.insert(list(graph.node).index(hard), gate)
        hard.CopyFrom(
            helper.make_node(
                "Mul", [hard.input[0], "smooth_gate"], list(hard.output), name=hard.name
            )
        )
        return [hard.name, gate.name]

    guilty = edit(correct, folder / "faulty.onnx", smooth)
    return Built(
        model=model,
        example_inputs=(image,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.randn(2, 3, 24, 24),),
    )
