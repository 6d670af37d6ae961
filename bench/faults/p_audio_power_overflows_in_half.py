"""The power spectrum is computed in float16: fine for speech in [-1, 1], infinite for waves in 16-bit integer range."""

from pathlib import Path

import torch
from onnx import GraphProto, TensorProto, helper

from bench.architectures import LogMel
from bench.corpus import Built, Meta, edit, export, give_weights, nodes, rewire

META = Meta(
    kind="audio", about="the summed squares pass through float16", cause="precision", stage="export"
)


def build(folder: Path) -> Built:
    torch.manual_seed(58)
    model = give_weights(LogMel(), 58)
    wave = torch.rand(2, 320) * 2 - 1
    shapes = ({0: "batch", 1: "samples"},)
    correct = export(model, (wave,), folder / "correct.onnx", shapes)

    def halve(graph: GraphProto) -> list[str]:
        power = nodes(graph, "Add")[0]
        rewire(graph, power.output[0], "power_float")
        down = helper.make_node(
            "Cast", [power.output[0]], ["power_half"], name="power_to_half", to=TensorProto.FLOAT16
        )
        up = helper.make_node(
            "Cast", ["power_half"], ["power_float"], name="power_to_float", to=TensorProto.FLOAT
        )
        for node in (up, down):
            graph.node.insert(list(graph.node).index(power) + 1, node)
        return [down.name, up.name]

    guilty = edit(correct, folder / "faulty.onnx", halve)
    return Built(
        model=model,
        example_inputs=(wave,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=((torch.rand(1, 320) * 2 - 1) * 32767,),
    )
