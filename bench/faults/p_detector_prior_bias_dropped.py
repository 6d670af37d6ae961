"""The score layer's bias, where focal-loss detectors keep their prior, was lost by a converter that reads two inputs of Conv."""

from pathlib import Path

import torch
from onnx import GraphProto

from bench.architectures import Detector
from bench.corpus import Built, Meta, edit, export, give_weights, nodes

META = Meta(kind="detector", about="one Conv bias is missing", cause="weights", stage="export")


def build(folder: Path) -> Built:
    torch.manual_seed(82)
    model = give_weights(Detector(), 82)
    image = torch.randn(1, 3, 32, 32)
    shapes = ({0: "batch"},)
    correct = export(model, (image,), folder / "correct.onnx", shapes, dynamo=False)

    def drop(graph: GraphProto) -> list[str]:
        scores = next(n for n in nodes(graph, "Conv") if "/scores/" in n.name)
        del scores.input[2]
        return [scores.name]

    guilty = edit(correct, folder / "faulty.onnx", drop)
    return Built(
        model=model,
        example_inputs=(image,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.randn(2, 3, 32, 32),),
    )
