"""A runtime in a process of its own: the same answers, arrays through shared files, limits, and errors as they were raised."""

import os
import signal
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from onnxproof import runtimes, testing
from onnxproof.errors import BackendMissing, Crashed, ModelError, Refused, UsageError
from onnxproof.options import Serving
from onnxproof.runtimes import Session, open_session
from onnxproof.runtimes.isolation.session import IsolatedSession
from onnxproof.runtimes.isolation.shared_arrays import Arena
from onnxproof.testing import _models

APART = Serving(isolate=True)


@pytest.fixture
def linear(tmp_path: Path) -> Path:
    return _models.linear_model(tmp_path)[0]


def test_arrays_of_every_kind_come_back_as_they_went(tmp_path: Path) -> None:
    writer, reader = Arena(tmp_path / "shared"), Arena(tmp_path / "shared")
    kinds = (np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int64, np.uint8, np.bool_)
    arrays = {
        str(np.dtype(kind)): (np.arange(24).reshape(2, 3, 4) % 5).astype(kind)[:, ::2]
        for kind in kinds
    }
    arrays |= {"scalar": np.array(3.5, np.float32), "empty": np.zeros((0, 4), np.int64)}
    slots = writer.put({**arrays, "none": None})
    for name, found in zip([*arrays, "none"], reader.view(slots), strict=True):
        wanted = arrays.get(name)
        assert (found is None) == (wanted is None)
        if found is not None and wanted is not None:
            assert (
                found.dtype == wanted.dtype
                and found.shape == wanted.shape
                and found.tobytes() == wanted.tobytes()
            )


def test_a_file_that_grows_is_mapped_again(tmp_path: Path) -> None:
    writer, reader = Arena(tmp_path / "shared"), Arena(tmp_path / "shared")
    for size in (10, 100_000, 10):
        (view,) = reader.view(writer.put({"x": np.full(size, size)}))
        assert view is not None and view.tolist() == [size] * size


def test_what_is_no_tensor_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="`words` is no plain tensor"):
        Arena(tmp_path / "shared").put({"words": np.array(["a"], object)})


def test_the_same_bits_as_in_process_and_nothing_in_the_pipe_but_words(
    linear: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from onnxproof.runtimes.isolation import child as _child

    sent = []
    ask = _child._Child.ask
    monkeypatch.setattr(
        _child._Child,
        "ask",
        lambda self, request, limit: sent.append(request) or ask(self, request, limit),
    )
    x = np.random.default_rng(0).standard_normal((50_000, 4)).astype(np.float32)
    session, own = open_session("ort", linear, APART), open_session("ort", linear)
    assert (
        isinstance(session, IsolatedSession)
        and session.input_names == ["x"]
        and session.output_names == ["y"]
    )
    assert session.run({"x": x})[0].tobytes() == own.run({"x": x})[0].tobytes()  # type: ignore[union-attr]
    assert len(str(sent[-1])) < 200, "a request says where the arrays are, and does not hold them"
    session.close()


def test_errors_keep_their_class_and_their_words(linear: Path, tmp_path: Path) -> None:
    session = open_session("ort", linear, APART)
    with pytest.raises(Refused, match="onnxruntime refuses this input"):
        session.run({"x": np.ones((2, 9), np.float32)})
    assert session.run({"x": np.ones((2, 4), np.float32)})[0] is not None, (
        "a refusal does not end it"
    )
    session.close()
    (tmp_path / "broken.onnx").write_bytes(b"nothing")
    with pytest.raises(ModelError, match="onnxruntime can't open this model"):
        open_session("ort", tmp_path / "broken.onnx", APART)


def _runtime(session: Session) -> int:
    """The process that runs the model; between it and us stands another."""
    between = session._child._process.pid  # type: ignore[attr-defined]
    (child,) = Path(f"/proc/{between}/task/{between}/children").read_text().split()
    return int(child)


def test_a_child_that_was_killed_says_so_and_starts_again(linear: Path) -> None:
    session = open_session("ort", linear, APART)
    for turn in range(3):
        os.kill(_runtime(session), signal.SIGKILL)
        with pytest.raises(
            Crashed,
            match=r"`ort` was killed: the system ran out of memory, or somebody ended it \(SIGKILL\)",
        ) as why:
            session.run({"x": np.ones((2, 4), np.float32)})
        assert why.value.code == "killed", turn
        if turn < 2:
            assert session.run({"x": np.ones((2, 4), np.float32)})[0] is not None
    with pytest.raises(Crashed, match="it died 3 times and is not started again"):
        session.run({"x": np.ones((2, 4), np.float32)})
    session.close()


def test_opening_has_its_limit_too(linear: Path) -> None:
    with pytest.raises(Crashed, match=r"gave no answer within 0\.01 s"):
        open_session("ort", linear, Serving(isolate=True, open_s=0.01))


@pytest.mark.parametrize(
    ("name", "serving", "apart"),
    [
        ("ort", Serving(), False),
        ("ort", APART, True),
        ("reference", Serving(), False),
        ("openvino", Serving(), True),
        ("tract", Serving(isolate=False), False),
        ("opencv", Serving(), True),
        ("ort-node", APART, False),
        ("ort@1.23.2", APART, False),
    ],
)
def test_what_may_crash_runs_apart_unless_the_user_says_otherwise(
    name: str, serving: Serving, apart: bool
) -> None:
    """ort-node and ort@VERSION are processes of their own by nature."""
    assert runtimes.is_isolated(name, serving) is apart


def test_the_threads_reach_the_child(tmp_path: Path) -> None:
    source = """
import numpy as np
from onnxproof.backends import Description, current
def describe(): return Description(name="counts", about="answers with its threads", installed=True)
def open(model, option=""): return Session(current().threads)
class Session:
    input_names, output_names = ["x"], ["y"]
    def __init__(self, threads): self.threads = threads
    def run(self, inputs): return [np.array(self.threads or 0)]
    def close(self): pass
"""
    with testing.outsider(tmp_path, source, "counts"):
        session = open_session("counts", tmp_path / "any.onnx", Serving(threads=3))
        assert isinstance(session, IsolatedSession), (
            "an outsider runs apart unless it says that it is safe"
        )
        assert int(session.run({"x": np.ones(1)})[0]) == 3  # type: ignore[arg-type]
        session.close()


def test_bfloat16_goes_through(tmp_path: Path) -> None:
    value = (
        helper.make_tensor_value_info("x", TensorProto.BFLOAT16, [3]),
        helper.make_tensor_value_info("y", TensorProto.BFLOAT16, [3]),
    )
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])], "g", [value[0]], [value[1]]
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
        tmp_path / "half.onnx",
    )
    session = open_session("reference", tmp_path / "half.onnx", APART)
    x = np.array([1, 2.5, -3], ml_dtypes.bfloat16)
    assert session.run({"x": x})[0].tobytes() == x.tobytes()  # type: ignore[union-attr]
    session.close()


def test_a_backend_that_is_not_installed_is_told_before_anything_runs(
    linear: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtimes, "installed_version", lambda package: "")
    monkeypatch.setattr("onnxproof.runtimes.tract.installed_version", lambda package: "")
    with pytest.raises(
        BackendMissing, match=r"`tract` isn't installed\n  = help: pip install 'onnxproof\[tract\]'"
    ):
        open_session("tract", linear)


def test_the_reference_is_no_runtime(linear: Path) -> None:
    with pytest.raises(UsageError, match="`torch` runs a Python module, not an ONNX file"):
        open_session("torch", linear)
