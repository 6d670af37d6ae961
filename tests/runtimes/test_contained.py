"""Runtimes of other packages that do harm to what is around them: they raise where they should describe, signal their parent, leave processes behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.linear_files import linear

from onnxproof import api, runtimes
from onnxproof.cli import main
from onnxproof.errors import BackendError, Crashed
from onnxproof.results import Verdict
from onnxproof.runtimes.isolation.session import IsolatedSession
from onnxproof.testing import outsider

pytestmark = pytest.mark.timeout(300)
HARMFUL = '''
import os, signal, subprocess, sys, time
from onnxproof.runtimes import Description, ort

def end(number):
    def run():
        os.kill(os.getppid(), number)
        time.sleep(1)  # for the signal to arrive
    return run

def leaves(*, crash):
    """A child in a session of its own, and one that nobody waits for."""
    def run():
        for _ in range(2):
            child = subprocess.Popen(["sleep", "600"], start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            with open(os.environ["PIDS"], "a") as file:
                file.write(f"{child.pid}\\n")
        if crash:
            os.abort()
    return run

class Session:
    def __init__(self, inner, harm):
        self.inner, self.harm, self.input_names, self.output_names = inner, harm, inner.input_names, inner.output_names
    def run(self, inputs):
        self.harm()
        return self.inner.run(inputs)
    def close(self):
        self.inner.close()

class Backend:
    def __init__(self, name, harm):
        self.name, self.harm = name, harm
    def open(self, model, option=""):
        return Session(ort.open(model), self.harm)
    def describe(self):
        return Description(name=self.name, about="does harm", installed=True)

class Odd(Backend):
    def describe(self):
        return self.harm()

def raises():
    raise RuntimeError("no driver")

bad_term, bad_int, bad_hup, bad_kill, bad_stop = (Backend(f"bad-{name.lower()}", end(getattr(signal, f"SIG{name}"))) for name in ("TERM", "INT", "HUP", "KILL", "STOP"))
bad_group = Backend("bad-group", lambda: os.killpg(0, signal.SIGTERM))
bad_leaves, bad_crashes = Backend("bad-leaves", leaves(crash=False)), Backend("bad-crashes", leaves(crash=True))
bad_raises, bad_exits, bad_none, bad_words = Odd("bad-raises", raises), Odd("bad-exits", lambda: sys.exit(0)), Odd("bad-none", lambda: None), Odd("bad-words", lambda: "it is there")
'''
NAMES = tuple(
    f"bad-{name}"
    for name in (
        "term",
        "int",
        "hup",
        "kill",
        "stop",
        "group",
        "leaves",
        "crashes",
        "raises",
        "exits",
        "none",
        "words",
    )
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("harmful")
    linear(folder / "a.onnx")
    with outsider(folder, HARMFUL, *NAMES):
        yield folder


def inputs(place: Path) -> dict[str, np.ndarray]:
    import onnx

    port = onnx.load(place / "a.onnx").graph.input[0]
    return {
        port.name: np.ones([d.dim_value or 2 for d in port.type.tensor_type.shape.dim], np.float32)
    }


@pytest.mark.parametrize("name", ["term", "int", "hup", "kill", "stop", "group"])
def test_a_signal_to_its_parent_or_its_group_does_not_reach_us(place: Path, name: str) -> None:
    """What it ends is itself, or nothing: we are neither interrupted nor ended."""
    session = IsolatedSession(f"bad-{name}", place / "a.onnx")
    try:
        if name in ("kill", "group"):
            with pytest.raises(Crashed, match=f"`bad-{name}` "):
                session.run(inputs(place))
        else:
            assert session.run(inputs(place))[0] is not None
    finally:
        session.close()


@pytest.mark.parametrize("name", ["leaves", "crashes"])
def test_what_a_runtime_started_does_not_outlive_it(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("PIDS", str(tmp_path / "pids"))
    session = IsolatedSession(f"bad-{name}", place / "a.onnx")
    if name == "crashes":
        with pytest.raises(Crashed, match=r"`bad-crashes` aborted \(SIGABRT\)"):
            session.run(inputs(place))
    else:
        session.run(inputs(place))
    pids = [int(word) for word in (tmp_path / "pids").read_text().split()]
    assert len(pids) == 2
    session.close()
    deadline = time.monotonic() + 10
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(alive, pids))


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_runtime_ends_when_we_are_killed(place: Path, tmp_path: Path) -> None:
    """Also one that never comes back from its work."""
    code = f"""
import os, signal, sys
sys.path[:0] = {[str(place), *(p for p in sys.path if p)]!r}
from pathlib import Path
from onnxproof.runtimes.isolation.session import IsolatedSession
session = IsolatedSession("ort", Path({str(place / "a.onnx")!r}))
print(session._child._process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=environment,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    deadline = time.monotonic() + 10
    while (left := below(tmp_path)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []


def below(folder: Path) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if (
                entry.name.isdigit()
                and os.fsencode(f"TMPDIR={folder}") in (entry / "environ").read_bytes()
            ):
                found.append(entry.name)
        except OSError:
            continue
    return found


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("raises", "RuntimeError: no driver"),
        ("exits", "SystemExit: 0"),
        ("none", "`describe()` gave a NoneType and no Description"),
        ("words", "`describe()` gave a str and no Description"),
    ],
)
def test_one_that_can_not_describe_itself_is_broken_and_takes_no_other_with_it(
    place: Path, name: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BackendError) as caught:
        runtimes.require(f"bad-{name}")
    assert str(caught.value).startswith(
        f"error[backend-broken]: the backend `bad-{name}` is broken: "
    ) and words in str(caught.value)
    assert (
        main(
            [
                "diff",
                str(place / "a.onnx"),
                str(place / "a.onnx"),
                "--backend",
                f"bad-{name}",
                "--budget",
                "1",
            ]
        )
        == 2
    )
    assert "error[backend-broken]" in capsys.readouterr().err
    proof = api.diff(
        place / "a.onnx",
        place / "a.onnx",
        backends=("ort", f"bad-{name}"),
        budget_s=1,
        explain=False,
    )
    assert {gap.backend for gap in proof.gaps} == {"ort"} and proof.verdict is not Verdict.FAITHFUL
    assert any(finding.code == "backend-broken" and finding.counts for finding in proof.findings)


def test_the_list_has_all_of_them(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["backends"]) == 0
    out = capsys.readouterr().out
    assert (
        "RuntimeError: no driver" in out
        and "SystemExit: 0" in out
        and "does harm" in out
        and "ONNX Runtime, the runtime that most" in out
    )
