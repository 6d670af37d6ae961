"""Rotary pairs are neighbours in one checkpoint format and halves in another; q and k were stored for the wrong one."""

from pathlib import Path

import torch
from onnx import GraphProto

from bench.architectures import RotaryBlock
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
    kind="causal-lm",
    about="rows of the q and k weights are ordered for interleaved rotary pairs",
    cause="weight-layout",
    stage="export",
)


def build(folder: Path) -> Built:
    torch.manual_seed(36)
    model = give_weights(RotaryBlock(32, 4), 36)
    hidden = torch.randn(1, 6, 32)
    shapes = ({0: "batch", 1: "length"},)
    correct = export(model, (hidden,), folder / "correct.onnx", shapes)

    def interleave(graph: GraphProto) -> list[str]:
        fused = nodes(graph, "MatMul")[0]
        weight = read_constant(graph, fused.input[1])
        parts = weight.reshape(32, 3, 4, 2, 4)
        parts[:, :2] = parts[:, :2].swapaxes(3, 4).reshape(32, 2, 4, 2, 4)
        write_constant(graph, fused.input[1], parts.reshape(weight.shape))
        return [fused.name]

    guilty = edit(correct, folder / "faulty.onnx", interleave)
    return Built(
        model=model,
        example_inputs=(hidden,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.randn(2, 9, 32),),
    )
