"""A router whose logits are exactly equal: whichever expert a runtime takes is right, and the answer of each has a noise of its own."""

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import onnxproof
from onnxproof.exporter.export import quiet
from onnxproof.results import Domain, Verdict

DIMS = ({0: "batch"},)


class Experts(nn.Module):
    """Two of six experts a row; the first two amplify rounding a hundredfold and more, the others add none at all."""

    def __init__(self, depth: int = 4) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(5)
        self.offset = nn.Parameter(torch.zeros(()))
        self.router = nn.Linear(8, 6, bias=False)
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(depth))
        with torch.no_grad():
            self.router.weight.zero_()
            for layer in self.layers:
                layer.weight.copy_(torch.randn(8, 8, generator=generator))
                layer.bias.zero_()

    def forward(self, x: Tensor) -> Tensor:
        logits = self.router(x)
        best, index = logits.topk(2)
        weights = torch.zeros_like(logits).scatter(-1, index, best.softmax(-1))
        rough = x
        for layer in self.layers:
            rough = torch.sin(layer(rough) * 2)
        loud = rough * 64 + self.offset
        answers = torch.stack([loud, rough * 32, x, x * 2, x * 4, x * 8], 1)
        return (answers * weights[..., None]).sum(1)


@pytest.fixture(scope="module")
def healthy() -> Experts:
    torch.set_num_threads(1)
    return Experts().eval()


def exported(module: nn.Module, path: Path) -> Path:
    with quiet():
        torch.onnx.export(module, (torch.ones(3, 8),), path, dynamic_shapes=DIMS, dynamo=True)
    return path


def example() -> tuple[Tensor]:
    return (torch.randn(3, 8, generator=torch.Generator().manual_seed(3)),)


def test_torch_takes_other_experts_than_onnx(healthy: Experts) -> None:
    """Without this the tests below say nothing."""
    chosen = set(torch.zeros(3, 6).topk(2).indices.reshape(-1).tolist())
    assert not chosen & {0, 1}, "the standard takes the first of equals"


def test_exactly_tied_experts_are_a_note(healthy: Experts, tmp_path: Path) -> None:
    proof = onnxproof.verify(
        healthy,
        exported(healthy, tmp_path / "m.onnx"),
        example(),
        dynamic_shapes=DIMS,
        budget_s=4,
        explain=False,
    )
    assert proof.verdict is not Verdict.DIVERGED, proof.sentence()
    assert {note.domain for note in proof.notes} == {Domain.TIES}
    assert all(
        gap.domain is Domain.TIES or gap.noise_ratio < proof.policy.noise_limit
        for gap in proof.gaps
    )


def test_a_fault_in_an_expert_that_only_the_file_takes_is_diverged(
    healthy: Experts, tmp_path: Path
) -> None:
    wrong = copy.deepcopy(healthy)
    with torch.no_grad():
        wrong.layers[0].weight[0] *= 1.02
    proof = onnxproof.verify(
        healthy,
        exported(wrong, tmp_path / "m.onnx"),
        example(),
        dynamic_shapes=DIMS,
        budget_s=4,
        explain=False,
    )
    assert proof.verdict is Verdict.DIVERGED


def test_the_noise_of_a_broken_tie_is_asked_in_float64(healthy: Experts) -> None:
    from onnxproof.reference.module import ModuleReference
    from onnxproof.reference.subject import Subject
    from onnxproof.runtimes.session.execution import Clock

    x = example()
    asked = ModuleReference(Subject(module=healthy, args=x, kwargs={}), Clock())
    inputs = {"x": x[0].numpy()}
    broken, wide = asked.ties(inputs, "first"), asked.ties(inputs, "first", wide=True)
    assert broken is not None and wide is not None and wide[0].dtype == np.float64
    own = float(np.abs(broken[0] - wide[0]).max())
    plain = float(np.abs(asked.run(inputs)[0] - asked.truth(inputs)[0]).max())  # type: ignore[index]
    assert own > 100 * max(plain, 1e-9) and own < 1e-2


@pytest.fixture(scope="module")
def chaotic() -> Experts:
    """Thirty layers, each of which doubles an error and more: float32 and float64 have nothing in common at the end."""
    torch.set_num_threads(1)
    return Experts(depth=30).eval()


def test_an_expert_of_nothing_but_noise_is_a_note_where_only_ties_choose_it(
    chaotic: Experts, tmp_path: Path
) -> None:
    with torch.no_grad():
        rough = {}
        for dtype in (torch.float32, torch.float64):
            module = copy.deepcopy(chaotic).to(dtype)
            module.router.weight[0] = 1.0  # the loud one is taken
            rough[dtype] = module(example()[0].abs().to(dtype)).double()
    apart = (rough[torch.float32] - rough[torch.float64]).square().mean().sqrt()
    assert apart > 0.3 * rough[torch.float64].square().mean().sqrt(), "its noise is its scale"
    proof = onnxproof.verify(
        chaotic,
        exported(chaotic, tmp_path / "m.onnx"),
        example(),
        dynamic_shapes=DIMS,
        budget_s=4,
        explain=False,
    )
    assert proof.verdict is not Verdict.DIVERGED, proof.sentence()
    assert {note.domain for note in proof.notes} == {Domain.TIES}


def test_a_fault_beyond_the_noise_of_such_an_expert_is_diverged(
    chaotic: Experts, tmp_path: Path
) -> None:
    wrong = copy.deepcopy(chaotic)
    with torch.no_grad():
        wrong.offset += 5000.0
    proof = onnxproof.verify(
        chaotic,
        exported(wrong, tmp_path / "m.onnx"),
        example(),
        dynamic_shapes=DIMS,
        budget_s=4,
        explain=False,
    )
    assert proof.verdict is Verdict.DIVERGED
