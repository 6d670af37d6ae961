"""A square kernel came from a format that stores columns before rows: each filter is transposed, no shape complains."""

from pathlib import Path

import torch
from onnx import GraphProto

from bench.architectures import ConvNet
from bench.corpus import (
    Built,
    Meta,
    edit,
    export,
    give_weights,
    nodes,
    read_constant,
    write_constant,
)

META = Meta(
    kind="conv",
    about="height and width of one 3x3 kernel are swapped",
    cause="weight-layout",
    stage="export",
)


def build(folder: Path) -> Built:
    torch.manual_seed(115)
    model = give_weights(ConvNet("group"), 115)
    image = torch.randn(1, 3, 24, 24)
    shapes = ({0: "batch"},)
    correct = export(model, (image,), folder / "correct.onnx", shapes, dynamo=False)

    def transpose(graph: GraphProto) -> list[str]:
        conv = nodes(graph, "Conv")[2]
        write_constant(graph, conv.input[1], read_constant(graph, conv.input[1]).swapaxes(2, 3))
        return [conv.name]

    guilty = edit(correct, folder / "faulty.onnx", transpose)
    return Built(
        model=model,
        example_inputs=(image,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.randn(2, 3, 24, 24),),
    )
