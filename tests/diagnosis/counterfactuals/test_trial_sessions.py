"""A graph is opened once while it is asked; a changed one is another."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from support.two_files import normal
from support.workbenches import graph_model

from onnxproof.diagnosis.counterfactuals import trial_sessions
from onnxproof.diagnosis.counterfactuals.trial_sessions import TrialSessions

X = normal(4, 6)


def model(factor: float) -> onnx.ModelProto:
    node = helper.make_node("Mul", ["x", "factor"], ["y"], "scale")
    return graph_model([node], {"x": X}, {"factor": np.float32(factor).reshape(())})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    onnx.save(model(2), tmp_path / "file.onnx")
    return tmp_path / "file.onnx"


def test_the_file_and_the_latest_graph_stay_open(path: Path) -> None:
    sessions = TrialSessions(path, "")
    file, changed = sessions.get(None, ()), sessions.get(model(3), ())
    assert sessions.get(None, ()) is file
    assert sessions.get(model(3), ()) is changed
    assert sessions.get(model(3), ("ConstantFolding",)) is not changed
    sessions.close()


def test_a_graph_that_was_changed_in_place_is_another(path: Path) -> None:
    sessions, graph = TrialSessions(path, ""), model(3)
    before = sessions.get(graph, ()).run({"x": X})[0]
    graph.CopyFrom(model(5))
    after = sessions.get(graph, ()).run({"x": X})[0]
    assert before is not None and after is not None
    np.testing.assert_allclose(after, before / 3 * 5, rtol=1e-6)


def test_of_a_large_file_one_session_is_held(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_sessions, "_LARGE", 0)
    sessions = TrialSessions(path, "")
    file = sessions.get(None, ())
    sessions.get(model(3), ())
    assert sessions.get(None, ()) is not file
