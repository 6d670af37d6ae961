"""Why a loop is wrong: the cause is named, and the node where there is one."""

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
import torch
from support import looping_models as models
from support.looping_models import Looping
from torch import nn

import onnxproof


@pytest.mark.parametrize(
    ("make", "fault", "code", "words"),
    [
        (models.decoder, models.LastTokenMissing, "cache", "newest token is missing"),
        (models.decoder, models.KeyValueExchanged, "cache", "`present_key` and `present_value`"),
        (models.recurrent, models.StateHeld, "cache", "as they went in"),
        (models.decoder, models.FirstRowForAll, "cache", "the first place of axis 0"),
        (models.decoder, models.PositionsClamped, "position", "stand still at the end"),
        (models.decoder, models.PositionsFromLength, "position", "counted from the length"),
    ],
)
def test_the_cause_of_a_planted_fault_is_named(
    make: Callable[[], Looping],
    fault: Callable[[], nn.Module],
    code: str,
    words: str,
    tmp_path: Path,
):
    torch.manual_seed(0)
    looping = make()
    wrong = models.with_weights_of(looping.module, fault)
    proof = onnxproof.verify(
        looping.module,
        looping.export(tmp_path / "model.onnx", wrong),
        looping.example,
        dynamic_shapes=looping.dims,
        budget_s=40.0,
    )
    causes = {cause.code: cause for cause in proof.causes}
    assert code in causes, (proof.causes, proof.tried)
    assert words in causes[code].evidence


def test_exchanged_states_name_the_nodes_that_produce_them(tmp_path: Path):
    torch.manual_seed(0)
    looping = models.decoder()
    wrong = models.with_weights_of(looping.module, models.KeyValueExchanged)
    path = looping.export(tmp_path / "model.onnx", wrong)
    proof = onnxproof.verify(
        looping.module, path, looping.example, dynamic_shapes=looping.dims, budget_s=40.0
    )
    graph = onnx.load(path).graph
    states = {"present_key", "present_value"}
    producers = {node.name for node in graph.node if states & set(node.output)}
    assert proof.location is not None
    assert set(proof.location.nodes) == producers
