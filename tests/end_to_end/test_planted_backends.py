"""Backends that go wrong on purpose, installed as outsiders install one: each is caught and named, and no other result is lost."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from onnxproof import api
from onnxproof.errors import Crashed, VerdictError
from onnxproof.exporter.export import write
from onnxproof.options import Serving
from onnxproof.reference.subject import load
from onnxproof.results import Status, Verdict
from onnxproof.results.judging import judge
from onnxproof.results.proof import Proof
from onnxproof.testing import outsider

PLANTED = """
import ctypes, os, sys, time
import numpy as np
from onnxproof.runtimes import Description, current, ort

class Session:
    def __init__(self, inner, wrong):
        self.inner, self.wrong, self.kept, self.threads = inner, wrong, None, current().threads
        self.input_names, self.output_names = inner.input_names, inner.output_names
    def run(self, inputs):
        return self.wrong(self, inputs)
    def close(self):
        self.inner.close()

class Backend:
    def __init__(self, name, wrong):
        self.name, self.wrong = name, wrong
    def open(self, model, option=""):
        return Session(ort.open(model), self.wrong)
    def describe(self):
        return Description(name=self.name, about="goes wrong on purpose", installed=True)

def segfaults(session, inputs):
    print("about to touch address 0", file=sys.stderr, flush=True)
    ctypes.string_at(0)

def aborts(session, inputs):
    print("error: a tensor is out of range", file=sys.stderr, flush=True)
    os.abort()

def hangs(session, inputs):
    time.sleep(3600)

def eats(session, inputs):
    held = []
    while True:
        held.append(np.ones(1 << 24))

def stales(session, inputs):
    fresh = session.inner.run(inputs)
    if session.kept is None or session.kept[0].shape != fresh[0].shape:
        session.kept = fresh
    return session.kept

def overwrites(session, inputs):
    answer = session.inner.run(inputs)
    inputs["x"][...] = 0
    return answer

def broadcasts(session, inputs):
    return [array[:1] for array in session.inner.run(inputs)]

def drops_nan(session, inputs):
    return [np.nan_to_num(array, nan=0.0) if array.dtype.kind == "f" else array for array in session.inner.run(inputs)]

def truncates(session, inputs):
    return [array.astype(np.int32).astype(np.int64) if array.dtype == np.int64 else array for array in session.inner.run(inputs)]

def wavers(session, inputs):
    session.kept = (session.kept or 0) + 1
    return [array + np.float32(session.kept) if array.dtype.kind == "f" else array for array in session.inner.run(inputs)]

def races(session, inputs):
    return [array * np.float32(1 if session.threads == 1 else 2) if array.dtype.kind == "f" else array for array in session.inner.run(inputs)]

def sours(session, inputs):
    session.kept = session.kept or not inputs["x"].size
    return [array + np.float32(bool(session.kept)) if array.dtype.kind == "f" else array for array in session.inner.run(inputs)]

bad_segfaults, bad_aborts, bad_hangs, bad_eats, bad_stales, bad_overwrites, bad_broadcasts, bad_drops_nan, bad_truncates, bad_wavers, bad_races, bad_sours = (
    Backend("bad-" + wrong.__name__.replace("_", "-"), wrong)
    for wrong in (segfaults, aborts, hangs, eats, stales, overwrites, broadcasts, drops_nan, truncates, wavers, races, sours))
"""
NAMES = (
    "segfaults",
    "aborts",
    "hangs",
    "eats",
    "stales",
    "overwrites",
    "broadcasts",
    "drops-nan",
    "truncates",
    "wavers",
    "races",
    "sours",
)
pytestmark = pytest.mark.timeout(
    900
)  # the first test waits for all of them, also on a machine that does much else
LIMITS = Serving(time_s=4.0, memory_gb=0.25, threads=1)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 4)

    def forward(self, x: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        return torch.tanh(self.linear(x)), ids * 3


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("planted")
    with outsider(folder, PLANTED, *(f"bad-{name}" for name in NAMES)):
        yield folder


@pytest.fixture(scope="module")
def subject(planted: Path) -> tuple[Model, Path, tuple[Tensor, Tensor]]:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    module, example = Model().eval(), (torch.randn(3, 6), torch.arange(3))
    write(
        load(module, example, dynamic_shapes={"x": {0: "batch"}, "ids": {0: "batch"}}),
        planted / "model.onnx",
    )
    return module, planted / "model.onnx", example


@pytest.fixture(scope="module")
def proof(subject: tuple[Model, Path, tuple[Tensor, Tensor]]) -> Proof:
    """All of them at once, between two honest ones."""
    module, path, example = subject
    backends = ("ort", *(f"bad-{name}" for name in NAMES), "ort:azure", "ort:basic")
    return api.verify(
        module, path, example, backends=backends, serving=LIMITS, budget_s=400, explain=False
    )


def said(proof: Proof, backend: str) -> dict[str, str]:
    return {
        finding.code: finding.what
        for finding in proof.findings
        if f"`{backend}`" in finding.what or finding.what.startswith(f"{backend}:")
    }


@pytest.mark.parametrize(
    ("backend", "code", "words"),
    [
        ("bad-segfaults", "crashed", "died of a segmentation fault (SIGSEGV)"),
        ("bad-aborts", "aborted", "aborted (SIGABRT): error: a tensor is out of range"),
        ("bad-hangs", "hung", "gave no answer within 4 s and was ended"),
        ("bad-eats", "out-of-memory", "the limit is 0.25 GB, and was ended"),
        ("bad-stales", "stale-output", "gives its answer to the input before"),
        ("bad-overwrites", "input-overwritten", "wrote into its input `x`"),
        ("bad-drops-nan", "nan-dropped", "makes 4 numbers of what is NaN in the reference"),
        ("bad-truncates", "int64-truncated", "cuts 64-bit integers to 32 bits"),
        ("bad-wavers", "nondeterminism", "answers otherwise when it is asked the same again"),
        ("bad-races", "threads", "answers otherwise with another number of threads"),
        ("bad-sours", "wrong-after-empty", "answers otherwise once it was given an empty batch"),
        ("ort:azure", "provider-fallback", "Azure took none of the model's"),
    ],
)
def test_each_is_named(proof: Proof, backend: str, code: str, words: str) -> None:
    found = said(proof, backend)
    assert code in found, found
    assert words in found[code]


def test_a_broadcast_is_another_shape(proof: Proof) -> None:
    assert {
        gap.status for gap in proof.gaps if gap.backend == "bad-broadcasts" and gap.compared == 0
    } >= {Status.SHAPE}


@pytest.mark.parametrize(
    "name", ["segfaults", "aborts", "hangs", "eats", "stales", "broadcasts", "truncates", "wavers"]
)
def test_each_fails_by_its_own_gaps(proof: Proof, name: str) -> None:
    assert (
        judge([gap for gap in proof.gaps if gap.backend == f"bad-{name}"], proof.policy)
        is Verdict.DIVERGED
    )


def test_no_other_result_is_lost(proof: Proof) -> None:
    for backend in ("ort", "ort:basic"):
        mine = [gap for gap in proof.gaps if gap.backend == backend]
        assert judge(mine, proof.policy) is Verdict.FAITHFUL
        assert len({gap.case for gap in mine}) > 30
    assert proof.verdict is Verdict.DIVERGED
    assert not any(
        finding.counts or finding.fails
        for backend in ("ort", "ort:basic")
        for finding in proof.findings
        if f"`{backend}`" in finding.what
    )


def test_one_that_writes_into_its_inputs_fails_the_run_though_its_answers_are_right(
    subject: tuple[Model, Path, tuple[Tensor, Tensor]],
) -> None:
    module, path, example = subject
    proof = api.verify(
        module,
        path,
        example,
        backends=("bad-overwrites",),
        serving=LIMITS,
        budget_s=60,
        explain=False,
        only=("example",),
    )
    assert proof.verdict is Verdict.FAITHFUL and not proof.passed
    with pytest.raises(
        VerdictError,
        match=r"error\[input-overwritten\]: `bad-overwrites` wrote into its input `x` in 1 run;",
    ):
        proof.raise_for_verdict()


def test_an_empty_batch_spoils_no_case_that_follows(proof: Proof) -> None:
    """The runtime that sours gets its empty batches in a session of their own."""
    assert (
        judge([gap for gap in proof.gaps if gap.backend == "bad-sours"], proof.policy)
        is Verdict.FAITHFUL
    )


def test_the_arbiter_says_who_is_right(proof: Proof) -> None:
    assert proof.cross is not None
    assert {"ort", "ort:basic"} <= set(proof.cross.right) and {
        "bad-segfaults",
        "bad-hangs",
        "bad-broadcasts",
    } <= set(proof.cross.wrong)
    assert "agree with the standard's evaluation in float64" in proof.cross.words
    assert ("ort", "ort:basic") not in {pair[:2] for pair in proof.cross.disagree}


def test_a_lone_backend_that_dies_on_opening_is_an_error_with_its_last_words(
    planted: Path, subject: tuple[Model, Path, tuple[Tensor, Tensor]]
) -> None:
    module, path, example = subject
    source = (
        PLANTED
        + "\nclass Dead(Backend):\n    def open(self, model, option=''):\n        aborts(None, None)\nbad_opens = Dead('bad-opens', None)\nbad_other = bad_opens\n"
    )
    folder = planted / "dead"
    folder.mkdir()
    with (
        outsider(folder, source, "bad-opens", "bad-other"),
        pytest.raises(
            Crashed, match=r"`bad-opens` aborted \(SIGABRT\): error: a tensor is out of range"
        ),
    ):
        api.verify(module, path, example, backends=("bad-opens",), explain=False)


def test_nothing_of_a_child_is_left_behind(
    subject: tuple[Model, Path, tuple[Tensor, Tensor]],
) -> None:
    from onnxproof.runtimes import open_session

    _, path, _ = subject
    session = open_session("bad-segfaults", path, LIMITS)
    folders = [Path(session._folder.name), Path(session._scratch.name)]  # type: ignore[attr-defined]
    with pytest.raises(Crashed):
        session.run({"x": np.ones((1, 6), np.float32), "ids": np.ones(1, np.int64)})
    session.close()
    assert not any(folder.exists() for folder in folders)
