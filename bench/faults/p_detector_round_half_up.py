"""Boxes snap to the pixel grid by Round, half to even; a backend without it got Floor(x + 0.5), and only halves differ."""

from pathlib import Path

import numpy as np
import torch
from onnx import GraphProto, helper
from onnx.numpy_helper import from_array
from torch import Tensor, nn

from bench.corpus import Built, Meta, edit, export, give_weights, nodes

META = Meta(kind="detector", about="Round became Floor(x + 0.5)", cause="rounding", stage="export")


class GridPooling(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(64, 6)

    def forward(self, boxes: Tensor) -> Tensor:
        cells = torch.round(boxes / 4).clamp(0, 63).long()
        return self.table(cells).flatten(1)


def build(folder: Path) -> Built:
    torch.manual_seed(85)
    model = give_weights(GridPooling(), 85)
    boxes = torch.rand(3, 4) * 200
    shapes = ({0: "boxes"},)
    correct = export(model, (boxes,), folder / "correct.onnx", shapes, dynamo=False)

    def half_up(graph: GraphProto) -> list[str]:
        snap = nodes(graph, "Round")[0]
        graph.initializer.append(from_array(np.array(0.5, dtype=np.float32), "half"))
        shifted = helper.make_node(
            "Add", [snap.input[0], "half"], ["shifted"], name="shift_by_half"
        )
        graph.node.insert(list(graph.node).index(snap), shifted)
        snap.op_type = "Floor"
        snap.input[0] = "shifted"
        return [snap.name, shifted.name]

    guilty = edit(correct, folder / "faulty.onnx", half_up)
    return Built(
        model=model,
        example_inputs=(boxes,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.tensor([[2.0, 10.0, 18.0, 26.0], [6.0, 14.0, 50.0, 8.0]]),),
    )
