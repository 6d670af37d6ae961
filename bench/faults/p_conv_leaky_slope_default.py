"""Darknet's LeakyReLU has slope 0.1; a graph without the attribute falls back to ONNX's 0.01 in one layer."""

from pathlib import Path

import torch
from onnx import GraphProto
from torch import nn

from bench.architectures import ConvNet
from bench.corpus import Built, Meta, edit, export, give_weights, nodes, set_attributes

META = Meta(
    kind="conv",
    about="LeakyRelu alpha 0.1 lost: the default is 0.01",
    cause="attribute",
    stage="export",
)


def build(folder: Path) -> Built:
    torch.manual_seed(110)
    model = give_weights(ConvNet("batch", lambda: nn.LeakyReLU(0.1)), 110)
    image = torch.randn(1, 3, 24, 24)
    shapes = ({0: "batch"},)
    correct = export(model, (image,), folder / "correct.onnx", shapes)

    def forget(graph: GraphProto) -> list[str]:
        leaky = nodes(graph, "LeakyRelu")[1]
        set_attributes(leaky, alpha=None)
        return [leaky.name]

    guilty = edit(correct, folder / "faulty.onnx", forget)
    return Built(
        model=model,
        example_inputs=(image,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.randn(2, 3, 24, 24),),
    )
