"""Files that are no ONNX models, told by their first bytes: a .pt, a pointer of Git LFS, another format."""

import zipfile
from contextlib import suppress
from pathlib import Path

_HEAD = 64
"""Bytes of the file that are looked at."""
_FACTORY = "it has no graph: build the module in a factory that loads it, then `onnxproof export file.py:factory -o model.onnx`"
_EXPORT = "export it first: `onnxproof export {name} -o model.onnx`, or give it as the reference"
_MAGIC = (
    (0, b"version https://git-lfs", "a pointer of Git LFS, not the model", "`git lfs pull`"),
    (4, b"TFL3", "a TensorFlow Lite model", "convert it to ONNX first"),
    (4, b"ORTM", "a model in ONNX Runtime's own format", "give the .onnx file that it was made of"),
    (0, b"\x89HDF", "an HDF5 file, as Keras writes it", "convert it to ONNX first"),
    (0, b"\x1f\x8b", "a gzip archive", "unpack it first"),
    (0, b"\x93NUMPY", "a numpy array", "data is given with `--data`"),
    (0, b"\x80", "a pickle, such as old weights of PyTorch", _FACTORY),
    (0, b"<", "a page of HTML or XML", "was it fetched from a page that asks for a login?"),
)


def describe(path: Path) -> tuple[str, str]:
    """What a file that can't be read as ONNX really is, and what to do; two empty strings where that is not known."""
    with suppress(OSError, zipfile.BadZipFile, NotImplementedError):
        if zipfile.is_zipfile(path):
            what, advice = _archive(path)
            return what, advice.format(name=path.name)
        with path.open("rb") as stream:
            head = stream.read(_HEAD)
        for start, magic, what, advice in _MAGIC:
            if head[start:].startswith(magic):
                return what, advice
        if b'{"' in head[:10] and path.suffix == ".safetensors":
            return "weights in safetensors", _FACTORY
    return "", ""


def _archive(path: Path) -> tuple[str, str]:
    """Which of PyTorch's archives it is, from the names of its members."""
    with zipfile.ZipFile(path) as archive:
        members = [name.partition("/")[2] for name in archive.namelist()]
    if any(name.startswith("models/") or name == "archive_format" for name in members):
        return "an exported program of PyTorch (.pt2)", _EXPORT
    if any(name.startswith("code/") for name in members):
        return "a TorchScript program", _EXPORT
    if "data.pkl" in members:
        return "weights or a pickled module of PyTorch", _FACTORY
    if any(name.endswith(".npy") for name in members) or path.suffix == ".npz":
        return "numpy arrays", "data is given with `--data`"
    return "a zip archive", "unpack it first"
