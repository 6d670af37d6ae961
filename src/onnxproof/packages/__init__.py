"""Folders of several ONNX files that together are one model: how they are found, proven file by file and as a whole, and written."""

from pathlib import Path
from typing import Protocol

from onnxproof.errors import ModelError
from onnxproof.packages.package import Package
from onnxproof.registry import Registry


class Layout(Protocol):
    """What the file of a layout defines."""

    LOOKS_FOR: tuple[str, ...]
    """The files by which it is known, for the message where none of them is there."""

    def read(self, folder: Path, scratch: Path) -> Package | None:
        """The package in this folder; branches of a merged file are written to `scratch`."""


LAYOUTS: Registry[Layout] = Registry(
    "layout", "onnxproof.packages.layouts", Layout, group="onnxproof.layouts"
)


def open_package(folder: Path, scratch: Path) -> Package:
    """The package in a folder, by the first layout that knows it.

    Raises:
        ModelError: `not-a-package`, with what was looked for.
    """
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
