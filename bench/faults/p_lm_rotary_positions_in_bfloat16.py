"""Rotary positions pass through bfloat16, which has no odd integers above 256: a whole-model cast hurts long contexts."""

from pathlib import Path

import torch
from onnx import GraphProto, TensorProto, helper

from bench.architectures import RotaryBlock
from bench.corpus import Built, Meta, edit, export, give_weights, nodes, rewire

META = Meta(
    kind="causal-lm",
    about="positions are rounded to bfloat16; exact up to 256 tokens",
    cause="precision",
    stage="export",
)


def build(folder: Path) -> Built:
    torch.manual_seed(35)
    model = give_weights(RotaryBlock(32, 4), 35)
    hidden = torch.randn(1, 6, 32)
    shapes = ({0: "batch", 1: "length"},)
    correct = export(model, (hidden,), folder / "correct.onnx", shapes)

    def narrow(graph: GraphProto) -> list[str]:
        count = nodes(graph, "Range")[0]
        floats = next(n for n in nodes(graph, "Cast") if n.input[0] == count.output[0])
        down = helper.make_node(
            "Cast",
            [floats.output[0]],
            ["positions_bf16"],
            name="positions_to_bf16",
            to=TensorProto.BFLOAT16,
        )
        up = helper.make_node(
            "Cast",
            ["positions_bf16"],
            ["positions_f32"],
            name="positions_to_f32",
            to=TensorProto.FLOAT,
        )
        rewire(graph, floats.output[0], "positions_f32")
        for node in (up, down):
            graph.node.insert(list(graph.node).index(floats) + 1, node)
        return [down.name, up.name]

    guilty = edit(correct, folder / "faulty.onnx", narrow)
    return Built(
        model=model,
        example_inputs=(hidden,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.randn(1, 290, 32),),
    )
