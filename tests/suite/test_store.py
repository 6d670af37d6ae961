import sqlite3
from dataclasses import replace

import pytest

from onnxproof.errors import UsageError
from onnxproof.suite.records import Measure, Result, Run
from onnxproof.suite.store import Store, now

RUN = Run(id=0, suite="nightly", started="2026-11-18T00:00:00Z", options={"plan": "p"})
RESULT = Result(
    name="a",
    verdict="drift",
    backends=("ort", "openvino"),
    noise_ratio=float("inf"),
    duration_s=1.5,
    key="k",
    tags=("vision",),
    expected={"verdict": "drift", "reason": "r", "expires": None},
    proof={"verdict": "drift", "gaps": []},
    measures=(Measure(backend="ort", verdict="drift", noise_ratio=20.0, latency_ms=0.1),),
    passed=True,
    depends={"model.py": "hash"},
    peak_mb=400.0,
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "history.sqlite"


def test_what_is_added_is_read_again(path):
    with Store(path, write=True) as store:
        run = store.begin(RUN)
        store.add(run.id, RESULT)
    with Store(path) as store:
        assert store.results(run.id) == [replace(RESULT, proof=None)]
        assert store.proof(run.id, "a") == RESULT.proof
        assert store.last("nightly")["a"][0] == run.id
        assert store.runs(finished=True) == []
        assert store.unfinished("nightly", "p") == run
        assert store.unfinished("nightly", "other") is None


def test_a_verdict_is_never_there_twice(path):
    with Store(path, write=True) as store:
        run = store.begin(RUN)
        store.add(run.id, RESULT)
        with pytest.raises(sqlite3.IntegrityError):
            store.add(run.id, replace(RESULT, verdict="diverged"))
        assert [result.verdict for result in store.results(run.id)] == ["drift"]
        assert len(store.results(run.id)[0].measures) == 1


def test_a_finished_run_is_not_gone_on_with(path):
    with Store(path, write=True) as store:
        run = store.begin(RUN)
        store.finish(run.id)
        assert store.unfinished("nightly", "p") is None
        assert store.run(run.id).finished <= now()


def test_a_reused_result_has_the_proof_of_its_run(path):
    with Store(path, write=True) as store:
        first = store.begin(RUN)
        store.add(first.id, RESULT)
        second = store.begin(RUN)
        store.add(second.id, replace(RESULT, proof=None, reused_from=first.id))
        assert store.proof(second.id, "a") == RESULT.proof
        assert store.proof(second.id, "b") is None


def test_another_file_is_refused(tmp_path, path):
    with pytest.raises(UsageError, match="there is no history"):
        Store(path)
    path.write_bytes(b"not a database at all" * 100)
    with pytest.raises(UsageError, match="not-a-history"):
        Store(path, write=True)
    other = sqlite3.connect(tmp_path / "other.sqlite")
    other.execute("CREATE TABLE t(x)")
    other.commit()
    with pytest.raises(UsageError, match="its form is 0"):
        Store(tmp_path / "other.sqlite")
    with (
        Store(tmp_path / "h.sqlite", write=True) as store,
        pytest.raises(UsageError, match="run 7"),
    ):
        store.run(7)
