"""A ceiling division of a size, `-(-n // 2)`, becomes an ONNX integer Div, which rounds towards zero."""

from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from bench.corpus import Built, Meta, export, give_weights, nodes

META = Meta(
    kind="audio",
    about="the first half, rounded up, of a sequence; both exporters drop a frame at every odd length",
    cause="rounding",
    stage="export",
    native=True,
)


class FirstHalf(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(4, 6, 3, padding=1)

    def frames(self, length: int) -> int:
        return -(-length // 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x)[:, :, : self.frames(x.shape[2])].amax(2)


class SafeFirstHalf(FirstHalf):
    def frames(self, length: int) -> int:
        return (length + 1) // 2


def build(folder: Path) -> Built:
    model = give_weights(FirstHalf(), 22)
    other = SafeFirstHalf().eval()
    other.load_state_dict(model.state_dict())
    example = (torch.randn(2, 4, 12, generator=torch.Generator().manual_seed(1)),)
    shapes = ({0: "batch", 2: "time"},)
    faulty = export(model, example, folder / "faulty.onnx", shapes)
    correct = export(other, example, folder / "correct.onnx", shapes)
    guilty = [node.name for node in nodes(onnx.load(faulty).graph, "Div")]
    trigger = (torch.randn(8, 4, 7, generator=torch.Generator().manual_seed(4)),)
    return Built(
        model=model,
        example_inputs=example,
        dynamic_shapes=shapes,
        faulty=faulty,
        correct=correct,
        guilty=guilty,
        trigger=trigger,
    )
