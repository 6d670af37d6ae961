"""The transpose before the heads are merged was cancelled against another one by a graph cleaner: every shape still fits."""

from pathlib import Path

import torch
from onnx import GraphProto

from bench.architectures import TransformerStack
from bench.corpus import Built, Meta, edit, export, give_weights, nodes, producer, rewire

META = Meta(
    kind="transformer",
    about="heads are merged without moving them behind the sequence axis",
    cause="axis-order",
    stage="export",
)


def build(folder: Path) -> Built:
    torch.manual_seed(17)
    model = give_weights(TransformerStack(2), 17)
    features = torch.randn(2, 5, 32)
    shapes = ({0: "batch", 1: "length"},)
    correct = export(model, (features,), folder / "correct.onnx", shapes)

    def cancel(graph: GraphProto) -> list[str]:
        merge = next(
            n
            for n in nodes(graph, "Reshape")
            if getattr(producer(graph, n.input[0]), "op_type", "") == "Transpose"
        )
        back = producer(graph, merge.input[0])
        rewire(graph, back.output[0], back.input[0])
        graph.node.remove(back)
        return [merge.name]

    guilty = edit(correct, folder / "faulty.onnx", cancel)
    return Built(
        model=model,
        example_inputs=(features,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.randn(3, 7, 32),),
    )
