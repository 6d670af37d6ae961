"""Temporary folders that no way out leaves behind, not even SIGKILL: what a dead run left, the next one removes.

Every process has one root folder for each place (the folder for temporary files, and memory), named `onnxproof-run-...`, and holds
a lock on it as long as it lives. A root whose lock can be taken belongs to nobody: it is removed, together with the drafts beside
output files that it points to and with the processes that were started with a folder of it as their `TMPDIR`. The system gives a
lock back when a process dies, whatever it died of; process ids would be wrong between containers that share a folder.
"""

import atexit
import contextlib
import json
import os
import re
import shutil
import signal
import stat
import tempfile
import threading
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

from onnxproof.errors import UsageError

try:
    import fcntl
except ImportError:  # Windows: a run that was killed leaves its folder to the system
    fcntl = None  # type: ignore[assignment]

_PREFIX = "onnxproof-run-"
_ROOT = re.compile(rf"{_PREFIX}\d+-[a-z0-9_]{{8}}")
_DRAFT = ".onnxproof-"
_OUTSIDE = "outside"
NEW, BEFORE, PLACING = "new", "before", "placing"
"""In a draft: files that wait to be put in place, those that stood there before, and the mark of each new one while that is done."""
_TRIES = 20
_guard = threading.RLock()
_roots: dict[tuple[int, str], "_Root"] = {}
"""By process id, since a fork must not remove what its parent works with."""


@dataclass(frozen=True, slots=True)
class _Root:
    path: Path
    lock: int | None


def open_unnamed(suffix: str = "") -> IO[bytes]:
    """A file without a name, for the caller to close: it is gone with its last handle, however the process ends."""
    return tempfile.TemporaryFile(suffix=suffix)


class Folder:
    """A folder of this process, removed with its contents by `cleanup`, at the end of a `with`, or at the latest when the process ends."""

    def __init__(self, *, in_memory: bool = False) -> None:
        self.path = Path(tempfile.mkdtemp(dir=_root(_base(in_memory)).path))
        self._finalizer = weakref.finalize(self, _remove_own, self.path, os.getpid())

    @property
    def name(self) -> str:
        """The path, for those that want a string."""
        return str(self.path)

    @property
    def new(self) -> Path:
        """The path, too: one may stand where a `Draft` could."""
        return self.path

    def cleanup(self) -> None:
        """Remove it; what can't be removed now goes with the process."""
        self._finalizer()

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.cleanup()


class Draft:
    """A folder beside an output, on the same file system, in which it is made; this process's root points to it."""

    def __init__(self, parent: Path) -> None:
        self.path = parent / f"{_DRAFT}{os.getpid()}-{os.urandom(5).hex()}"
        outside = _root(_base(in_memory=False)).path / _OUTSIDE
        outside.mkdir(exist_ok=True)
        self._pointer = outside / self.path.name
        if fcntl is not None:  # Windows lets few users make links
            # Before the folder: a kill after the next line must find it.
            self._pointer.symlink_to(self.path.absolute())
        try:
            self.path.mkdir()
            self.new.mkdir()
        except BaseException:
            self.cleanup()
            raise

    @property
    def new(self) -> Path:
        """Where the output is made."""
        return self.path / NEW

    def cleanup(self) -> None:
        """Put back what stood in place, if the new files are not all there, and remove the rest."""
        drop_draft(self.path)
        self._pointer.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cleanup()


def drop_draft(folder: Path) -> None:
    """Remove a draft; where its files were being put in place and not all are, those that stood there are put back.

    Nothing is put back where one of the names is neither missing nor the very file that was put there: what somebody wrote since then is theirs.
    """
    with contextlib.suppress(OSError, ValueError):
        placing: dict[str, str] = json.loads((folder / PLACING).read_text(encoding="utf-8"))
        unfinished = any((folder / NEW / name).exists() for name in placing)
        theirs = [
            name
            for name, new in placing.items()
            if (folder / BEFORE / name).exists() and mark(folder.parent / name) not in ("", new)
        ]
        if unfinished and not theirs:
            for name, new in placing.items():
                _put_back(folder / BEFORE / name, folder.parent / name, new)
    _remove(folder)


def _put_back(old: Path, place: Path, new: str) -> None:
    """One file as it was; `new` is the mark of the one that was to take its place."""
    if mark(place) == new:
        place.unlink()
    if old.exists():
        old.rename(place)


def mark(path: Path) -> str:
    """What a file keeps when it is renamed, and no other file has; empty where there is none."""
    try:
        about = path.lstat()
    except OSError:
        return ""
    return f"{about.st_ino} {about.st_mtime_ns} {about.st_size}"


def sweep() -> int:
    """Remove what runs that no longer live left in the usual places; gives the number of their roots."""
    bases = {_base(in_memory=False): None, _base(in_memory=True): None}
    return sum(_sweep(base) for base in bases)


def clear() -> None:
    """Remove everything of this process: its folders, its drafts, the processes that it started with one of them."""
    with _guard:
        for key in [key for key in _roots if key[0] == os.getpid()]:
            root = _roots.pop(key)
            _drop(root.path)
            if root.lock is not None:
                os.close(root.lock)


atexit.register(clear)


def end_processes(folder: Path) -> int:
    """Kill every process whose `TMPDIR` is this folder or below it, so also those that left their parent's group; needs /proc."""
    ended = 0
    for entry in _process_folders(Path("/proc")):
        if int(entry.name) != os.getpid() and _belongs(entry, str(folder)):
            with contextlib.suppress(OSError):
                os.kill(int(entry.name), signal.SIGKILL)
                ended += 1
    return ended


def _process_folders(folder: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        yield from (entry for entry in folder.iterdir() if entry.name.isdigit())


def _belongs(process: Path, folder: str) -> bool:
    """Whether a process, one of /proc's folders, works below a folder."""
    try:
        if process.stat().st_uid != os.getuid():
            return False
        words = (process / "environ").read_bytes().split(b"\0")
    except OSError:  # it is gone, or another user's
        return False
    mark = b"TMPDIR=" + os.fsencode(folder)
    return any(word == mark or word.startswith(mark + b"/") for word in words)


def _base(in_memory: bool) -> str:
    """A folder in memory where the system has one; the folder for temporary files elsewhere, which the system keeps in memory while they are used."""
    memory = "/dev/shm"
    if in_memory and os.path.isdir(memory) and os.access(memory, os.W_OK):
        return memory
    try:
        return tempfile.gettempdir()
    except OSError as why:
        raise UsageError(
            "no-temporary-folder",
            "there is no folder for temporary files that can be written to",
            notes=[str(why.strerror or why)],
            help="set TMPDIR to one that has space",
        ) from why


def _root(base: str) -> _Root:
    with _guard:
        key = (os.getpid(), base)
        known = _roots.get(key)
        if known is None or not known.path.is_dir():
            _sweep(base)
            _roots[key] = known = _make_root(base)
        return known


def _make_root(base: str) -> _Root:
    """A new root, locked; whoever sweeps may have taken it for a dead one before it was, and then another is made."""
    for _ in range(_TRIES):
        path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=base))
        lock = _lock(path)
        if lock is not None or fcntl is None:
            return _Root(path, lock)
        _remove(path)
    raise OSError(f"no temporary folder in {base} could be locked")


def _lock(folder: Path) -> int | None:
    """An open file that holds the lock on a folder, or None when another process has it, or the folder is gone."""
    if fcntl is None:
        return None
    try:
        file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(file), os.stat(folder)):
            return file
    except OSError:
        pass
    os.close(file)
    return None


def _sweep(base: str) -> int:
    swept = 0
    if fcntl is None:
        return 0
    with contextlib.suppress(OSError), os.scandir(base) as entries:
        for name in [entry.name for entry in entries if entry.name.startswith(_PREFIX)]:
            swept += _ROOT.fullmatch(name) is not None and _sweep_one(Path(base, name))
    return swept


def _sweep_one(path: Path) -> bool:
    """Remove one root, if it is a folder of ours that nobody holds."""
    with contextlib.suppress(OSError):
        about = path.lstat()
        if (
            not stat.S_ISDIR(about.st_mode)
            or about.st_uid != os.getuid()
            or any(root.path == path for root in _roots.values())
        ):
            return False
        lock = _lock(path)
        if lock is not None:
            try:
                _drop(path)
            finally:
                os.close(lock)
            return True
    return False


def _drop(root: Path) -> None:
    """Remove a root, what it points to, and the processes that work in it."""
    with contextlib.suppress(OSError):
        if any(root.iterdir()):
            end_processes(root)
        outside = root / _OUTSIDE
        if outside.is_dir():
            for pointer in outside.iterdir():
                target = Path(os.readlink(pointer))
                if target.name.startswith(_DRAFT) and target.is_dir() and not target.is_symlink():
                    drop_draft(target)
    _remove(root)


def _remove_own(folder: Path, process: int) -> None:
    """For a folder that nobody holds any more; a fork of its maker leaves it alone."""
    if os.getpid() == process:
        _remove(folder)


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
