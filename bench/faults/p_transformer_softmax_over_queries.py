"""Softmax normalises over queries instead of keys, the mistake of an axis counted from the wrong end."""

from pathlib import Path

import torch
from onnx import GraphProto

from bench.architectures import TransformerStack
from bench.corpus import Built, Meta, edit, export, give_weights, nodes, set_attributes

META = Meta(
    kind="transformer", about="Softmax axis -1 became -2", cause="attribute", stage="export"
)


def build(folder: Path) -> Built:
    torch.manual_seed(119)
    model = give_weights(TransformerStack(2), 119)
    features = torch.randn(1, 5, 32)
    shapes = ({0: "batch", 1: "length"},)
    correct = export(model, (features,), folder / "correct.onnx", shapes, dynamo=False)

    def turn(graph: GraphProto) -> list[str]:
        softmax = nodes(graph, "Softmax")[0]
        set_attributes(softmax, axis=2)
        return [softmax.name]

    guilty = edit(correct, folder / "faulty.onnx", turn)
    return Built(
        model=model,
        example_inputs=(features,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.randn(2, 8, 32),),
    )
