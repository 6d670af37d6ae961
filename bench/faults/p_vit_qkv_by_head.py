"""A fused projection stored head by head (q, k, v of head 0, then of head 1) is read as all q, all k, all v."""

from pathlib import Path

import torch
from onnx import GraphProto

from bench.architectures import VisionTransformer
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
    kind="vit",
    about="the rows of one fused qkv weight are grouped by head instead of by q, k, v",
    cause="weight-layout",
    stage="export",
)
WIDTH, HEADS = 32, 4


def build(folder: Path) -> Built:
    torch.manual_seed(14)
    model = give_weights(VisionTransformer(2, width=WIDTH), 14)
    image = torch.randn(1, 3, 32, 32)
    shapes = ({0: "batch"},)
    correct = export(model, (image,), folder / "correct.onnx", shapes, dynamo=False)

    def regroup(graph: GraphProto) -> list[str]:
        fused = next(n for n in nodes(graph, "MatMul") if "/stack/blocks.1/attention/qkv" in n.name)
        weight = read_constant(graph, fused.input[1])
        write_constant(
            graph,
            fused.input[1],
            weight.reshape(WIDTH, 3, HEADS, -1).swapaxes(1, 2).reshape(weight.shape),
        )
        return [fused.name]

    guilty = edit(correct, folder / "faulty.onnx", regroup)
    return Built(
        model=model,
        example_inputs=(image,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.randn(2, 3, 32, 32),),
    )
