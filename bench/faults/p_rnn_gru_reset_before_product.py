"""The GRU applies its reset gate before the recurrent product, ONNX's default and Keras' old form, instead of after it."""

from pathlib import Path

import torch
from onnx import GraphProto
from torch import nn

from bench.architectures import RecurrentTagger
from bench.corpus import Built, Meta, edit, export, give_weights, nodes, set_attributes

META = Meta(kind="rnn", about="GRU linear_before_reset was lost", cause="attribute", stage="export")


def build(folder: Path) -> Built:
    torch.manual_seed(52)
    model = give_weights(RecurrentTagger(nn.GRU), 52)
    ids = torch.randint(0, 53, (2, 7))
    shapes = ({0: "batch", 1: "length"},)
    correct = export(model, (ids,), folder / "correct.onnx", shapes, dynamo=False)

    def forget(graph: GraphProto) -> list[str]:
        layer = nodes(graph, "GRU")[0]
        set_attributes(layer, linear_before_reset=None)
        return [layer.name]

    guilty = edit(correct, folder / "faulty.onnx", forget)
    return Built(
        model=model,
        example_inputs=(ids,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.randint(0, 53, (3, 11)),),
    )
