"""What a verdict depends on: files that are named in the manifest, and files that the model's process was seen to read."""

import contextlib
import hashlib
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from onnxproof.suite.job import Job

_READ = ("subject", "file", "data", "weights", "config", "calibration", "evaluate", "pipeline")
"""Keys of a model that name what is read."""
WRITES = ("export", "quantize")
"""What makes its `file` instead of reading it."""
_MOST = 2000
"""Files that are kept of one model: a dataset of more is a folder that the manifest should name."""
_SYSTEM = ("/proc/", "/sys/", "/dev/", "/etc/")
_PACKAGE_INFO = ".dist-info/"
_PIECE = 1 << 20
_seen: set[str] | None = None


@contextlib.contextmanager
def observed() -> Iterator[set[str]]:
    """While this lasts, the set gets every path that Python code opens to read; for a process that ends soon, since a hook stays."""
    global _seen
    _seen = set()
    sys.addaudithook(_hook)
    try:
        yield _seen
    finally:
        _seen = None


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "open" or _seen is None:
        return
    path, mode, flags = arguments
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    writes = set(mode or "") & set("wax+") or (flags or 0) & (os.O_WRONLY | os.O_RDWR)
    if isinstance(path, str) and not writes:
        _seen.add(os.path.abspath(path))


def hashed(
    opened: Iterable[str], before: Collection[str], job: Job, scratch: Path
) -> dict[str, str]:
    """The user's files among those that were opened, or imported since `before`, each with its hash; packages have versions instead."""
    from onnxproof.reference.user_code import is_user_file

    own = own_package(job.values)
    modules = _imported(before)
    of_subject = {file for name, file in modules.items() if name.partition(".")[0] == own}
    declared = {str(path) for path in declared_files(job.values, Path(job.folder))}
    elsewhere = (str(scratch), *_SYSTEM)
    hashes: dict[str, str] = {}
    for name in sorted({*opened, *modules.values()}):
        skipped = name.startswith(elsewhere) or name.endswith(".pyc") or _PACKAGE_INFO in name
        if skipped or name in declared or len(hashes) >= _MOST:
            continue
        if (is_user_file(name) or name in of_subject) and os.path.isfile(name):
            hashes[name] = hash_file(Path(name))
    return hashes


def _imported(before: Collection[str]) -> dict[str, str]:
    """The files of the modules that were imported since, by name: those of a worker are thousands, and none is the user's."""
    new = {name: sys.modules[name] for name in list(sys.modules) if name not in before}
    files = {name: getattr(module, "__file__", None) for name, module in new.items()}
    return {name: file for name, file in files.items() if file}


def own_package(values: Mapping[str, Any]) -> str:
    """The outermost package of a subject such as `package.module:Class`; nothing where it is a file."""
    place, colon, _ = str(values.get("subject", "")).rpartition(":")
    if not colon or place.endswith(".py") or "/" in place:
        return ""
    return place.partition(".")[0]


def declared_files(values: Mapping[str, Any], folder: Path) -> list[Path]:
    """The files that the keys of a model name, with the external data of an ONNX file and all files of a folder."""
    files: list[Path] = []
    for key in _READ:
        if key == "file" and values.get("do") in WRITES:
            continue
        path = _named_path(values.get(key), folder)
        if path is not None:
            files += _with_parts(path)
    for pattern in values.get("depends", ()):
        files += [path for path in sorted(folder.glob(str(pattern))) if path.is_file()]
    return list(dict.fromkeys(files))


def _named_path(words: Any, folder: Path) -> Path | None:
    """The path in `file.py:factory`, `ckpt.pt:ema` or a plain path; None where there is no such file."""
    if not isinstance(words, str):
        return None
    for text in (words, words.rpartition(":")[0]):
        with contextlib.suppress(OSError, ValueError):
            if text and (folder / text).exists():
                return (folder / text).absolute()
    return None


def _with_parts(path: Path) -> list[Path]:
    if path.is_dir():
        return [file for file in sorted(path.rglob("*")) if file.is_file()][:_MOST]
    if path.suffix == ".onnx":
        return [path, *_external(path)]
    return [path]


def _external(path: Path) -> list[Path]:
    from onnxproof.onnxmodel.onnx_file import external_names

    try:
        names = external_names(path)
    except Exception:  # a file that is no model, which verifying it will say
        return []
    places = [path.parent / name for name in names]
    return [place for place in places if place.is_file()]


def hash_file(path: Path) -> str:
    """The sha256 of a file's content; a word where it can't be read."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as stream:
            while piece := stream.read(_PIECE):
                digest.update(piece)
    except OSError as why:
        return f"unreadable: {why.strerror}"
    return digest.hexdigest()
