"""How many threads a session may use: as asked for, else as the environment says."""

from pathlib import Path

import pytest
from support.linear_files import linear

from onnxproof.options import Serving
from onnxproof.runtimes import current, open_session, use_serving


@pytest.mark.parametrize(
    ("given", "threads"), [("3", 3), ("1", 1), ("", None), ("0", None), ("all", None)]
)
def test_the_variable_that_pytorch_heeds_counts(
    monkeypatch: pytest.MonkeyPatch, given: str, threads: int | None
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", given)
    assert current().threads == threads
    with use_serving(Serving(threads=2)):
        assert current().threads == 2


@pytest.mark.parametrize(("asked", "threads"), [(None, 3), (2, 2)])
def test_a_session_has_so_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: int | None, threads: int
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    linear(tmp_path / "a.onnx")
    session = open_session("ort", tmp_path / "a.onnx", Serving(threads=asked))
    opened = session._session  # type: ignore[attr-defined]
    assert opened.get_session_options().intra_op_num_threads == threads
