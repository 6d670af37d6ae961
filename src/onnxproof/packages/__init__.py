"""Folders of several ONNX files that together are one model: how they are found, proven file by file and as a whole, and written."""

from pathlib import Path
from typing import Protocol

from onnxproof.errors import ModelError
from onnxproof.onnxmodel import onnx_file
from onnxproof.packages.cache_names import cache_places
from onnxproof.packages.package import Component, Package, Role
from onnxproof.registry import Registry

_ROLES = {"encoder_model.onnx": Role.ENCODER, "decoder_model.onnx": Role.FIRST}
"""Files whose name says that they are a part; one that takes a cache is known by that."""


class Layout(Protocol):
    """What the file of a layout defines."""

    LOOKS_FOR: tuple[str, ...]
    """The files by which it is known, for the message where none of them is there."""

    def read(self, folder: Path, scratch: Path) -> Package | None:
        """The package in this folder; branches of a merged file are written to `scratch`."""


LAYOUTS: Registry[Layout] = Registry(
    "layout", "onnxproof.packages.layouts", Layout, group="onnxproof.layouts"
)


def is_component(model: object, path: Path) -> bool:
    """Whether a file is one part of a Hugging Face model in a folder: a decoder with its cache, an encoder alone."""
    saved = isinstance(model, str | Path) and Path(model).is_dir()
    if not saved or not path.is_file():
        return False
    return path.name in _ROLES or takes_cache(path)


def takes_cache(path: Path) -> bool:
    """Whether a file has a cache among its inputs."""
    return bool(cache_places(port.name for port in onnx_file.read(path).inputs))


def open_package(folder: Path, scratch: Path) -> Package:
    """The package in a folder, by the first layout that knows it; of a file, that file alone.

    Raises:
        ModelError: `not-a-package`, with what was looked for.
    """
    if folder.is_file():
        role = _ROLES.get(folder.name, Role.STEP)
        part = Component(file=folder.name, role=role, path=folder)
        return Package(folder=folder.parent, layout="file", components=(part,))
    layouts = LAYOUTS.load_all()
    for layout in layouts.values():
        package = layout.read(folder, scratch)
        if package is not None:
            return package
    sought = [
        f"as {name} lays them out: {', '.join(layout.LOOKS_FOR)}"
        for name, layout in layouts.items()
    ]
    present = sorted(path.name for path in folder.glob("*.onnx"))
    have = f"it has {', '.join(present)}" if present else "it has no .onnx file"
    raise ModelError(
        "not-a-package",
        f"`{folder}` is no folder of ONNX files that onnxproof knows",
        where=str(folder),
        notes=[have, *sought],
        help="give the folder that holds these files (Optimum for Transformers.js has them in `onnx/`), or one .onnx file",
    )
