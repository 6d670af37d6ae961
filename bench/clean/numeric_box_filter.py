"""A moving average as the difference of two cumulative sums: what cumsum rounds stays, what it sums cancels."""

from pathlib import Path

from torch import Tensor, nn
from torch.nn import functional

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta

META = Meta(
    kind="operator",
    about="integral-image box filter: a relative error of 1e-5 from a step that looks harmless",
)


class BoxFilter(nn.Module):
    def __init__(self, radius: int = 8) -> None:
        super().__init__()
        self.width = radius

    def forward(self, series: Tensor) -> Tensor:
        total = functional.pad(series, (1, 0)).cumsum(-1)
        return (total[:, self.width :] - total[:, : -self.width]) / self.width


def build(folder: Path) -> Built:
    axes = ({0: "batch", 1: "samples"},)
    return healthy(
        folder / "numeric_box_filter.onnx",
        BoxFilter().eval(),
        (normal(2, 3000, shift=2.0),),
        axes,
        dynamo=False,
    )
