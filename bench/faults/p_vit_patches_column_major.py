"""Patches are flattened column by column: a layout pass swapped height and width, and a square grid hides it from shapes."""

from pathlib import Path

import torch
from onnx import GraphProto, helper

from bench.architectures import VisionTransformer
from bench.corpus import Built, Meta, edit, export, give_weights, nodes

META = Meta(
    kind="vit",
    about="height and width transposed before the patch grid is flattened",
    cause="axis-order",
    stage="export",
)


def build(folder: Path) -> Built:
    torch.manual_seed(13)
    model = give_weights(VisionTransformer(2), 13)
    image = torch.randn(2, 3, 32, 32)
    shapes = ({0: "batch"},)
    correct = export(model, (image,), folder / "correct.onnx", shapes, dynamo=False)

    def transpose(graph: GraphProto) -> list[str]:
        conv = nodes(graph, "Conv")[0]
        grid = conv.output[0]
        conv.output[0] = "grid_by_rows"
        swap = helper.make_node(
            "Transpose", ["grid_by_rows"], [grid], name="layout_transpose", perm=[0, 1, 3, 2]
        )
        graph.node.insert(list(graph.node).index(conv) + 1, swap)
        return [swap.name]

    guilty = edit(correct, folder / "faulty.onnx", transpose)
    return Built(
        model=model,
        example_inputs=(image,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.randn(1, 3, 32, 32),),
    )
