"""The one way in which results are written: a file appears whole or not at all, and nothing but a regular file is ever replaced.

A result is made in a folder of its own beside its place, written through to the disk, and renamed. What is no regular file (a pipe,
a device, a terminal) is written to as it is; a link is followed. Whatever goes wrong is `cannot-write`, and leaves nothing.
"""

import errno
import json
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from onnxproof.errors import UsageError
from onnxproof.system import temporary

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_OPENED = ("/dev", "/dev/fd", "/proc/self/fd")
"""Names in these folders stand for what is open already: replacing the file behind one would take it from whoever writes to it."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)
_SHOWN = 200
"""Characters of a path in a message: nobody reads a path of thousands."""


def write_text(text: str, path: str | Path, *, what: str = "the proof") -> None:
    """Put a finished text in its place in one step, so that nobody reads half of it."""
    write_bytes(text.encode("utf-8", "backslashreplace"), path, what=what)


def write_bytes(content: bytes, path: str | Path, *, what: str = "the file") -> None:
    """The same for bytes."""
    with replace_file(path, what=what) as draft:
        draft.write_bytes(content)


@contextmanager
def replace_file(path: str | Path, *, what: str = "the file") -> Iterator[Path]:
    """A place to make the file in; at the end of the `with`, and only if nothing was raised, it takes the file's place.

    What is put beside the draft goes beside the file, such as the weights of a model that keeps them apart. Several files can't be
    replaced in one step: the file itself is taken away first and comes last, so that it is never seen with what belongs to another.
    """
    path = Path(path)
    with explain_write_errors(path, what):
        target = Path(os.path.realpath(path))
        draft = temporary.Draft(target.parent) if replaceable(path) else temporary.Folder()
    with draft:
        file = draft.new / (target.name if replaceable(path) else path.name)
        try:
            yield file
        except OSError as why:
            # The body may do more than write: other errors are not ours to explain.
            if not is_full(why):
                raise
            with explain_write_errors(path, what):
                raise
        with explain_write_errors(path, what):
            if isinstance(draft, temporary.Draft):
                _put_in_place(draft, target)
            else:
                _write_through(file, path)


def is_full(why: BaseException) -> bool:
    """Whether an error says that the disk is full, a quota used up, or a file system only to be read; numpy says it without a number."""
    return isinstance(why, OSError) and (why.errno in _FULL or " requested and " in str(why))


def replaceable(path: str | Path) -> bool:
    """True for a regular file, a link to one, and a name that is still free; False for what can only be written to."""
    path = Path(path)
    if str(path.absolute().parent) in _OPENED:
        return False
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        return True


def check(path: str | Path, *, what: str = "the proof", regular: bool = False) -> None:
    """Raise now what writing would raise after minutes of work; `regular` is for what must be read again, such as a model."""
    path = Path(path)
    with explain_write_errors(path, what):
        parent = Path(os.path.realpath(path)).parent
        if not path.absolute().parent.is_dir():
            shown = _shorten_path(path.parent)
            raise UsageError(
                "cannot-write",
                f"there is no folder `{shown}` to write {what} to",
                where=_shorten_path(path),
                help="make the folder first",
            )
        if path.is_dir():
            raise IsADirectoryError(21, "this is a folder")
        if regular and not replaceable(path):
            raise UsageError(
                "cannot-write",
                f"{what} can't be written: this is no regular file, and it has to be read again",
                where=_shorten_path(path),
                help="give the path of a file",
            )
        if replaceable(path):
            temporary.Draft(parent).cleanup()
        elif not os.access(path, os.W_OK):
            raise PermissionError(13, "it may not be written to")


@contextmanager
def explain_write_errors(path: str | Path, what: str) -> Iterator[None]:
    """Turn what the system says of a write into `cannot-write`."""
    try:
        yield
    except UnicodeError:
        raise
    except (OSError, ValueError) as why:  # a ValueError: a path with a zero byte in it
        if isinstance(why, UsageError):
            raise
        reason = getattr(why, "strerror", None) or str(why)
        raise UsageError(
            "cannot-write",
            f"{what} can't be written: {reason}",
            where=_shorten_path(path),
            help="give a path in a folder that exists, may be written to and has space",
        ) from why


def _shorten_path(path: str | Path) -> str:
    text = str(path)
    if len(text) <= _SHOWN:
        return text
    return f"{text[:_SHOWN]}... ({len(text):,} characters)"


def _write_through(draft: Path, path: Path) -> None:
    """Into a pipe or a device, from its end where it has one, and without making a file should it be gone by now."""
    others = [file.name for file in draft.parent.iterdir() if file != draft]
    if others:
        raise ValueError(
            f"`{others[0]}` belongs to it, and has no place beside what is no regular file"
        )
    with (
        os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND), "wb") as stream,
        draft.open("rb") as content,
    ):
        shutil.copyfileobj(content, stream)


def _put_in_place(draft: temporary.Draft, target: Path) -> None:
    names = sorted(
        (file.name for file in draft.new.iterdir()), key=lambda name: name == target.name
    )
    with suppress(OSError):
        (draft.new / target.name).chmod(stat.S_IMODE(target.stat().st_mode))
    for name in names:
        _sync(draft.new / name)
    with _lock_folder(target.parent):
        if len(names) > 1:
            _take_away(draft, target, names)
        for name in names:
            os.replace(draft.new / name, target.with_name(name))
    _sync(target.parent)


def _take_away(draft: temporary.Draft, target: Path, names: list[str]) -> None:
    """Move what stands in place into the draft, the file itself first; `Draft.cleanup`, now or in the next run, puts it back if need be."""
    before = draft.path / temporary.BEFORE
    before.mkdir()
    marks = {name: temporary.mark(draft.new / name) for name in names}
    (draft.path / temporary.PLACING).write_text(json.dumps(marks), encoding="utf-8")
    _sync(draft.path / temporary.PLACING)
    for name in reversed(names):
        with suppress(FileNotFoundError):
            os.replace(target.with_name(name), before / name)


@contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
    """One process at a time puts several files into a folder: two that take turns would leave one's graph with the other's weights."""
    if fcntl is None:
        yield
        return
    with ExitStack() as held:
        with suppress(OSError):  # a folder that may not be read, a file system without locks
            lock = os.open(folder, os.O_RDONLY)
            held.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _sync(path: Path) -> None:
    """Down to the disk, so that a name never stands for content that a power failure took."""
    # An error: a file system that does not know it, or Windows, which opens no folders.
    with suppress(OSError):
        file = os.open(path, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)
