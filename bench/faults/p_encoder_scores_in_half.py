"""Mixed-precision conversion left the softmax of one block in float16 inside an otherwise float32 graph."""

from pathlib import Path

import torch
from onnx import GraphProto, TensorProto, helper

from bench.architectures import TextEncoder
from bench.corpus import Built, Meta, edit, export, give_weights, nodes

META = Meta(
    kind="transformer",
    about="one Softmax runs in float16 between two casts",
    cause="precision",
    stage="export",
)


def build(folder: Path) -> Built:
    torch.manual_seed(22)
    model = give_weights(TextEncoder(2), 22)
    ids, mask = torch.randint(0, 97, (2, 9)), torch.ones(2, 9, dtype=torch.bool)
    shapes = ({0: "batch", 1: "length"}, {0: "batch", 1: "length"})
    correct = export(model, (ids, mask), folder / "correct.onnx", shapes)

    def halve(graph: GraphProto) -> list[str]:
        softmax = nodes(graph, "Softmax")[1]
        place = list(graph.node).index(softmax)
        down = helper.make_node(
            "Cast",
            [softmax.input[0]],
            ["scores_half"],
            name="scores_to_half",
            to=TensorProto.FLOAT16,
        )
        up = helper.make_node(
            "Cast", ["scores_half"], ["scores_float"], name="scores_to_float", to=TensorProto.FLOAT
        )
        softmax.input[0] = "scores_float"
        graph.node.insert(place, up)
        graph.node.insert(place, down)
        return [down.name, up.name, softmax.name]

    guilty = edit(correct, folder / "faulty.onnx", halve)
    return Built(
        model=model,
        example_inputs=(ids, mask),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.randint(0, 97, (3, 15)), torch.ones(3, 15, dtype=torch.bool)),
    )
