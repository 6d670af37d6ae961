"""A hand-written folding of BatchNorm divided by sqrt(variance) and forgot the epsilon: very small."""

from pathlib import Path

import numpy as np
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
    about="one folded Conv was scaled without epsilon; within atol 1e-4, rtol 1e-3",
    cause="weights",
    stage="export",
)


def build(folder: Path) -> Built:
    torch.manual_seed(118)
    model = give_weights(ConvNet("batch"), 118)
    norm = model.blocks[1][1]
    norm.running_var.mul_(0.1)
    image = torch.randn(1, 3, 24, 24)
    shapes = ({0: "batch"},)
    correct = export(model, (image,), folder / "correct.onnx", shapes, dynamo=False)
    ratio = torch.sqrt((norm.running_var.double() + norm.eps) / norm.running_var.double()).numpy()
    shift = norm.bias.detach().double().numpy()

    def rescale(graph: GraphProto) -> list[str]:
        conv = nodes(graph, "Conv")[2]
        weight, bias = (read_constant(graph, name).astype(np.float64) for name in conv.input[1:3])
        write_constant(
            graph, conv.input[1], (weight * ratio[:, None, None, None]).astype(np.float32)
        )
        write_constant(graph, conv.input[2], ((bias - shift) * ratio + shift).astype(np.float32))
        return [conv.name]

    guilty = edit(correct, folder / "faulty.onnx", rescale)
    return Built(
        model=model,
        example_inputs=(image,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.randn(2, 3, 24, 24),),
    )
