"""The gates use the hard sigmoid that old Keras had as its recurrent activation."""

from pathlib import Path

import torch
from onnx import GraphProto
from torch import nn

from bench.architectures import RecurrentTagger
from bench.corpus import Built, Meta, edit, export, give_weights, nodes, set_attributes

META = Meta(
    kind="rnn",
    about="LSTM activations HardSigmoid, Tanh, Tanh instead of Sigmoid, Tanh, Tanh",
    cause="attribute",
    stage="export",
)


def build(folder: Path) -> Built:
    torch.manual_seed(53)
    model = give_weights(RecurrentTagger(nn.LSTM, layers=2, bidirectional=False), 53)
    ids = torch.randint(0, 53, (2, 7))
    shapes = ({0: "batch", 1: "length"},)
    correct = export(model, (ids,), folder / "correct.onnx", shapes, dynamo=False)

    def harden(graph: GraphProto) -> list[str]:
        layer = nodes(graph, "LSTM")[0]
        set_attributes(
            layer,
            activations=["HardSigmoid", "Tanh", "Tanh"],
            activation_alpha=[0.2],
            activation_beta=[0.5],
        )
        return [layer.name]

    guilty = edit(correct, folder / "faulty.onnx", harden)
    return Built(
        model=model,
        example_inputs=(ids,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.randint(0, 53, (3, 11)),),
    )
