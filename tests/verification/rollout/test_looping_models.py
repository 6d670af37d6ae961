"""Loops of many kinds, right and wrong: what is caught, at which call, and what is left alone."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support import looping_models as models
from support.looping_models import Looping
from torch import nn

import onnxproof
from onnxproof.results import Verdict
from onnxproof.results.proof import Proof

RIGHT = [
    models.decoder,
    models.static_decoder,
    models.recurrent,
    models.causal_conv,
    models.scan,
    models.ring,
    models.running_norm,
]
WRONG = [
    (models.decoder, models.LastTokenMissing, 5, "cache"),
    (models.decoder, models.PositionsClamped, 49, "step"),
    (models.static_decoder, models.SlotBehind, 2, "step"),
    (models.recurrent, models.StateHeld, 5, "cache"),
    (models.causal_conv, models.BufferEarly, 5, "cache"),
    (models.scan, models.ConvStateReversed, 1, "step"),
    (models.ring, models.RingTooLong, 8, "step"),
    (models.ring, models.CountStands, 7, "cache"),
    (models.running_norm, models.MomentumSwapped, 4, "step"),
]
"""The loop, its faulty twin, what the longest rollout has consumed when it first differs, and what is wrong there."""


def verify(looping: Looping, path: Path, budget_s: float = 6.0) -> Proof:
    return onnxproof.verify(
        looping.module,
        path,
        looping.example,
        dynamic_shapes=looping.dims,
        explain=False,
        budget_s=budget_s,
    )


@pytest.mark.parametrize("make", RIGHT)
def test_a_right_loop_is_faithful_at_every_call(make: Callable[[], Looping], tmp_path: Path):
    torch.manual_seed(0)
    looping = make()
    proof = verify(looping, looping.export(tmp_path / "model.onnx"))
    assert proof.verdict is Verdict.FAITHFUL, proof.sentence()
    assert len(proof.rollouts) >= 3
    assert all(rollout.first_bad_step is None for rollout in proof.rollouts)
    assert max(rollout.steps for rollout in proof.rollouts) >= 24
    assert [finding.code for finding in proof.findings].count("loop") == 1


@pytest.mark.parametrize(("make", "fault", "length", "what"), WRONG)
def test_a_planted_fault_is_named_with_its_call(
    make: Callable[[], Looping],
    fault: Callable[[], nn.Module],
    length: int,
    what: str,
    tmp_path: Path,
):
    torch.manual_seed(0)
    looping = make()
    wrong = models.with_weights_of(looping.module, fault)
    proof = verify(looping, looping.export(tmp_path / "model.onnx", wrong))
    assert proof.verdict is Verdict.DIVERGED
    longest = proof.rollouts[0]
    assert (longest.first_bad_length, longest.what) == (length, what)
    assert longest.along[longest.first_bad_step or 0].length == length


def test_positions_counted_from_the_length_show_in_a_padded_prompt(tmp_path: Path):
    looping = models.decoder()
    wrong = models.with_weights_of(looping.module, models.PositionsFromLength)
    proof = verify(looping, looping.export(tmp_path / "model.onnx", wrong))
    assert proof.verdict is Verdict.DIVERGED
    by_padding = {rollout.schedule: rollout.first_bad_step for rollout in proof.rollouts}
    assert by_padding["roll:b2:4,1x68"] is None
    assert by_padding["roll:b2:4,1x12:left3"] == 0


def test_a_transposed_cache_is_a_layout_and_no_fault(tmp_path: Path):
    looping = models.decoder()
    ids, mask, key, value = looping.example
    dims = {0: "batch", 1: "past"}
    transposed = replace(
        looping,
        example=(ids, mask, key.transpose(1, 2), value.transpose(1, 2)),
        dims=(*looping.dims[:2], dims, dims),
    )
    other = models.with_weights_of(looping.module, models.CacheTransposed)
    proof = verify(looping, transposed.export(tmp_path / "model.onnx", other))
    assert proof.verdict is Verdict.FAITHFUL
    layout = next(finding for finding in proof.findings if finding.code == "state-layout")
    assert "`past_key`" in layout.what


def test_rows_of_a_cache_are_found_by_the_name_that_the_file_gives_them(tmp_path: Path):
    looping = models.decoder()
    ids, mask, key, value = looping.example
    dims = {0: "past", 1: "batch"}
    moved = replace(
        looping,
        example=(ids, mask, key.permute(2, 0, 1, 3), value.permute(2, 0, 1, 3)),
        dims=(*looping.dims[:2], dims, dims),
    )
    other = models.with_weights_of(looping.module, models.CacheTimeFirst)
    proof = verify(looping, moved.export(tmp_path / "model.onnx", other))
    assert proof.verdict is Verdict.FAITHFUL, proof.sentence()
    assert any(finding.code == "state-layout" for finding in proof.findings)


def test_a_half_cache_is_measured_by_what_half_precision_costs(tmp_path: Path):
    looping = models.decoder()
    ids, mask, key, value = looping.example
    halved = replace(looping, example=(ids, mask, key.half(), value.half()))
    other = models.with_weights_of(looping.module, models.HalfCache)
    proof = verify(looping, halved.export(tmp_path / "model.onnx", other))
    assert proof.verdict is Verdict.FAITHFUL, proof.sentence()


def test_what_stands_at_padded_places_of_a_cache_is_read_by_nobody(tmp_path: Path):
    looping = models.decoder()
    other = models.with_weights_of(looping.module, models.PaddingForgotten)
    proof = verify(looping, looping.export(tmp_path / "model.onnx", other), budget_s=10.0)
    assert proof.verdict is Verdict.FAITHFUL, proof.sentence()
    assert any(finding.code == "state-unread" for finding in proof.findings)
    assert any(gap.group != "rollout" for gap in proof.gaps)  # single calls were still compared


def test_a_rollout_is_run_again_by_its_name(tmp_path: Path):
    looping = models.recurrent()
    wrong = models.with_weights_of(looping.module, models.StateHeld)
    path = looping.export(tmp_path / "model.onnx", wrong)
    first = verify(looping, path)
    again = onnxproof.verify(
        looping.module,
        path,
        looping.example,
        dynamic_shapes=looping.dims,
        explain=False,
        only=(first.rollouts[0].smallest,),
    )
    assert [rollout.schedule for rollout in again.rollouts] == [first.rollouts[0].smallest]
    assert again.verdict is Verdict.DIVERGED


def test_without_loops_nothing_is_rolled(tmp_path: Path):
    looping = models.recurrent()
    proof = onnxproof.verify(
        looping.module,
        looping.export(tmp_path / "model.onnx"),
        looping.example,
        dynamic_shapes=looping.dims,
        explain=False,
        budget_s=3.0,
        loop=None,
    )
    assert proof.rollouts == ()


def test_a_loop_that_names_no_output_is_refused(tmp_path: Path):
    looping = models.recurrent()
    with pytest.raises(onnxproof.OnnxproofError, match="names an output `h` that there is not"):
        onnxproof.verify(
            looping.module,
            looping.export(tmp_path / "model.onnx"),
            looping.example,
            loop={"h": "h_in"},
        )
