"""AdaptiveAvgPool2d with dynamic height and width: the dynamo exporter fixes the kernel of the example's size."""

from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from bench.corpus import Built, Meta, export, give_weights, nodes

META = Meta(
    kind="conv",
    about="AdaptiveAvgPool2d(2) head on a fully convolutional net; kernel and stride of the 16x16 example are baked",
    cause="baked-dimension",
    stage="export",
    native=True,
)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.head = nn.Linear(32, 5)

    def pool(self, x: Tensor) -> Tensor:
        return nn.functional.adaptive_avg_pool2d(x, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.pool(torch.relu(self.conv(x))).flatten(1))


class SlicedNet(Net):
    """The same windows by their definition: from floor(i * n / 2) to ceil((i + 1) * n / 2)."""

    def pool(self, x: Tensor) -> Tensor:
        height, width = x.shape[2], x.shape[3]
        rows = [x[:, :, : (height + 1) // 2], x[:, :, height // 2 :]]
        cells = [
            [row[..., : (width + 1) // 2].mean((2, 3)), row[..., width // 2 :].mean((2, 3))]
            for row in rows
        ]
        return torch.stack([torch.stack(row, -1) for row in cells], -2)


def build(folder: Path) -> Built:
    model = give_weights(Net(), 21)
    other = SlicedNet().eval()
    other.load_state_dict(model.state_dict())
    example = (torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(1)),)
    shapes = ({0: "batch", 2: "height", 3: "width"},)
    faulty = export(model, example, folder / "faulty.onnx", shapes)
    correct = export(other, example, folder / "correct.onnx", shapes)
    guilty = [node.name for node in nodes(onnx.load(faulty).graph, "AveragePool")]
    trigger = (torch.randn(2, 3, 19, 21, generator=torch.Generator().manual_seed(2)),)
    return Built(
        model=model,
        example_inputs=example,
        dynamic_shapes=shapes,
        faulty=faulty,
        correct=correct,
        guilty=guilty,
        trigger=trigger,
    )
