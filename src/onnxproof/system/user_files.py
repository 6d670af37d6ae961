"""Paths that a user names: regular files alone are opened, and only what fits into memory.

A FIFO blocks whoever opens it, a device never ends, a socket can't be read at all, and a loop of links has no file
behind it. Links to regular files are followed.
"""

import errno
import os
import stat
from pathlib import Path

from onnxproof.errors import OnnxproofError, UsageError

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)
_SHARE_OF_MEMORY = 0.8
"""Of the memory that is free: what is read takes that much at least, and the models need some too. Not measured."""
DOCUMENT_BYTES = 1 << 30
"""Proofs, locks and other JSON: the largest proof of the healthy models has 3 MB."""


def require_regular(
    path: str | Path,
    error: type[OnnxproofError] = UsageError,
    *,
    most: int | None = None,
    what: str = "file",
    help: str = "",
) -> Path:
    """The path, if a regular file stands behind it, with at most `most` bytes; `what` and `help` are words for the error.

    Raises:
        OnnxproofError: of the class `error`: `no-such-file`, `not-a-file` or `file-too-large`.
    """
    path = Path(path)
    try:
        about = path.stat()
    except OSError as why:
        if _is_link_loop(path):
            raise error(
                "not-a-file", f"`{path}` is a link that leads to itself", where=str(path)
            ) from why
        raise error(
            "no-such-file",
            f"there is no {what} `{path}`",
            where=str(path),
            notes=_system_message(why),
            help=help,
        ) from why
    except ValueError as why:  # a name with a null byte
        raise error("no-such-file", f"there is no {what} `{path}`: {why}", help=help) from why
    if not stat.S_ISREG(about.st_mode):
        kind = next((words for test, words in _KINDS if test(about.st_mode)), "no regular file")
        raise error(
            "not-a-file",
            f"`{path}` is {kind}",
            where=str(path),
            help="give a regular file",
        )
    if most is not None and about.st_size > most:
        raise error(
            "file-too-large",
            f"`{path.name}` has {about.st_size:,} bytes, and at most {most:,} are read",
            where=str(path),
        )
    return path


def is_regular(path: Path) -> bool:
    """True for a regular file, or a link to one."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (OSError, ValueError):
        return False


def readable_bytes() -> int:
    """The bytes that may be read into memory at once: most of what is free."""
    limits = [_free_memory()]
    try:
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
        if soft != resource.RLIM_INFINITY:
            limits.append(soft)
    except ImportError:  # Windows has no such limits
        pass
    return int(min(limits) * _SHARE_OF_MEMORY)


def _free_memory() -> int:
    """Memory that can be had without swapping."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 8 << 30


def _is_link_loop(path: Path) -> bool:
    try:
        path.resolve(strict=True)
    except (RuntimeError, OSError) as why:
        return isinstance(why, RuntimeError) or getattr(why, "errno", None) == errno.ELOOP
    return False


def _system_message(why: OSError) -> list[str]:
    """The system's own word, where it is more than that nothing is there."""
    if isinstance(why, FileNotFoundError):
        return []
    return [str(why.strerror or why)]
