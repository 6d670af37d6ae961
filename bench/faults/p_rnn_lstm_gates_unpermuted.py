"""LSTM gates were copied in PyTorch's order (i, f, g, o) where ONNX wants (i, o, f, c): hand-written converters do this."""

from pathlib import Path

import numpy as np
import torch
from onnx import GraphProto
from torch import nn

from bench.architectures import RecurrentTagger
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
    kind="rnn",
    about="the gates of the second LSTM layer are in PyTorch's order",
    cause="weight-layout",
    stage="export",
)


def build(folder: Path) -> Built:
    torch.manual_seed(51)
    model = give_weights(RecurrentTagger(nn.LSTM, bidirectional=False), 51)
    ids = torch.randint(0, 53, (2, 7))
    shapes = ({0: "batch", 1: "length"},)
    correct = export(model, (ids,), folder / "correct.onnx", shapes, dynamo=False)

    def unpermute(graph: GraphProto) -> list[str]:
        layer = nodes(graph, "LSTM")[1]
        for name in layer.input[1:3]:
            i, o, f, c = np.split(read_constant(graph, name), 4, axis=1)
            write_constant(graph, name, np.concatenate([i, f, c, o], axis=1))
        return [layer.name]

    guilty = edit(correct, folder / "faulty.onnx", unpermute)
    return Built(
        model=model,
        example_inputs=(ids,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.randint(0, 53, (3, 11)),),
    )
