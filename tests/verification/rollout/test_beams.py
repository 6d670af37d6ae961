"""States that are put in the order of beams: the index is one of rows, and no mask of ones."""

from pathlib import Path

import pytest
import torch
from support.looping_models import Looping, seeded, with_weights_of
from torch import Tensor, nn

import onnxproof
from onnxproof.results import Verdict
from onnxproof.results.proof import Proof


class Beams(nn.Module):
    """Attention over caches in the order of the beams: (input_ids, beam_idx, past_key, past_value) -> logits, present_key, present_value."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(40, 8)
        self.q, self.k, self.v = (nn.Linear(8, 8) for _ in range(3))
        self.read = nn.Linear(8, 40)

    def ordered(self, past: Tensor, beams: Tensor, role: str) -> Tensor:
        return past[beams]

    def forward(
        self, input_ids: Tensor, beam_idx: Tensor, past_key: Tensor, past_value: Tensor
    ) -> tuple[Tensor, ...]:
        x = self.embed(input_ids)
        keys = torch.cat([self.ordered(past_key, beam_idx, "key"), self.k(x)], 1)
        values = torch.cat([self.ordered(past_value, beam_idx, "value"), self.v(x)], 1)
        past, length = past_key.shape[1], input_ids.shape[1]
        seen = torch.arange(past + length)[None] <= past + torch.arange(length)[:, None]
        scores = torch.where(seen, self.q(x) @ keys.transpose(1, 2) / 3, -1e9)
        return self.read(torch.tanh(x + scores.softmax(-1) @ values)), keys, values


class ValuesNotReordered(Beams):
    """The values stay in the order of the call before."""

    def ordered(self, past: Tensor, beams: Tensor, role: str) -> Tensor:
        return past[beams] if role == "key" else past + 0 * beams.sum()


@pytest.fixture
def beams() -> Looping:
    torch.manual_seed(0)
    past = torch.randn(2, 4, 8)
    return Looping(
        module=seeded(Beams()),
        example=(torch.randint(1, 40, (2, 3)), torch.tensor([1, 0]), past, past + 1),
        inputs=["input_ids", "beam_idx", "past_key", "past_value"],
        outputs=["logits", "present_key", "present_value"],
        dims=(
            {0: "batch", 1: "seq"},
            {0: "batch"},
            {0: "batch", 1: "past"},
            {0: "batch", 1: "past"},
        ),
    )


def _verify(looping: Looping, path: Path) -> Proof:
    return onnxproof.verify(
        looping.module,
        path,
        looping.example,
        dynamic_shapes=looping.dims,
        explain=False,
        budget_s=6.0,
    )


def test_an_index_of_beams_is_one_of_rows(beams: Looping, tmp_path: Path) -> None:
    proof = _verify(beams, beams.export(tmp_path / "model.onnx"))
    assert proof.verdict is Verdict.FAITHFUL, proof.sentence()
    assert {rollout.schedule.split(":")[1] for rollout in proof.rollouts} == {"b1", "b2", "b3"}
    loop = next(finding for finding in proof.findings if finding.code == "loop")
    assert "`beam_idx` says which row goes on" in loop.what


def test_values_in_the_old_order_are_caught_at_the_first_call_with_a_past(
    beams: Looping, tmp_path: Path
) -> None:
    wrong = with_weights_of(beams.module, ValuesNotReordered)
    proof = _verify(beams, beams.export(tmp_path / "model.onnx", wrong))
    assert proof.verdict is Verdict.DIVERGED
    longest = proof.rollouts[0]
    assert longest.first_bad_step == 1
