"""A few seeded kills of the real commands; `make bench-kills` has sixty."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from bench import kills
from onnxproof.cli import _signals

pytestmark = pytest.mark.timeout(900)
SOURCE = Path(_signals.__file__).parent.parent.parent


def test_no_kill_leaves_anything(tmp_path: Path) -> None:
    """Each signal on a run with a child process and shared memory, and on one that only writes."""
    chosen = [command for command in kills.COMMANDS if command.name in ("verify", "report")]
    found = list(kills.kills(7, 6, tmp_path, chosen))
    assert {(kill.command, kill.signal) for kill in found} == {
        (name, number.name) for name in ("verify", "report") for number in kills.SIGNALS
    }
    assert [kill for kill in found if kill.faults] == []


def test_the_bench_sees_what_is_left(tmp_path: Path) -> None:
    """It would be worth nothing if it could not: every kind of leftover is planted."""
    ground = kills.Ground(folder=tmp_path)
    (tmp_path / "tmp" / "onnxproof-run-1-abcdefgh").mkdir(parents=True)
    ground.out.mkdir()
    (ground.out / "p.json").write_text('{"verdict": ')
    (ground.out / "m.onnx").write_bytes(b"")
    (ground.out / ".onnxproof-1-x").mkdir()
    (ground.out / "q.part.onnx").write_bytes(b"")
    (ground.out / "repro").mkdir()
    (ground.out / "repro" / "repro.py").write_text("")
    orphan = subprocess.Popen(
        [sys.executable, "-c", "import time; print('running', flush=True); time.sleep(60)"],
        env={"TMPDIR": str(ground.temporary), "PATH": os.environ["PATH"]},
        stdout=subprocess.PIPE,
    )
    try:
        # The system shows an empty environment for a moment after a program was started.
        assert orphan.stdout is not None and orphan.stdout.readline() == b"running\n"
        faults = "\n".join([*ground._left(1), *ground._broken(kills.COMMANDS[1])])
    finally:
        orphan.kill()
        orphan.communicate()
    for words in (
        "temporary: onnxproof-run-1-abcdefgh",
        "draft: ",
        ".part.onnx",
        "process: ",
        "half: p.json",
        "half: m.onnx",
        "half: repro lacks model.onnx",
        "unknown output",
    ):
        assert words in faults


STUCK = """
import sys, time
from onnxproof.system import temporary as scratch
from onnxproof.cli import _signals
_signals.PATIENCE_S = float(sys.argv[1])
folder = scratch.Folder()
with _signals.handled(lambda: _signals.leave_at_once("error[interrupted]: stopped", 2)):
    words = ["ready"]
    while True:
        try:
            if words:
                print(words.pop(), flush=True)  # the signal may come at once, so all of it is in the try
            time.sleep(60)
        except KeyboardInterrupt:
            print("interrupted", flush=True)  # as a destructor does that swallows it
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize(("patience", "signals"), [("3", 1), ("600", 2)])
def test_an_interrupt_that_is_swallowed_ends_all_the_same(
    tmp_path: Path, number: signal.Signals, patience: str, signals: int
) -> None:
    """After a while by itself, or at once by a second signal; the first of them interrupts once."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(
        [sys.executable, "-c", STUCK, patience],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert (
        process.stdout is not None
        and process.stdout.readline() == "ready\n"
        and list(tmp_path.iterdir())
    )
    for place in range(signals):
        time.sleep(1.5 if place else 0.0)
        process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (
        process.returncode == 2
        and out == "interrupted\n"
        and err == "error[interrupted]: stopped\n"
    )
    assert not list(tmp_path.iterdir())


def test_an_interrupt_while_a_dataclass_is_made_has_the_same_exit_code(tmp_path: Path) -> None:
    """Python would end by SIGINT here, if it were a plain KeyboardInterrupt."""
    code = """
from onnxproof.cli import _signals
try:
    with _signals.handled(lambda: None):
        exec("import time; print('ready', flush=True); time.sleep(60)")
except KeyboardInterrupt:
    raise SystemExit(2)
"""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    process = subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 2


def test_a_signal_after_the_work_does_not_change_the_exit_code(tmp_path: Path) -> None:
    """Python takes seconds to end when torch is loaded, and the verdict is known by then."""
    code = "import atexit, sys, time; atexit.register(lambda: (print('ending', flush=True), time.sleep(60))); from onnxproof.cli import main; sys.exit(main())"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "explain", "--causes"],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    while process.stdout.readline() != "ending\n":
        pass
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 0


def test_handlers_of_others_stay_theirs() -> None:
    """Who calls `main` from Python has handlers of its own, and gets them back."""
    mine = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
        with _signals.handled(lambda: None):
            assert signal.getsignal(signal.SIGTERM) is before[0]
            assert signal.getsignal(signal.SIGINT) is not before[1]
        assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
    finally:
        signal.signal(signal.SIGTERM, mine)


def test_a_signal_is_an_interrupt_in_the_main_thread() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with pytest.raises(KeyboardInterrupt), _signals.handled(lambda: None):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(10)
    finally:
        signal.signal(signal.SIGTERM, before)
