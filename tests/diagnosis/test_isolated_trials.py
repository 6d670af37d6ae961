"""Trials that crash, hang, eat memory, or spoil what they share with this process: each ends alone."""

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.workbenches import graph_model

from onnxproof.diagnosis import isolated_trials, limits
from onnxproof.diagnosis.isolated_trials import Failed, Finished, NotStarted
from onnxproof.runtimes import ort
from onnxproof.system import guard, temporary
from onnxproof.system.deadline import Deadline

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="trials run in this process there")


def outcomes(trials: Mapping[str, Callable[[], Any]], seconds: float = 60.0) -> dict[str, Any]:
    """By name: the value, the reason of a failure in a list, or None for one that was not started."""
    told: dict[str, Any] = {}
    for outcome in isolated_trials.run(trials, Deadline.after(seconds)):
        match outcome:
            case Finished(name=name, value=value):
                told[name] = value
            case Failed(name=name, reason=reason):
                told[name] = [reason]
            case NotStarted(name=name):
                told[name] = None
    return told


def all_children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


@pytest.fixture
def children() -> Callable[[], set[str]]:
    """The processes that this test started: a browser of an earlier one may live as long as the worker does."""
    before = all_children()
    return lambda: all_children() - before


def divide_by_zero() -> None:
    """In native code: attention over no heads."""
    x = torch.zeros(1, 2, 4)
    weights = torch.zeros(12, 4), torch.zeros(12), torch.zeros(4, 4), torch.zeros(4)
    torch._native_multi_head_attention(x, x, x, 4, 0, *weights)


def hang() -> None:
    time.sleep(1000)


def eat_memory() -> int:
    held = []
    while True:
        held.append(np.ones(1 << 23))


def close_files() -> None:
    os.closerange(3, 4096)


def exit_at_once() -> None:
    os._exit(7)


def raise_exit() -> None:
    raise SystemExit(9)


def write() -> str:
    print("a line that nobody asked for", flush=True)
    os.write(1, b"another\n")
    sys.stderr.write("and one more")
    return "written"


ENDS = {
    "divides": (divide_by_zero, "ended its process (SIGFPE)"),
    "segfaults": (lambda: ctypes.string_at(0), "ended its process (SIGSEGV)"),
    "aborts": (os.abort, "ended its process (SIGABRT)"),
    "exits": (exit_at_once, "ended its process (exit code 7)"),
    "raises": (raise_exit, "could not be tried: SystemExit: 9"),
    "closes": (close_files, "closed its pipe"),
    "unsendable": (lambda: lambda: 0, "could not be tried: "),
}


def test_what_ends_a_trial_ends_no_other(children: Callable[[], set[str]]) -> None:
    before = {int(name) for name in os.listdir("/proc/self/fd")}
    trials: dict[str, Callable[[], Any]] = {"first": lambda: 1}
    for name, (trial, _) in ENDS.items():
        trials[name] = trial
        trials[f"after {name}"] = os.getpid
    told = outcomes(trials)
    assert told["first"] == 1
    for name, (_, reason) in ENDS.items():
        assert told[name][0].startswith(reason), name
        assert told[f"after {name}"] not in (os.getpid(), None)
    assert not children()
    assert {int(name) for name in os.listdir("/proc/self/fd")} == before


def test_one_process_goes_on_from_trial_to_trial() -> None:
    shared: list[int] = []

    def add() -> int:
        shared.append(1)
        return len(shared)

    told = outcomes({"one": add, "two": add, "process": os.getpid})
    assert (told["one"], told["two"]) == (1, 2)
    assert shared == []
    assert told["process"] != os.getpid()


def test_one_that_hangs_is_ended_and_the_next_is_tried(
    monkeypatch: pytest.MonkeyPatch, children: Callable[[], set[str]]
) -> None:
    monkeypatch.setattr(limits, "TRIAL_LEAST_S", 0.5)
    monkeypatch.setattr(limits, "TRIAL_MOST_S", 0.5)
    told = outcomes({"hangs": hang, "next": lambda: 2})
    assert told == {"hangs": ["gave no answer within 0.5 s and was ended"], "next": 2}
    assert not children()


def test_one_that_eats_memory_gets_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "most_bytes", lambda: 0)
    guard._ceilings.clear()
    told = outcomes({"eats": eat_memory, "next": lambda: 2})
    guard._ceilings.clear()
    assert told["eats"][0].startswith("could not be tried: ")
    assert "Memory" in told["eats"][0]
    assert told["next"] == 2


def test_what_a_trial_prints_is_not_this_programs_output(capfd: pytest.CaptureFixture[str]) -> None:
    sys.stdout.write("begun, ")
    assert outcomes({"writes": write}) == {"writes": "written"}
    sys.stdout.write("ended")
    sys.stdout.flush()
    assert capfd.readouterr() == ("begun, ended", "")


def test_no_trial_starts_after_the_deadline(children: Callable[[], set[str]]) -> None:
    assert outcomes({"late": lambda: 1}, seconds=0.0) == {"late": None}
    assert not children()


def test_leaving_early_ends_the_process_and_removes_its_folders(
    children: Callable[[], set[str]],
) -> None:
    folders: list[temporary.Folder] = []

    def leave_folder() -> str:
        folders.append(temporary.Folder())
        return folders[-1].name

    trials = {"one": leave_folder, "two": hang}
    with closing(isolated_trials.run(trials, Deadline.after(60.0))) as running:
        first = next(running)
        assert isinstance(first, Finished)
        assert Path(first.value).is_dir()
        assert len(children()) == 1
    assert not children()
    assert not Path(first.value).exists()


def test_folders_of_a_trial_that_died_are_removed(tmp_path: Path) -> None:
    note = tmp_path / "folder"

    def die() -> None:
        note.write_text(temporary.Folder().name)
        hang_up = temporary.Folder()
        ctypes.string_at(0 * len(hang_up.name))

    assert outcomes({"dies": die})["dies"] == ["ended its process (SIGSEGV)"]
    assert note.read_text()
    assert not Path(note.read_text()).parent.exists()


def test_threads_of_torch_and_sessions_of_onnxruntime_work_in_the_fork(tmp_path: Path) -> None:
    """Both hang in a plain fork once the parent has used them."""
    from onnx import helper

    x = np.random.default_rng(0).standard_normal((256, 256)).astype(np.float32)
    model = graph_model([helper.make_node("MatMul", ["x", "x"], ["y"])], {"x": x})
    session = ort.open(model.SerializeToString())
    expected = session.run({"x": x})[0]
    modules = [torch.nn.Conv2d(8, 8, 3), torch.nn.LSTM(32, 32), torch.nn.Linear(32, 32).double()]
    layer = torch.nn.TransformerEncoderLayer(32, 4, batch_first=True)
    encoder = torch.nn.TransformerEncoder(layer, 1).eval()
    threads = torch.get_num_threads()
    torch.set_num_threads(2)

    def forward() -> float:
        with torch.no_grad():
            modules[0](torch.ones(4, 8, 64, 64))
            modules[1](torch.ones(8, 4, 32))
            modules[2](torch.ones(4096, 32).double())
            encoder(torch.ones(2, 16, 32))
            return float((torch.ones(1 << 20) + 1).sum())

    def run_sessions() -> float:
        opened_anew = ort.open(model.SerializeToString())
        both = [opened_anew.run({"x": x})[0], session.run({"x": x})[0]]
        return max(float(np.abs(answer - expected).max()) for answer in both)

    try:
        assert forward() == float(1 << 21)
        told = outcomes({"torch": forward, "sessions": run_sessions, "again": forward})
    finally:
        torch.set_num_threads(threads)
    assert told["torch"] == told["again"] == float(1 << 21)
    assert told["sessions"] < 1e-3


def test_trials_run_here_where_a_fork_is_not_safe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ort, "opened_devices", {"CUDAExecutionProvider"})
    assert isolated_trials.obstacle() == "onnxruntime has opened CUDAExecutionProvider"
    told = outcomes({"process": os.getpid, "thread": threading.get_ident, "raises": raise_exit})
    assert told["process"] == os.getpid()
    assert told["thread"] == threading.get_ident()
    assert told["raises"] == ["could not be tried: SystemExit: 9"]


def test_an_initialised_gpu_forbids_a_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isolated_trials.obstacle() == ""
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    assert isolated_trials.obstacle() == "torch has opened cuda"


INTERRUPTED = """
import os, signal, sys, time
from contextlib import closing
from onnxproof.diagnosis import isolated_trials
from onnxproof.system.deadline import Deadline

def hang():
    os.write(told, f"{os.getpid()}\\n".encode())
    time.sleep(1000)

listen, told = os.pipe()
number = getattr(signal, sys.argv[1])
if os.fork() == 0:
    child = int(os.read(listen, 100))
    os.write(int(sys.argv[2]), str(child).encode())
    os.kill(os.getppid(), number)
    os._exit(0)
with closing(isolated_trials.run({"hangs": hang}, Deadline.never())) as running:
    for outcome in running:
        pass
"""


@pytest.mark.parametrize("signal_name", ["SIGINT", "SIGTERM", "SIGKILL"])
def test_no_process_is_left_behind_by_an_interrupt(signal_name: str) -> None:
    import signal
    import subprocess

    read, write_end = os.pipe()
    command = [sys.executable, "-c", INTERRUPTED, signal_name, str(write_end)]
    ended = subprocess.run(
        command, pass_fds=[write_end], timeout=60, capture_output=True, check=False
    )
    os.close(write_end)
    child = int(os.read(read, 100))
    os.close(read)
    assert ended.returncode == -getattr(signal, signal_name)
    deadline = time.monotonic() + 10
    while Path(f"/proc/{child}").exists() and time.monotonic() < deadline:
        time.sleep(0.01)  # the system ends it after its parent
    assert not Path(f"/proc/{child}").exists()
