"""Fast-GELU passes and ports from JAX turn the exact GELU into its tanh form in one block of a vision transformer."""

from pathlib import Path

import torch
from onnx import GraphProto

from bench.architectures import VisionTransformer
from bench.corpus import Built, Meta, edit, export, give_weights, nodes, set_attributes

META = Meta(
    kind="vit",
    about="one Gelu is approximated by tanh where the module computes erf",
    cause="attribute",
    stage="export",
)


def build(folder: Path) -> Built:
    torch.manual_seed(12)
    model = give_weights(VisionTransformer(3), 12)
    image = torch.randn(1, 3, 32, 32)
    shapes = ({0: "batch"},)
    correct = export(model, (image,), folder / "correct.onnx", shapes, opset=20)

    def approximate(graph: GraphProto) -> list[str]:
        gelu = nodes(graph, "Gelu")[1]
        set_attributes(gelu, approximate="tanh")
        return [gelu.name]

    guilty = edit(correct, folder / "faulty.onnx", approximate)
    return Built(
        model=model,
        example_inputs=(image,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.randn(2, 3, 32, 32),),
    )
