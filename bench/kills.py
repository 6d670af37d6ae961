"""Kill onnxproof at random times and look at what is left: `python -m bench.kills --seed 1 --count 60`.

Every command is run once to its end, which gives its duration and a set of old outputs. Then it is killed again and again, with SIGINT,
SIGTERM and SIGKILL in turn, half of the times over old outputs. Every output must be absent, old, or new and whole. After SIGINT and SIGTERM
no temporary file, shared memory, draft or process may be left; after SIGKILL none that is still there after the next run of onnxproof.
"""

import argparse
import getpass
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
_CACHES = (f"torchinductor_{getpass.getuser()}", ".ses")
"""Caches that torch and ONNX Runtime keep between runs, in the folder for temporary files."""
_LIMIT_S = 300.0
_GONE_S = 60.0
"""After a signal; a machine that does much else needs most of it for Python's own end."""
_MODEL = """
import torch
from torch import nn


def build():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).eval(), (torch.randn(3, 8),)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command line and the files that it writes into the folder `out`."""

    name: str
    words: tuple[str, ...]
    outputs: tuple[str, ...]


COMMANDS = (
    Command(
        name="verify",
        words=(
            "verify",
            "model.py:build",
            "good.onnx",
            "--budget",
            "2",
            "--isolate",
            "--json",
            "out/p.json",
            "--junit",
            "out/p.xml",
        ),
        outputs=("p.json", "p.xml"),
    ),
    Command(
        name="export",
        words=(
            "export",
            "model.py:build",
            "-o",
            "out/m.onnx",
            "--external-data",
            "--budget",
            "1",
            "--json",
            "out/p.json",
        ),
        outputs=("m.onnx", "m.onnx.data", "p.json"),
    ),
    Command(
        name="quantize",
        words=(
            "quantize",
            "good.onnx",
            "-o",
            "out/q.onnx",
            "--calibration",
            "data.npz",
            "--time",
            "3",
            "--json",
            "out/p.json",
            "--cache",
            "out/cache",
        ),
        outputs=("q.onnx", "p.json", "cache"),
    ),
    Command(
        name="explain",
        words=(
            "explain",
            "model.py:build",
            "bad.onnx",
            "--budget",
            "1",
            "--isolate",
            "--json",
            "out/p.json",
            "--repro",
            "out/repro",
        ),
        outputs=("p.json", "repro"),
    ),
    Command(
        name="report", words=("report", "stored.json", "-o", "out/r.html"), outputs=("r.html",)
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """What came of one."""

    command: str
    signal: str
    after_s: float
    code: int
    faults: tuple[str, ...]


@dataclass(slots=True)
class Ground:
    """A folder with models, and what every run in it shares."""

    folder: Path
    python: str = sys.executable
    durations: dict[str, float] = field(default_factory=dict)

    @property
    def temporary(self) -> Path:
        """The folder for temporary files of the runs, and of nobody else."""
        return self.folder / "tmp"

    @property
    def out(self) -> Path:
        """Where outputs go."""
        return self.folder / "out"

    def environment(self) -> Mapping[str, str]:
        """One thread, own temporary folder, these sources."""
        paths = os.pathsep.join([str(ROOT / "src"), *(p for p in sys.path if p)])
        return {
            **os.environ,
            "TMPDIR": str(self.temporary),
            "PYTHONPATH": paths,
            "OMP_NUM_THREADS": "1",
        }

    def start(self, words: Sequence[str]) -> "subprocess.Popen[bytes]":
        """Begin a run; what it says goes to a file."""
        with (self.folder / "said.txt").open("wb") as said:
            return subprocess.Popen(
                [self.python, "-m", "onnxproof.cli", *words],
                cwd=self.folder,
                env=dict(self.environment()),
                stdout=said,
                stderr=said,
            )

    def prepare(self, commands: Sequence[Command]) -> None:
        """Models, data, and each command once to its end."""
        self.temporary.mkdir()
        (self.folder / "model.py").write_text(_MODEL)
        subprocess.run(
            [self.python, "-c", _MAKE],
            cwd=self.folder,
            env=dict(self.environment()),
            check=True,
            timeout=_LIMIT_S,
        )
        self.out.mkdir()
        self.run("verify", "good.onnx", "good.onnx", "--budget", "1", "--json", "stored.json")
        for command in commands:
            self.durations[command.name] = self.run(*command.words)
            self.out.rename(self.old(command))
            self.out.mkdir()

    def old(self, command: Command) -> Path:
        """The outputs of the run that was left alone."""
        return self.folder / f"old-{command.name}"

    def run(self, *words: str) -> float:
        """A run to its end; gives its seconds."""
        start = time.monotonic()
        code = self.start(words).wait(_LIMIT_S)
        if code not in (0, 1):
            raise RuntimeError(
                f"onnxproof {' '.join(words)} ended with {code}: {(self.folder / 'said.txt').read_text()}"
            )
        return time.monotonic() - start

    def kill(
        self, command: Command, number: signal.Signals, after_s: float, *, over_old: bool
    ) -> Kill:
        """One kill, and all that is wrong afterwards."""
        shutil.rmtree(self.out, ignore_errors=True)
        if over_old:
            shutil.copytree(self.old(command), self.out)
        else:
            self.out.mkdir()
        process = self.start(command.words)
        try:
            code = process.wait(after_s)
        except subprocess.TimeoutExpired:
            process.send_signal(number)
            code = process.wait(_GONE_S)
        if number == signal.SIGKILL:
            self.run("report", "stored.json", "-o", "next.html")
        faults = [*self._left(process.pid), *self._broken(command)]
        return Kill(
            command=command.name,
            signal=number.name,
            after_s=after_s,
            code=code,
            faults=tuple(faults),
        )

    def _left(self, pid: int) -> Iterator[str]:
        """Temporary files, shared memory, drafts and processes of a run that is over."""
        yield from (
            f"temporary: {path.name}"
            for path in self.temporary.iterdir()
            if path.name not in _CACHES
        )
        yield from (
            f"shared memory: {path.name}"
            for path in Path("/dev/shm").glob(f"onnxproof-run-{pid}-*")
        )
        yield from (f"draft: {path}" for path in self.folder.rglob(".onnxproof-*"))
        yield from (f"draft: {path}" for path in self.folder.rglob("*.part*"))
        yield from (f"process: {words}" for words in _processes(self.temporary))

    def _broken(self, command: Command) -> Iterator[str]:
        """Outputs that nobody asked for, or that can't be read."""
        yield from (
            f"unknown output: {path.name}"
            for path in self.out.iterdir()
            if path.name not in command.outputs
        )
        for path in sorted(self.out.rglob("*")):
            reader = _READERS.get(path.suffix)
            if path.is_file() and reader is not None:
                try:
                    reader(path)
                except Exception as why:  # whatever a reader makes of half a file
                    yield f"half: {path.relative_to(self.out)}: {type(why).__name__}: {why}"
        script = self.out / "repro" / "repro.py"
        needed = ("model.onnx", "inputs.safetensors", "outputs.safetensors", "report.md")
        yield from (
            f"half: repro lacks {name}"
            for name in needed
            if script.exists() and not script.with_name(name).exists()
        )


def _read_json(path: Path) -> None:
    assert json.loads(path.read_text(encoding="utf-8"))["verdict"]


def _read_html(path: Path) -> None:
    assert path.read_text(encoding="utf-8").rstrip().endswith("</html>")


def _read_xml(path: Path) -> None:
    from xml.etree import ElementTree

    ElementTree.parse(path)


def _read_onnx(path: Path) -> None:
    """The graph, and weights that are its own: the commands write the same model every time."""
    import onnx

    model = onnx.load(path)
    onnx.checker.check_model(model)


def _read_npz(path: Path) -> None:
    import numpy as np

    with np.load(path, allow_pickle=False) as archive:
        assert archive.files


def _read_safetensors(path: Path) -> None:
    from safetensors.numpy import load_file

    assert load_file(path)


_READERS: dict[str, Callable[[Path], None]] = {
    ".json": _read_json,
    ".html": _read_html,
    ".xml": _read_xml,
    ".onnx": _read_onnx,
    ".npz": _read_npz,
    ".safetensors": _read_safetensors,
}
_MAKE = """
import numpy as np, onnx
from model import build
from onnxproof.exporter import export
from onnxproof.reference import subject

module, example = build()
export.write(subject.load(module, example), __import__("pathlib").Path("good.onnx"))
wrong = onnx.load("good.onnx")
bias = next(t for t in wrong.graph.initializer if list(t.dims) == [4])
bias.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(bias) + np.float32(0.5), bias.name))
onnx.save(wrong, "bad.onnx")
name = wrong.graph.input[0].name
np.savez("data.npz", **{name: np.random.default_rng(0).standard_normal((64, 8)).astype(np.float32)})
"""


def _processes(temporary: Path) -> list[str]:
    """Command lines of the processes whose folder for temporary files is this one or below it; they get a moment to end."""
    deadline = time.monotonic() + 5.0
    while found := [
        _command_line(entry)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and _is_below(entry, temporary)
    ]:
        if time.monotonic() > deadline:
            break
        time.sleep(0.1)
    return found


def _is_below(process: Path, temporary: Path) -> bool:
    try:
        words = (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(word.startswith(b"TMPDIR=" + os.fsencode(temporary)) for word in words)


def _command_line(process: Path) -> str:
    try:
        return (
            f"{process.name} "
            + (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:200]
        )
    except OSError:
        return process.name


def plan(
    seed: int, count: int, commands: Sequence[Command]
) -> Iterator[tuple[Command, signal.Signals, float, bool]]:
    """Each command with each signal in turn; the share of its duration, and whether old outputs are in place."""
    rng = random.Random(seed)
    for place in range(count):
        yield (
            commands[place % len(commands)],
            SIGNALS[place // len(commands) % len(SIGNALS)],
            rng.random(),
            rng.random() < 0.5,
        )


def kills(
    seed: int, count: int, folder: Path, commands: Sequence[Command] = COMMANDS
) -> Iterator[Kill]:
    """Kill `count` times in a fresh folder."""
    ground = Ground(folder=folder)
    ground.prepare(commands)
    for command, number, share, over_old in plan(seed, count, commands):
        yield ground.kill(
            command, number, share * ground.durations[command.name], over_old=over_old
        )


def main() -> int:
    """Print every kill and the sum; 1 when one left something."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--only", default="", help="commands, with commas between them")
    options = parser.parse_args()
    chosen = [
        command
        for command in COMMANDS
        if not options.only or command.name in options.only.split(",")
    ]
    found = []
    with tempfile.TemporaryDirectory(prefix="kills-") as folder:
        for kill in kills(options.seed, options.count, Path(folder).resolve(), chosen):
            found.append(kill)
            sys.stdout.write(
                f"{kill.command:<9}{kill.signal:<8}after {kill.after_s:6.2f} s: exit {kill.code:>3}  {'; '.join(kill.faults) or 'nothing left'}\n"
            )
            sys.stdout.flush()
    bad = [kill for kill in found if kill.faults]
    by_signal = Counter(kill.signal for kill in found)
    by_code = Counter(kill.code for kill in found)
    sys.stdout.write(
        f"seed {options.seed}: {len(found)} kills ({dict(by_signal)}), exit codes {dict(by_code)}: {len(bad)} left something\n"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
