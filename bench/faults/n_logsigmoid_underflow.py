"""`logsigmoid` becomes Log(Sigmoid(x)): where the sigmoid underflows, a finite log-probability turns into -inf."""

from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from bench.corpus import Built, Meta, export, give_weights, nodes

META = Meta(
    kind="tabular",
    about="log-probability head with F.logsigmoid; both exporters write Log(Sigmoid(x)), -inf for confident negatives",
    cause="precision",
    stage="export",
    native=True,
)


class Scorer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(8, 16)
        self.logit = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.logsigmoid(self.logit(torch.relu(self.hidden(x))))


class StableScorer(Scorer):
    def forward(self, x: Tensor) -> Tensor:
        return -nn.functional.softplus(-self.logit(torch.relu(self.hidden(x))))


def build(folder: Path) -> Built:
    model = give_weights(Scorer(), 11)
    stable = StableScorer().eval()
    stable.load_state_dict(model.state_dict())
    example = (torch.randn(4, 8, generator=torch.Generator().manual_seed(1)) * 0.2,)
    shapes = ({0: "batch"},)
    faulty = export(model, example, folder / "faulty.onnx", shapes)
    correct = export(stable, example, folder / "correct.onnx", shapes)
    guilty = [node.name for node in nodes(onnx.load(faulty).graph, "Log", "Sigmoid")]
    trigger = (torch.randn(4, 8, generator=torch.Generator().manual_seed(2)) * 60,)
    return Built(
        model=model,
        example_inputs=example,
        dynamic_shapes=shapes,
        faulty=faulty,
        correct=correct,
        guilty=guilty,
        trigger=trigger,
    )
