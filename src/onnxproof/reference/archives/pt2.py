"""A `.pt2` of torch.export: read field by field, and written anew with plain data alone."""

import io
import json
import math
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from onnxproof.errors import SubjectError
from onnxproof.reference.archives._fields import Unknown, plain
from onnxproof.system import temporary
from onnxproof.system.user_files import readable_bytes, require_regular
from onnxproof.system.zip_archive import Archive, write

_MODEL = "models/model.json"
_CONFIGS = {
    "data/weights/model_weights_config.json": "data/weights/",
    "data/constants/model_constants_config.json": "data/constants/",
}
_PICKLES = ("data/sample_inputs/model.pt", "data/weights/model.pt", "data/constants/model.pt")
"""Tensors and containers that `weights_only` reads; they are read and written anew, since torch itself falls back to unpickling anything."""
_MARKS = {"archive_format": b"pt2", "archive_version": b"0", "byteorder": b"little"}
_IGNORED = (".data/", "extra/", "version")
_PAYLOADS = ("data/weights/weight_", "data/constants/tensor_")
_LOADED = (
    "data/aotinductor/",
    "data/executorch/",
    "data/constants/custom_obj_",
    "data/constants/opaque_obj_",
)
_MOST_JSON = 1 << 30
_AGAIN = "save it again with `torch.export.save`; a program that you trust can be loaded by a factory: `file.py:factory`"


def plain_program(path: Path) -> IO[bytes]:
    """A temporary archive for `torch.export.load`, with the program's plain data and nothing else.

    Raises:
        SubjectError: `legacy-pt2`, `archive-refused`, `archive-too-large`, `pickle-refused`, `operator-refused` or `code-refused`.
    """
    _refuse_legacy(path)
    with Archive(path, "bad-pt2") as archive:
        _check_names(archive)
        try:
            documents = {
                name: plain(_document(archive, name))
                for name in (_MODEL, *_CONFIGS)
                if name in archive.names
            }
        except Unknown as why:
            raise archive.refused(
                f"its field `{why.place.lstrip('.')}` is not plain data: {why.why}",
                f"it says {why.value}",
                code=why.code,
                help=_AGAIN,
            ) from why
        copied = dict(_payloads(archive, documents))
        members: dict[str, bytes | str] = {
            name: json.dumps(document) for name, document in documents.items()
        }
        members |= {name: _tensors(archive, name) for name in _PICKLES if name in archive.names}
        members |= {**_MARKS, ".data/version": b"6\n"}
        plain_archive = temporary.open_unnamed(".pt2")
        write(plain_archive, members, {name: name for name in copied}, archive)
        return plain_archive


def _refuse_legacy(path: Path) -> None:
    """The archives of torch 2.7 and older: pickles of everything, which torch falls back to unpickle."""
    try:
        with zipfile.ZipFile(require_regular(path, SubjectError)) as archive:
            legacy = any(
                name.rpartition("/")[2].startswith("serialized_") for name in archive.namelist()
            )
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError):
        return  # whoever opens it next says so
    if legacy:
        raise SubjectError(
            "legacy-pt2",
            f"`{path.name}` is refused: it was saved by torch 2.7 or older, which pickled its weights",
            where=str(path),
            help="save it again with torch 2.9 or newer",
        )


def _check_names(archive: Archive) -> None:
    """Every member must be known."""
    names = archive.names
    for name in names:
        if name.startswith(_LOADED):
            raise archive.refused(
                f"its member `{name}` is compiled code or an object that runs code when it is loaded",
                code="code-refused",
                help=_AGAIN,
            )
        known = name in (_MODEL, *_CONFIGS, *_PICKLES, *_MARKS)
        known = known or name.startswith(_IGNORED) or name.startswith(_PAYLOADS)
        if name.endswith(".pkl"):
            raise _pickle(archive, name, "torch.export writes none")
        if not known:
            raise archive.refused(f"its member `{name}` is not known to be plain data", help=_AGAIN)
    if _MODEL not in names:
        raise archive.refused(
            "it holds no exported program", f"it has no member `{_MODEL}`", code="bad-pt2"
        )
    for name, mark in _MARKS.items():
        if name in names and archive.read(name) != mark:
            raise archive.refused(f"its `{name}` is not {mark.decode()}", code="bad-pt2")


def _document(archive: Archive, name: str) -> Any:
    if archive.size(name) > _MOST_JSON:
        raise archive.refused(
            f"its member `{name}` has {archive.size(name):,} bytes", code="archive-too-large"
        )
    try:
        return json.loads(archive.read(name).decode("utf-8"), object_pairs_hook=_unique_keys)
    except (ValueError, RecursionError) as why:
        raise archive.refused(f"its member `{name}` is no JSON", str(why), code="bad-pt2") from why


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        raise ValueError("a key stands there twice")
    return entries


def _payloads(archive: Archive, documents: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """The members that hold the tensors' bytes; a tensor may not be larger than what is stored for it, unless that fits too."""
    for config, folder in _CONFIGS.items():
        for key, meta in _tensors_of(documents.get(config)):
            name = f"{folder}{meta.get('path_name')}"
            if name not in archive.names:
                raise archive.refused(
                    f"the bytes of `{key}` are missing",
                    f"it has no member `{name}`",
                    code="bad-pt2",
                )
            elements = _elements(meta)
            stored = archive.size(name)
            if elements is None or _is_too_large(elements, stored):
                raise archive.refused(
                    f"`{key}` would have {elements} elements, and {stored:,} bytes are stored for it",
                    code="archive-too-large",
                )
            yield name, stored


def _is_too_large(elements: int, stored: int) -> bool:
    """Whether a tensor has elements without bytes, or more of them than bytes and than memory."""
    if stored == 0:
        return elements > 0
    return elements > stored and elements > readable_bytes()


def _tensors_of(document: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    config = _get(document, "config")
    if isinstance(config, dict):
        for key, meta in config.items():
            if isinstance(meta, dict):
                yield key, meta


def _get(value: Any, key: str) -> Any:
    """The entry of a JSON object; None where it is none."""
    if isinstance(value, dict):
        return value.get(key)
    return None


def _elements(meta: Mapping[str, Any]) -> int | None:
    """How many elements a tensor says it has; None where it does not say it in numbers."""
    sizes = _get(meta.get("tensor_meta"), "sizes")
    if not isinstance(sizes, list):
        return None
    numbers = [_get(size, "as_int") for size in sizes]
    if not all(isinstance(number, int) and number >= 0 for number in numbers):
        return None
    return int(math.prod(numbers))


def _tensors(archive: Archive, name: str) -> bytes:
    """A pickle of tensors and containers, written anew: `weights_only` knows no other classes."""
    import torch

    content = archive.read(name)
    _check_inner(archive, name, content)
    try:
        tensors = torch.load(io.BytesIO(content), weights_only=True, map_location="cpu")
    except Exception as why:  # unpickling errors have many classes, and each is a refusal
        raise _pickle(archive, name, str(why).partition("\n")[0][:200]) from why
    copy = io.BytesIO()
    torch.save(tensors, copy)
    return copy.getvalue()


def _check_inner(archive: Archive, name: str, content: bytes) -> None:
    """torch.save makes a zip too, with everything stored as it is: no part of it can unpack to more than there is."""
    try:
        entries = zipfile.ZipFile(io.BytesIO(content)).infolist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError):
        raise _pickle(archive, name, "it is no archive of torch.save") from None
    if sum(entry.file_size for entry in entries) > len(content):
        raise archive.refused(
            f"its member `{name}` unpacks to more than it holds", code="archive-too-large"
        )


def _pickle(archive: Archive, name: str, note: str) -> SubjectError:
    return SubjectError(
        "pickle-refused",
        f"`{archive.path.name}` holds a pickle that could run code: {name}",
        where=str(archive.path),
        notes=[note],
        help="save the program again without custom objects among its example inputs",
    )
