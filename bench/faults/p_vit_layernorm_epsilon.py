"""Vision transformers train with LayerNorm epsilon 1e-6; a graph rebuilt by hand has the framework's 1e-5: very small."""

from pathlib import Path

import torch
from onnx import GraphProto
from torch import nn

from bench.architectures import VisionTransformer
from bench.corpus import Built, Meta, edit, export, give_weights, nodes, set_attributes

META = Meta(
    kind="vit",
    about="one LayerNormalization epsilon 1e-6 became 1e-5; within atol 1e-4, rtol 1e-3 on ordinary data",
    cause="attribute",
    stage="export",
)


def build(folder: Path) -> Built:
    torch.manual_seed(11)
    model = give_weights(VisionTransformer(3), 11)
    with torch.no_grad():
        for part in (model.token, model.positions, model.patches.weight, model.patches.bias):
            part.mul_(3.0)
    for layer in model.modules():
        if isinstance(layer, nn.LayerNorm):
            layer.eps = 1e-6
    image = torch.randn(1, 3, 32, 32)
    shapes = ({0: "batch"},)
    correct = export(model, (image,), folder / "correct.onnx", shapes)

    def default(graph: GraphProto) -> list[str]:
        norm = nodes(graph, "LayerNormalization")[0]
        set_attributes(norm, epsilon=1e-5)
        return [norm.name]

    guilty = edit(correct, folder / "faulty.onnx", default)
    return Built(
        model=model,
        example_inputs=(image,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.randn(4, 3, 32, 32),),
    )
