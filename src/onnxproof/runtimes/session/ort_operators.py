"""Operators that ONNX Runtime does not bring itself: the user's libraries, and onnxruntime-extensions."""

import importlib.util
import mmap
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import onnxruntime

from onnxproof.errors import UsageError
from onnxproof.runtimes import current
from onnxproof.system.user_files import require_regular

_EXTENSIONS_DOMAIN = b"ai.onnx.contrib"
"""The domain of onnxruntime-extensions: tokenizers, decoders of images and sounds."""


def register(options: onnxruntime.SessionOptions, model: Path | bytes) -> None:
    """The user's own libraries of operators, and onnxruntime-extensions for a file that uses its domain."""
    for library in (name for name in current().ops if not name.endswith(".py")):
        require_regular(Path(library), UsageError, what="library of operators")
        try:
            options.register_custom_ops_library(str(Path(library).resolve()))
        except Exception as why:  # onnxruntime raises its own classes
            raise UsageError(
                "ops-refused",
                f"onnxruntime can't take operators from `{library}`: {' '.join(str(why).split())[:300]}",
                help="a library exports `RegisterCustomOps`; Python functions go into a file with `OPERATORS`",
            ) from why
    if not mentions(model, _EXTENSIONS_DOMAIN):
        return
    given = {Path(library).resolve() for library in current().ops}
    for library in _extensions_library():
        if Path(library).resolve() not in given:  # a library can't be registered twice
            options.register_custom_ops_library(library)


def _extensions_library() -> list[str]:
    """The library of onnxruntime-extensions; nothing where it is not installed: then the refusal of the file names the operator.

    It is looked for and not asked for: importing the package imports transformers where that is installed, which takes seconds.
    """
    found = importlib.util.find_spec("onnxruntime_extensions")
    folders = (found.submodule_search_locations if found is not None else None) or ()
    files = [
        Path(folder, f"_extensions_pydll{end}") for folder in folders for end in EXTENSION_SUFFIXES
    ]
    return [str(file) for file in files if file.is_file()]


def mentions(model: Path | bytes, words: bytes) -> bool:
    """Whether these bytes are in the file: the name of an operator as a node's type, or a domain."""
    if isinstance(model, bytes):
        return words in model
    with model.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(words) >= 0
