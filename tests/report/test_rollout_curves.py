"""What a page draws of a rollout along its calls."""

from dataclasses import replace

import pytest
from support import made_proofs

from onnxproof.report import rollout_table
from onnxproof.results import Rollout, RolloutStep


def _rollout(**language: float | None) -> Rollout:
    steps = [
        RolloutStep(length=place + 1, noise_ratio=10.0**place, **language) for place in range(3)
    ]
    return Rollout(
        schedule="roll:b1:1x3",
        backend="ort",
        steps=3,
        first_bad_step=1,
        first_bad_length=2,
        kl_noise=1e-9,
        along=tuple(steps),
    )


def test_divergence_and_agreement_are_drawn_where_there_are_logits() -> None:
    proof = replace(made_proofs.full(), rollouts=(_rollout(kl=1e-5, agreement=0.5),))
    ratio, kl, agreement = rollout_table.curves(proof)
    assert ratio.title.startswith("noise ratio")
    assert kl.title.startswith("KL in nats")
    assert kl.about == "the reference's own is 1e-09 in the mean"
    assert agreement.points == "0.0,30.0 180.0,30.0 360.0,30.0"
    assert {curve.bad for curve in (ratio, kl, agreement)} == {180.0}
    heights = [float(point.partition(",")[2]) for point in ratio.points.split()]
    assert heights == sorted(heights, reverse=True)


@pytest.mark.parametrize("language", [{}, {"kl": 1e-5}])
def test_without_logits_only_the_noise_is_drawn(language: dict[str, float]) -> None:
    proof = replace(made_proofs.full(), rollouts=(_rollout(**language),))
    titles = [curve.title.split()[0] for curve in rollout_table.curves(proof)]
    assert titles == ["noise", *(["KL"] if language else [])]
