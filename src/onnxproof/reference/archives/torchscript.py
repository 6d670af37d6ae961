"""A TorchScript archive: its code runs in TorchScript's interpreter, so what that can reach is read before it is loaded.

Its pickles are read by torch's C++ reader, which makes tensors, containers and the archive's own classes, and imports
nothing. But loading already runs a class's `__setstate__`, and `aten::from_file` and `aten::save` write files. So the
source is searched for operators that do more than compute, and the loaded graphs are asked again.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from onnxproof.errors import SubjectError
from onnxproof.reference.archives._fields import TOUCH_FILES
from onnxproof.system import temporary
from onnxproof.system.zip_archive import Archive, write

_MEMBERS = re.compile(
    r"(data|constants)\.pkl|(data|constants)/[0-9]{1,9}|code/[\w./+\-]+\.py(\.debug_pkl)?|version|byteorder|\.data/[\w]+|\.format_version"
    r"|\.storage_alignment"
)
_LEFT_OUT = re.compile(
    r"extra/.*|traced_inputs\.pkl|traced_inputs/.*|bytecode\.pkl|bytecode/.*|mobile_debug_handles\.pkl"
)
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_NAMESPACES = frozenset(
    {
        "aten",
        "prim",
        "prims",
        "quantized",
        "_quantized",
        "sparse",
        "mkldnn",
        "mkldnn_prepacked",
        "prepacked",
        "profiler",
        "torchvision",
        "torchaudio",
        "onnx",
        "quantized_decomposed",
        "mkl",
        "onednn",
        "rngprims",
        "inference",
    }
)
_CLASSES = frozenset({"quantized", "rnn", "profiler"})
"""Namespaces of native classes that an archive may hold: packed weights. Others open files and sockets."""
_OPERATOR = re.compile(r"(?<![\w.])ops\.(\w+)\.(\w+)")
_MODULE = re.compile(r"(?<![\w.])(torch|ops)\b(?!\s*:)(?!\.\w+)")
_BUILTIN = re.compile(r"(?<![\w.])torch\.(\w+)")
_CLASS = re.compile(r"torch\.classes\.(\w+)")
_CALLS_AWAY = re.compile(r"(?<![\w.])rpc_\w+|(?<![\w.])remote\b\s*\(")
_HELP = "a script that you trust can be loaded by a factory: `file.py:factory`"


def plain_script(path: Path) -> IO[bytes]:
    """A temporary archive for `torch.jit.load`, with the members that TorchScript reads and nothing else.

    Raises:
        SubjectError: `not-torchscript`, `archive-refused`, `archive-too-large` or `operator-refused`.
    """
    with Archive(path, "bad-torchscript") as archive:
        names = archive.names
        if not any(name.startswith("code/") for name in names):
            raise no_code(path)
        for name in names:
            if not _MEMBERS.fullmatch(name) and not _LEFT_OUT.fullmatch(name):
                raise archive.refused(f"its member `{name}` is none of TorchScript's", help=_HELP)
            if name.endswith(".py"):
                _check_source(archive, name)
            elif name.endswith(".pkl") and not _LEFT_OUT.fullmatch(name):
                _check_classes(archive, name, archive.read(name).decode("latin-1"))
        plain_archive = temporary.open_unnamed(".pt")
        copied = {name: name for name in names if _MEMBERS.fullmatch(name)}
        write(plain_archive, {}, copied, archive)
        return plain_archive


def no_code(path: Path) -> SubjectError:
    """The error for an archive, or another file, with pickles alone."""
    return SubjectError(
        "not-torchscript",
        f"`{path.name}` holds no code, only pickled weights or a pickled module",
        where=str(path),
        notes=["onnxproof reads no pickle: it could run anything"],
        help="write a factory that builds the module and loads the weights with weights_only=True: `file.py:factory`",
    )


def check_operators(module: Any, path: Path) -> None:
    """Ask the compiled graphs of a loaded script for their operators: what the source calls by another name shows here."""
    for part in module.modules():
        for method in getattr(getattr(part, "_c", None), "_get_methods", list)():
            for kind in _kinds(method.graph):
                namespace, _, name = kind.partition("::")
                if not _computes(namespace, name):
                    raise _refused(path, kind)


def _kinds(graph: Any) -> Iterator[str]:
    """The kinds of all nodes, and of those in their blocks."""
    for node in graph.nodes():
        yield node.kind()
        for block in node.blocks():
            yield from _kinds(block)


def _computes(namespace: str, name: str) -> bool:
    return (
        namespace in _NAMESPACES
        and (namespace == "prim" or not TOUCH_FILES.fullmatch(name))
        and not name.startswith("rpc_")
    )


def _check_source(archive: Archive, name: str) -> None:
    text = archive.read(name).decode("utf-8", errors="replace")
    code = _STRING.sub('""', text)
    if '"""' in text or "'" in code or "#" in code:
        raise archive.refused(
            f"its source `{name}` has quotes or comments that TorchScript does not write",
            help=_HELP,
        )
    alias = _MODULE.search(code)
    if alias:
        raise archive.refused(
            f"its source `{name}` uses `{alias[1]}` without an operator's name",
            code="operator-refused",
            help=_HELP,
        )
    away = _CALLS_AWAY.search(code)
    if away:
        raise _refused(archive.path, away[0])
    for namespace, operator in _OPERATOR.findall(code):
        if not _computes(namespace, operator):
            raise _refused(archive.path, f"{namespace}::{operator}")
    for operator in _BUILTIN.findall(code):
        if TOUCH_FILES.fullmatch(operator):
            raise _refused(archive.path, f"aten::{operator}")
    _check_classes(archive, name, code)


def _check_classes(archive: Archive, name: str, text: str) -> None:
    for namespace in _CLASS.findall(text):
        if namespace not in _CLASSES:
            raise archive.refused(
                f"its member `{name}` holds a native class of `{namespace}`",
                "such classes open files and sockets",
                code="code-refused",
                help=_HELP,
            )


def _refused(path: Path, operator: str) -> SubjectError:
    return SubjectError(
        "operator-refused",
        f"`{path.name}` is refused: it calls `{operator}`, which is not known to compute alone",
        where=str(path),
        notes=[
            "an operator that opens files, prints or calls out could do so while the file is examined"
        ],
        help=_HELP,
    )
