"""A fusion for skip connections took the wrong operand, and the second feed-forward part lost its residual."""

from pathlib import Path

import torch
from onnx import GraphProto

from bench.architectures import TransformerStack
from bench.corpus import Built, Meta, edit, export, give_weights, nodes, producer, rewire

META = Meta(
    kind="transformer", about="one residual Add was dropped", cause="missing-op", stage="export"
)


def build(folder: Path) -> Built:
    torch.manual_seed(21)
    model = give_weights(TransformerStack(2), 21)
    features = torch.randn(2, 5, 32)
    shapes = ({0: "batch", 1: "length"},)
    correct = export(model, (features,), folder / "correct.onnx", shapes)

    def skip(graph: GraphProto) -> list[str]:
        norms = nodes(graph, "LayerNormalization")
        residual = producer(graph, norms[2].input[0])
        branch = residual.input[1]
        rewire(graph, residual.output[0], branch)
        graph.node.remove(residual)
        return [
            producer(graph, branch).name,
            norms[2].name,
        ]  # what is missing stood between the two

    guilty = edit(correct, folder / "faulty.onnx", skip)
    return Built(
        model=model,
        example_inputs=(features,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.randn(3, 7, 32),),
    )
