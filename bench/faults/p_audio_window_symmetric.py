"""The analysis window is symmetric instead of periodic, as torch.hann_window is: a small smear in every frame."""

from pathlib import Path

import torch
from onnx import GraphProto

from bench.architectures import LogMel
from bench.corpus import Built, Meta, edit, export, give_weights, nodes, write_constant

META = Meta(
    kind="audio",
    about="the Fourier kernels were built with a symmetric Hann window",
    cause="weights",
    stage="export",
)


def build(folder: Path) -> Built:
    torch.manual_seed(117)
    model = give_weights(LogMel(), 117)
    wave = torch.randn(1, 320)
    shapes = ({0: "batch", 1: "samples"},)
    correct = export(model, (wave,), folder / "correct.onnx", shapes)
    symmetric = torch.hann_window(64, periodic=False)
    angles = 2 * torch.pi * torch.arange(33)[:, None] * torch.arange(64) / 64

    def smear(graph: GraphProto) -> list[str]:
        real, imaginary = nodes(graph, "Conv")
        write_constant(graph, real.input[1], (angles.cos() * symmetric)[:, None].numpy())
        write_constant(graph, imaginary.input[1], (-angles.sin() * symmetric)[:, None].numpy())
        return [real.name, imaginary.name]

    guilty = edit(correct, folder / "faulty.onnx", smear)
    return Built(
        model=model,
        example_inputs=(wave,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.randn(2, 500),),
    )
