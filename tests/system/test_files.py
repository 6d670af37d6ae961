"""Writing: whole or not at all, links followed, devices and pipes written to, nothing left by any way out."""

import os
import resource
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from onnxproof.errors import UsageError
from onnxproof.system import temporary as scratch
from onnxproof.system import writing

SOURCE = Path(writing.__file__).parents[2]


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files of this test alone."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "place"
    folder.mkdir()
    return folder


def content(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


@contextmanager
def limited(size: int) -> Iterator[None]:
    """As on a full disk: no file grows beyond this."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def script(code: str, temporary: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A process of its own, which may be killed."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "TMPDIR": str(temporary)}
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_link_is_followed_and_stays(place: Path) -> None:
    (place / "real.json").write_text("old")
    (place / "link.json").symlink_to("real.json")
    writing.write_text("new", place / "link.json")
    assert (place / "link.json").is_symlink() and (place / "real.json").read_text() == "new"
    (place / "dangling.json").symlink_to(place / "later.json")
    writing.write_text("first", place / "dangling.json")
    assert (place / "dangling.json").is_symlink() and (place / "later.json").read_text() == "first"
    assert sorted(content(place)) == ["dangling.json", "later.json", "link.json", "real.json"]


def test_a_device_stays_a_device() -> None:
    before = os.stat("/dev/null")
    writing.write_text("text", "/dev/null")
    writing.check("/dev/null")
    after = os.stat("/dev/null")
    assert stat.S_ISCHR(after.st_mode) and (after.st_ino, after.st_rdev) == (
        before.st_ino,
        before.st_rdev,
    )
    with pytest.raises(UsageError, match="this is no regular file, and it has to be read again"):
        writing.check("/dev/null", what="the model", regular=True)


def test_a_pipe_gets_the_text_and_stays_a_pipe(place: Path) -> None:
    os.mkfifo(place / "pipe")
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append((place / "pipe").read_text()))
    reader.start()
    writing.write_text("whole", place / "pipe")
    reader.join(10)
    assert got == ["whole"] and stat.S_ISFIFO(os.stat(place / "pipe").st_mode)
    assert not writing.replaceable(place / "pipe")


@pytest.mark.parametrize("folder", ["/dev/fd", "/proc/self/fd"])
def test_what_is_open_already_is_appended_to(place: Path, folder: str) -> None:
    """`--json /dev/stdout > all.txt`: the file behind it belongs to whoever opened it."""
    with (place / "all.txt").open("w") as stream:
        stream.write("before ")
        stream.flush()
        inode = os.fstat(stream.fileno()).st_ino
        writing.write_text("text", f"{folder}/{stream.fileno()}")
    assert (place / "all.txt").read_text() == "before text" and (
        place / "all.txt"
    ).stat().st_ino == inode


def test_a_file_keeps_its_mode(place: Path) -> None:
    (place / "p.json").write_text("old")
    (place / "p.json").chmod(0o640)
    writing.write_text("new", place / "p.json")
    assert stat.S_IMODE((place / "p.json").stat().st_mode) == 0o640 and content(place) == {
        "p.json": "new"
    }


REFUSED = {
    "a folder": lambda place: place,
    "no such folder": lambda place: place / "no" / "p.json",
    "a name of 300": lambda place: place / ("x" * 300),
    "a path of 5,000": lambda place: Path("/tmp/" + "x/" * 2500 + "p.json"),
    "a name of 5,000": lambda place: place / ("x" * 5000),
    "/proc": lambda _: Path("/proc/p.json"),
    "/proc itself": lambda _: Path("/proc"),
    "/sys": lambda _: Path("/sys/p.json"),
    "a zero byte": lambda place: place / "a\0b",
    "a file as a folder": lambda place: place / "f" / "p.json",
    "no such device": lambda _: Path("/dev/no-such-device"),
}


@pytest.mark.parametrize("way", ["check", "write"])
@pytest.mark.parametrize("name", list(REFUSED))
def test_what_can_not_be_written_is_said_and_leaves_nothing(
    place: Path, temporary: Path, name: str, way: str
) -> None:
    (place / "f").write_text("file")
    path = REFUSED[name](place)
    with pytest.raises(UsageError) as caught:
        writing.check(path) if way == "check" else writing.write_text("text", path)
    assert caught.value.code == "cannot-write" and len(str(caught.value)) < 1000
    assert content(place) == {"f": "file"}
    assert not list(temporary.rglob(".onnxproof-*"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_to(place: Path) -> None:
    place.chmod(0o500)
    with pytest.raises(UsageError, match="Permission denied"):
        writing.check(place / "p.json")
    place.chmod(0o700)


def test_a_link_loop(place: Path) -> None:
    (place / "a").symlink_to("b")
    (place / "b").symlink_to("a")
    with pytest.raises(UsageError, match="the proof can't be written: Too many levels"):
        writing.write_text("text", place / "a")


@pytest.mark.parametrize("before", [{}, {"p.json": "old"}])
def test_a_full_disk_leaves_what_was_there(place: Path, before: dict[str, str]) -> None:
    for name, text in before.items():
        (place / name).write_text(text)
    with (
        limited(10_000),
        pytest.raises(
            UsageError, match=r"error\[cannot-write\]: the proof can't be written: File too large"
        ),
    ):
        writing.write_text("x" * 100_000, place / "p.json")
    with pytest.raises(
        UsageError,
        match=r"error\[cannot-write\]: the proof can't be written: No space left on device",
    ):
        writing.write_text("text", "/dev/full")
    assert content(place) == before


def test_a_full_disk_in_an_export_leaves_no_file(place: Path) -> None:
    torch = pytest.importorskip("torch")
    from onnxproof.exporter import export
    from onnxproof.reference import subject

    found = subject.load(torch.nn.Linear(64, 64).eval(), (torch.randn(2, 64),))
    for external in (False, True):
        with limited(8_000), pytest.raises(UsageError, match="the model can't be written"):
            export.write(found, place / "e.onnx", export.ExportOptions(external_data=external))
        assert content(place) == {}


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_whatever_the_body_raises_leaves_the_old_file(
    place: Path, error: type[BaseException]
) -> None:
    (place / "m").write_text("old")
    with pytest.raises(error), writing.replace_file(place / "m") as draft:
        draft.write_text("half")
        raise error("in the midst")
    assert content(place) == {"m": "old"}


def test_an_error_that_is_not_about_writing_stays_what_it_is(place: Path) -> None:
    with pytest.raises(FileNotFoundError), writing.replace_file(place / "m"):
        (place / "data.npz").read_bytes()
    with pytest.raises(ValueError, match=r"^odd$"), writing.replace_file(place / "m"):
        raise ValueError("odd")


def test_two_writers_of_one_file_do_not_meet(place: Path) -> None:
    with (
        writing.replace_file(place / "x.onnx") as first,
        writing.replace_file(place / "x.onnx") as second,
    ):
        first.write_text("first")
        first.with_name("x.onnx.data").write_text("first")
        second.write_text("second")
        second.with_name("x.onnx.data").write_text("second")
    assert content(place) == {"x.onnx": "first", "x.onnx.data": "first"}, "the one that ended last"


OLD = {"m.onnx": "old", "m.onnx.data": "old"}
NEW = {"m.onnx": "new", "m.onnx.data": "new"}
DIES = """
import os, signal, sys
from pathlib import Path
from onnxproof.system import writing as files
place, step = Path(sys.argv[1]), int(sys.argv[2])
replace, calls = os.replace, 0
def dies(*words):
    global calls
    calls += 1
    if calls == step:
        os.kill(os.getpid(), signal.SIGKILL)
    replace(*words)
os.replace = dies
with files.replace_file(place / "m.onnx") as draft:
    for name in ("m.onnx", "m.onnx.data"):
        draft.with_name(name).write_text("new")
"""


@pytest.mark.parametrize("old", [OLD, {}, {"m.onnx": "old"}], ids=["both", "none", "one"])
@pytest.mark.parametrize("step", range(1, 6))
def test_killed_between_two_renames(
    place: Path, temporary: Path, step: int, old: dict[str, str]
) -> None:
    """A new graph is never seen with old weights, nor an old one with new; what was there comes back in the next run."""
    for name, text in old.items():
        (place / name).write_text(text)
    done = script(DIES, temporary, str(place), str(step))
    seen = {
        name: text
        for name, text in content_of_files(place).items()
        if "m.onnx" in content_of_files(place)
    }
    assert seen in ({}, old, NEW), "whoever looks now sees no graph, or one with its own weights"
    if done.returncode == 0:
        assert seen == NEW
    scratch.sweep()
    assert content_of_files(place) == (NEW if done.returncode == 0 else old)
    assert len(list(place.iterdir())) == len(content_of_files(place)) and not list(
        temporary.iterdir()
    )


def content_of_files(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}


def test_what_somebody_wrote_since_the_kill_is_theirs(place: Path, temporary: Path) -> None:
    for name, text in OLD.items():
        (place / name).write_text(text)
    assert script(DIES, temporary, str(place), "4").returncode == -9
    assert sorted(content_of_files(place)) == ["m.onnx.data"]
    (place / "m.onnx").write_text("mine")
    (place / "m.onnx.data").unlink()
    (place / "m.onnx.data").write_text("mine")
    scratch.sweep()
    assert content(place) == {"m.onnx": "mine", "m.onnx.data": "mine"}


@pytest.mark.parametrize("step", range(1, 5))
def test_an_error_between_two_renames_puts_everything_back(
    place: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    for name, text in OLD.items():
        (place / name).write_text(text)
    replace, calls = os.replace, iter(range(1, 100))

    def fails(*words: Path) -> None:
        if next(calls) == step:
            raise KeyboardInterrupt
        replace(*words)

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(KeyboardInterrupt), writing.replace_file(place / "m.onnx") as draft:
        for name in NEW:
            draft.with_name(name).write_text("new")
    assert content(place) == OLD


LEAVES = """
import os, signal, subprocess, sys, time
from pathlib import Path
from onnxproof.system import temporary as scratch
folder, shared = scratch.Folder(), scratch.Folder(in_memory=True)
(shared.path / "inputs").write_text("x")
draft = scratch.Draft(Path(sys.argv[1]))
child = subprocess.Popen(["sleep", "600"], env={**os.environ, "TMPDIR": folder.name}, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print(os.getpid(), child.pid, flush=True)
if sys.argv[2] == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[2] == "wait":
    sys.stdin.read()
"""


def shared_of(pid: int) -> list[Path]:
    return list(Path("/dev/shm").glob(f"onnxproof-run-{pid}-*"))


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def ends(pid: int) -> bool:
    deadline = time.monotonic() + 10
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not alive(pid)


def test_the_end_of_a_process_takes_everything(place: Path, temporary: Path) -> None:
    pid, child = map(int, script(LEAVES, temporary, str(place), "end").stdout.split())
    assert (
        not list(temporary.iterdir())
        and not shared_of(pid)
        and not list(place.iterdir())
        and ends(child)
    )


def test_what_a_killed_run_left_goes_with_the_next(place: Path, temporary: Path) -> None:
    pid, child = map(int, script(LEAVES, temporary, str(place), "kill").stdout.split())
    assert list(temporary.iterdir()) and shared_of(pid) and list(place.iterdir()) and alive(child)
    assert scratch.sweep() >= 2
    assert (
        not list(temporary.iterdir())
        and not shared_of(pid)
        and not list(place.iterdir())
        and ends(child)
    )


def test_a_run_that_lives_is_left_alone(place: Path, temporary: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "TMPDIR": str(temporary)}
    other = subprocess.Popen(
        [sys.executable, "-c", LEAVES, str(place), "wait"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert other.stdout is not None and other.stdin is not None
    pid, child = map(int, other.stdout.readline().split())
    scratch.sweep()
    try:
        assert (
            list(temporary.iterdir()) and shared_of(pid) and list(place.iterdir()) and alive(child)
        )
    finally:
        other.stdin.close()
        other.wait(30)
        other.stdout.close()
    assert (
        not list(temporary.iterdir())
        and not shared_of(pid)
        and not list(place.iterdir())
        and ends(child)
    )


def test_what_is_not_ours_is_never_swept(temporary: Path, place: Path) -> None:
    (place / "precious").write_text("x")
    for name in (
        "onnxproof-work",
        "onnxproof-run-mine",
        "onnxproof-run-12-toolongforone",
        "onnxproof-48e9qjbd",
        "onnxproof-pytest-12345678",
    ):
        (temporary / name).mkdir()
        (temporary / name / "precious").write_text("x")
    (temporary / "onnxproof-run-1-abcdefgh").symlink_to(place)
    (temporary / "onnxproof-run-2-abcdefgh").write_text("a file")
    before = sorted(str(path) for path in temporary.rglob("*"))
    scratch.sweep()
    assert (
        sorted(str(path) for path in temporary.rglob("*")) == before
        and (place / "precious").exists()
    )


def test_a_pointer_of_a_dead_run_leads_to_drafts_alone(temporary: Path, place: Path) -> None:
    (place / "precious").write_text("x")
    outside = temporary / "onnxproof-run-1-abcdefgh" / "outside"
    outside.mkdir(parents=True)
    (outside / "a").symlink_to(place)
    (outside / ".onnxproof-1-b").symlink_to(place / "precious")
    scratch.sweep()
    assert not outside.exists() and (place / "precious").read_text() == "x"


def test_a_fork_leaves_its_parents_folders_alone(temporary: Path) -> None:
    code = """
import os, sys
from onnxproof.system import temporary as scratch
folder = scratch.Folder()
child = os.fork()
if child == 0:
    sys.exit(0)
os.waitpid(child, 0)
assert folder.path.is_dir()
"""
    done = script(code, temporary)
    assert done.returncode == 0, done.stderr
    assert not list(temporary.iterdir())


def test_a_folder_that_somebody_removed_is_made_again(temporary: Path) -> None:
    with scratch.Folder() as folder:
        import shutil

        shutil.rmtree(folder.parent)
    with scratch.Folder() as folder:
        assert folder.is_dir()
    scratch.clear()
    assert not list(temporary.iterdir())


def test_nothing_in_the_sources_writes_in_another_way() -> None:
    """Results go through `files`, temporary folders come from `scratch`; what is here otherwise has its reason."""
    allowed = {
        "system/temporary.py",
        "testing",
        "runtimes/javascript/browser.py",
        "suite/worker.py",  # a model's process has a temporary folder of its own
    }
    found = []
    for path in sorted((SOURCE / "onnxproof").rglob("*.py")):
        name = str(path.relative_to(SOURCE / "onnxproof"))
        text = path.read_text()
        if name in allowed or name.split("/")[0] in allowed:
            continue
        found += [
            f"{name}: {word}"
            for word in ("tempfile.", "mkdtemp", "TemporaryDirectory", '.part"', "shutil.move")
            if word in text
        ]
    assert found == []
