"""Arrays from files: .npy, .npz and .safetensors, whose headers are read before anything is allocated.

A header is a claim. An array that would need more bytes than the file holds, or than fit into memory, is refused before
it is read; pickled arrays are never read.
"""

import math
import struct
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np

from onnxproof.errors import InputError
from onnxproof.system.user_files import readable_bytes, require_regular

Array = np.ndarray[Any, Any]
SUFFIXES = (".npz", ".npy", ".safetensors")
_HELP = "pickled arrays are not read; save plain ones"
_MOST_HEADER = 100_000
"""Bytes of an .npy header: a shape and a dtype take a hundred."""
_MOST_ARRAYS = 10_000
"""Arrays of an .npz beyond which it is refused, since looking for repeated names is quadratic."""


def read_arrays(path: Path) -> dict[str, Array]:
    """The arrays of a file by their names; the one of an .npy has the name ``""``.

    Raises:
        InputError: `no-such-file`, `not-a-file`, `bad-data` or `data-too-large`.
    """
    require_regular(path, InputError)
    try:
        if path.suffix.lower() == ".npy":
            with path.open("rb") as stream:
                return {"": _read_npy(stream, path.stat().st_size, path, path.name)}
        if path.suffix.lower() == ".npz":
            return _read_npz(path)
        return _read_safetensors(path)
    except InputError:
        raise
    except Exception as why:  # damaged archives raise half a dozen classes
        raise InputError(
            "bad-data",
            f"`{path.name}` can't be read: {why}",
            where=str(path),
            help=_HELP,
        ) from why


def _read_npy(
    stream: IO[bytes],
    size: int,
    path: Path,
    name: str,
) -> Array:
    """One array, if it needs no more than the bytes that follow its header."""
    version = np.lib.format.read_magic(stream)
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version)
    if read is None:
        raise ValueError(f"version {version} of the format is not known")
    shape, fortran, dtype = read(stream, max_header_size=_MOST_HEADER)
    if dtype.hasobject:
        raise InputError(
            "bad-data",
            f"`{path.name}` can't be read: allow_pickle is off, and `{name}` is an object array",
            where=str(path),
            help=_HELP,
        )
    if any(dim < 0 for dim in shape):
        raise ValueError(f"`{name}` has a negative dim: {shape}")
    needed = math.prod(shape) * dtype.itemsize
    present = size - stream.tell()
    if needed > present:
        raise InputError(
            "bad-data",
            f"`{path.name}` is damaged: `{name}` says {dtype}{list(shape)}, which is {needed:,} bytes, and has {present:,}",
            where=str(path),
        )
    content = stream.read(needed)
    if len(content) != needed:
        raise ValueError(f"`{name}` ends after {len(content):,} of {needed:,} bytes")
    if not needed:
        return np.empty(shape, dtype)
    flat = np.frombuffer(bytearray(content), dtype=dtype)
    if fortran:
        return flat.reshape(shape[::-1]).transpose()
    return flat.reshape(shape)


def _read_npz(path: Path) -> dict[str, Array]:
    """All arrays of an archive, if they fit into memory."""
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        names = [entry.filename.removesuffix(".npy") for entry in entries]
        twice = _repeated_name(names)
        if twice is not None:
            raise InputError(
                "bad-data", f"`{path.name}` has two arrays named `{twice}`", where=str(path)
            )
        total = sum(entry.file_size for entry in entries)
        most = readable_bytes()
        if total > most:
            raise InputError(
                "data-too-large",
                f"`{path.name}` unpacks to {total:,} bytes, and {most:,} fit into memory",
                where=str(path),
            )
        arrays = {}
        for name, entry in zip(names, entries, strict=True):
            with archive.open(entry) as stream:
                arrays[name] = _read_npy(stream, entry.file_size, path, name)
        return arrays


def _repeated_name(names: list[str]) -> str | None:
    """A name that two arrays have."""
    if len(names) >= _MOST_ARRAYS:
        return "..."
    return next((name for name in names if names.count(name) > 1), None)


def _read_safetensors(path: Path) -> dict[str, Array]:
    """All tensors of a file, if they fit into memory."""
    from safetensors.numpy import load_file

    size = path.stat().st_size
    if size > readable_bytes():
        raise InputError(
            "data-too-large",
            f"`{path.name}` has {size:,} bytes, and {readable_bytes():,} fit into memory",
            where=str(path),
        )
    with path.open("rb") as stream:
        head = stream.read(8)
    if len(head) < 8 or struct.unpack("<Q", head)[0] > size - 8:
        raise ValueError("its header says that it is longer than the file")
    return dict(load_file(path))
