"""The page of the Python API, made from signatures, docstrings and the table of arguments."""

import ast
import dataclasses
import enum
import inspect
import itertools
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType
from typing import Any

import onnxproof
from onnxproof.report.arguments import arguments_of

_VERBS = ("verify", "export", "diff", "explain", "mend", "quantize", "replay", "inspect")


def make() -> str:
    """The page's text."""
    classes = [name for name in onnxproof.__all__ if name not in _VERBS]
    parts = [
        "# Python",
        "This page is made from the code by `make reference`. `import onnxproof` loads neither torch nor onnx; each name is loaded when it is first used.",
        "Functions: " + ", ".join(f"[`{name}`](#{name})" for name in _VERBS) + ".",
        "Classes: " + ", ".join(f"[`{name}`](#{name.lower()})" for name in classes) + ".",
        "`onnxproof.__version__` is the version that is installed.",
    ]
    for name in _VERBS:
        parts += [f"## {name}", *_function(getattr(onnxproof, name))]
    for name in classes:
        parts += [f"## {name}", *_class(getattr(onnxproof, name))]
    return "\n\n".join(parts) + "\n"


def _function(function: Callable[..., Any]) -> Iterator[str]:
    """What it does, its arguments with examples, and how it is called."""
    text = inspect.getdoc(function) or ""
    about, _, rest = text.partition("\n\nArgs:")
    yield about.partition("\n>>> ")[0].strip()
    yield _table(
        ("argument", "meaning", "example"),
        [
            (f"`{name}`", argument.meaning, f"`{argument.example}`")
            for name, argument in arguments_of(function)
        ],
    )
    example = _example(rest) or _example(text)
    if example:
        yield f"```text\n{example}\n```"


def _example(text: str) -> str:
    """The lines of a doctest, without its directives."""
    lines = text[text.find(">>> ") :].splitlines() if ">>> " in text else []
    return "\n".join(re.sub(r"\s*# doctest:.*", "", line) for line in lines)


def _class(kind: Any) -> Iterator[str]:
    yield _paragraph(kind.__doc__)
    if issubclass(kind, enum.Enum):
        yield "Values: " + ", ".join(f"`{member.value}`" for member in kind) + "."
        return
    if dataclasses.is_dataclass(kind):
        notes = _field_notes(kind)
        rows = [
            (f"`{item.name}`", f"`{_kind(item.type)}`", notes.get(item.name, ""))
            for item in dataclasses.fields(kind)
        ]
        yield _table(("field", "type", "meaning"), rows)
    methods = [
        _method(name, value) for name, value in vars(kind).items() if _is_public(name, value)
    ]
    if methods:
        yield _table(("method", "what it does"), methods)


def _is_public(name: str, value: Any) -> bool:
    return not name.startswith("_") and isinstance(value, FunctionType | property | classmethod)


def _method(name: str, value: Any) -> tuple[str, str]:
    if isinstance(value, property):
        return f"`{name}`", _paragraph(value.__doc__)
    function = value.__func__ if isinstance(value, classmethod) else value
    parameters = list(inspect.signature(function).parameters)[1:]
    return f"`{name}({', '.join(parameters)})`", _paragraph(function.__doc__)


def _paragraph(text: str | None) -> str:
    """The first paragraph of a docstring, on one line."""
    return " ".join(inspect.cleandoc(text or "").partition("\n\n")[0].split())


def _kind(annotation: Any) -> str:
    """A type as it is written in the source, or by its own name."""
    if isinstance(annotation, str):
        return annotation
    text = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    if "[" in str(annotation) or "|" in str(annotation):
        text = str(annotation)
    return re.sub(r"\b(?:[a-z_]\w*\.)+(?=\w)", "", text)


def _field_notes(kind: Any) -> dict[str, str]:
    """The strings below the fields of a dataclass, read from its source."""
    notes: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if isinstance(base, type) and dataclasses.is_dataclass(base):
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
            notes |= _strings_below(tree)
    return notes


def _strings_below(tree: ast.AST) -> dict[str, str]:
    notes: dict[str, str] = {}
    body = getattr(tree, "body", [])
    for item, below in itertools.pairwise(body):
        if not isinstance(item, ast.AnnAssign) or not isinstance(below, ast.Expr):
            continue
        text = below.value
        if isinstance(text, ast.Constant) and isinstance(text.value, str):
            notes[ast.unparse(item.target)] = " ".join(text.value.split())
    return notes


def _table(titles: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [titles, tuple("---" for _ in titles), *rows]
    return "\n".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines
    )
