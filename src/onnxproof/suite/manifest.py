"""A manifest: TOML that is read, checked key by key, and given line numbers for whoever has to mend it."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onnxproof.errors import UsageError
from onnxproof.suite import keys
from onnxproof.suite.checking import Mistake, mistakes, unknown
from onnxproof.system.user_files import require_regular

_MOST_BYTES = 64 << 20
_SHOWN = 5
"""Mistakes that one message lists."""
_HEADER = re.compile(r"\s*(\[\[?)\s*([\w\"'. -]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"\s*([\w-]+|\"[^\"]*\"|'[^']*')\s*[.=]")
FIELD = re.compile(r"\{(\w+)\}")
"""A placeholder."""
WILD = re.compile(r"[*?]|\[[^\]]+\]")
WILD_KEYS = ("file", "subject")
"""Keys of a model in which a wildcard stands for files, the first of them that has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One `[[model]]`, with the defaults of `[suite]`, before it is expanded."""

    values: Mapping[str, Any]
    axes: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Keys that are no known ones: the tables of options."""
    place: int = 0
    """Which `[[model]]` of the file it is."""
    line: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A suite as it is written down."""

    path: Path
    name: str
    entries: tuple[Entry, ...]
    lines: "Lines"
    preload: tuple[str, ...] = ()
    transport: str = "path"

    @property
    def folder(self) -> Path:
        """What the paths in it are relative to."""
        return self.path.parent


def read(path: str | Path) -> Manifest:
    """The manifest of a file; every mistake in it is told with its line.

    Raises:
        UsageError: `bad-manifest`, `no-such-file` and the like.
    """
    path = Path(path).absolute()
    require_regular(path, UsageError, most=_MOST_BYTES, what="suite")
    text = ""
    try:
        text = path.read_text(encoding="utf-8")
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as why:
        raise UsageError(
            "bad-manifest",
            f"this is no TOML: {why}",
            where=f"{path}{_line_of(str(why), text)}",
            help="see https://toml.io, or docs/guides/suite.md for an example",
        ) from why
    except RecursionError:
        raise UsageError("bad-manifest", "this TOML is nested too deep", where=str(path)) from None
    lines = Lines(text)
    raise_first(path, lines, _document_mistakes(document))
    suite = document.get("suite", {})
    return Manifest(
        path=path,
        name=suite.get("name", path.stem),
        lines=lines,
        entries=tuple(_entry(place, model, suite, lines) for place, model in _models(document)),
        preload=tuple(suite.get("preload", ())),
        transport=suite.get("transport", "path"),
    )


def _models(document: Mapping[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    yield from enumerate(document["model"])


def _entry(place: int, model: Mapping[str, Any], suite: Mapping[str, Any], lines: "Lines") -> Entry:
    """A model with what it does not say itself taken from the suite."""
    defaults = {name: value for name, value in suite.items() if name in keys.SHARED}
    known = {name: value for name, value in model.items() if name in _OF_MODEL}
    values = {**defaults, **known}
    for name in ("policy", "set"):
        if name in values:
            values[name] = {**defaults.get(name, {}), **known.get(name, {})}
    if "tags" in values:
        both = [*defaults.get("tags", ()), *known.get("tags", ())]
        values["tags"] = list(dict.fromkeys(both))
    axes = {name: _several(value) for name, value in model.items() if name not in _OF_MODEL}
    line = lines.of(("model", place), ())
    return Entry(values=values, axes=axes, place=place, line=line)


_OF_MODEL = {**keys.OWN, **keys.SHARED}


def _several(value: Any) -> tuple[Any, ...]:
    if isinstance(value, list):
        return tuple(value)
    return (value,)


Where = tuple[str, int]
"""A table of the file: its name and which one of that name it is."""


def _document_mistakes(document: Mapping[str, Any]) -> Iterator[tuple[Where, Mistake]]:
    for name in document:
        if name not in ("suite", "model"):
            yield ("", 0), unknown(name, ["suite", "model"], ())
    suite = document.get("suite", {})
    if not isinstance(suite, dict):
        yield ("suite", 0), Mistake(path=("suite",), what="`suite` should be a table: [suite]")
        return
    schema = {"type": "object", "properties": {**keys.SUITE, **keys.SHARED}}
    for mistake in mistakes(suite, {**schema, "additionalProperties": False}):
        yield ("suite", 0), mistake
    models = document.get("model")
    if not isinstance(models, list) or not models:
        help = 'begin one with [[model]], then name = "...", subject = "...", file = "..."'
        yield ("", 0), Mistake(path=("model",), what="there is no [[model]] in it", help=help)
        return
    for place, model in enumerate(models):
        for mistake in _model_mistakes(model, suite):
            yield ("model", place), mistake


def _model_mistakes(model: Any, suite: Mapping[str, Any]) -> Iterator[Mistake]:
    if not isinstance(model, dict):
        yield Mistake(path=(), what="a model is a table: [[model]]")
        return
    axes = {name: value for name, value in model.items() if name not in _OF_MODEL}
    used = set(FIELD.findall(str(list(model.values())) + str(suite)))
    for name, value in axes.items():
        if name not in used:
            note = f", and nothing says {{{name}}}"
            yield unknown(name, list(_OF_MODEL), (), note)
        elif not _is_axis(value):
            what = f"`{name}` should be a list of texts or numbers, one for each model"
            yield Mistake(path=(name,), what=what)
    for name, value in model.items():
        if name in _OF_MODEL and not _is_placeholder(value, axes):
            yield from mistakes(value, _OF_MODEL[name], (name,))
    yield from _lacking(model, suite)
    yield from _of_no_use(model, suite)
    yield from _placeholder_mistakes(model, axes)


def filled_mistakes(values: Mapping[str, Any]) -> Iterator[Mistake]:
    """What is wrong with a model whose placeholders are filled in: an option of the wrong kind."""
    for name, value in values.items():
        yield from mistakes(value, _OF_MODEL[name], (name,))
    yield from _lacking({"name": "", **values}, {})


def _is_axis(value: Any) -> bool:
    values = _several(value)
    return bool(values) and all(isinstance(item, str | int | float) for item in values)


def _is_placeholder(value: Any, axes: Mapping[str, Any]) -> bool:
    """Whether a value is an axis and nothing else: then it has the type of the axis."""
    return isinstance(value, str) and value[:1] == "{" and value[1:-1] in axes


def _lacking(model: Mapping[str, Any], suite: Mapping[str, Any]) -> Iterator[Mistake]:
    does = model.get("do", suite.get("do", "verify"))
    needed = ["subject"] if _wildcards(model) else ["name", "subject"]
    if does in ("verify", "diff"):
        needed.append("file")
    for name in needed:
        if name not in model:
            yield Mistake(path=(), what=f"this model has no `{name}`", help=f'add {name} = "..."')
    if "expect" not in model and ("reason" in model or "expires" in model):
        yield Mistake(path=("reason",), what="`reason` and `expires` belong to an `expect`")


def _placeholder_mistakes(model: Mapping[str, Any], axes: Mapping[str, Any]) -> Iterator[Mistake]:
    """Placeholders that nobody fills, and wildcards that nobody can pair."""
    wild = _wildcards(model)
    if len(wild) > 1:
        what = "`subject` and `file` both have a wildcard, and nothing says which belong together"
        help = "leave it in one, and say {match} or {stem} in the other"
        yield Mistake(path=("subject",), what=what, help=help)
    known = {*axes, "name", *(("stem", "match") if wild else ())}
    for name in ("name", *WILD_KEYS):
        for left in sorted(set(FIELD.findall(str(model.get(name, "")))) - known):
            what = f"nothing says what {{{left}}} in `{name}` is"
            yield Mistake(path=(name,), what=what, help=f'a list does: {left} = ["...", "..."]')


def _wildcards(model: Mapping[str, Any]) -> list[str]:
    return [name for name in WILD_KEYS if WILD.search(str(model.get(name, "")))]


def _of_no_use(model: Mapping[str, Any], suite: Mapping[str, Any]) -> Iterator[Mistake]:
    """Keys of a model that what it does never reads; those of [suite] are for the others."""
    does = model.get("do", suite.get("do", "verify"))
    for name in model:
        users = keys.USERS.get(name, keys.DOINGS)
        if does in keys.DOINGS and does not in users:
            what = f"`{name}` has no meaning for `{does}`"
            yield Mistake(path=(name,), what=what, help=f"it belongs to {' and '.join(users)}")


def raise_first(path: Path, lines: "Lines", wrong: Iterator[tuple[Where, Mistake]]) -> None:
    """One error with the first mistake in front, and the others as notes."""
    found = [(lines.of(where, mistake.path), mistake) for where, mistake in wrong]
    if not found:
        return
    found.sort(key=lambda pair: pair[0])
    line, first = found[0]
    notes = [f"line {other}: {mistake.what}" for other, mistake in found[1:_SHOWN]]
    if len(found) > _SHOWN:
        notes.append(f"and {len(found) - _SHOWN} more")
    raise UsageError(
        "bad-manifest", first.what, where=f"{path}:{line}", notes=notes, help=first.help
    )


class Lines:
    """Where in the text a table begins, and where in it a key stands; tomllib keeps no positions."""

    def __init__(self, text: str) -> None:
        self._tables: dict[Where, int] = {("", 0): 1}
        self._keys: dict[tuple[Where, str], int] = {}
        counts: dict[str, int] = {}
        current: Where = ("", 0)
        for number, line in enumerate(text.splitlines(), start=1):
            header = _HEADER.match(line)
            if header is not None:
                current = self._enter(header[1] == "[[", header[2], counts, number)
                continue
            key = _KEY.match(line)
            if key is not None:
                self._keys.setdefault((current, key[1].strip("\"'")), number)

    def _enter(self, repeated: bool, words: str, counts: dict[str, int], number: int) -> Where:
        outer, _, inner = words.replace(" ", "").partition(".")
        if repeated and not inner:
            counts[outer] = counts.get(outer, -1) + 1
        where = (outer, counts.get(outer, 0))
        if inner:
            self._keys.setdefault((where, inner.partition(".")[0]), number)
        self._tables.setdefault(where, number)
        return where

    def of(self, where: Where, path: tuple[str, ...]) -> int:
        """The line of a key, or of the table that it belongs to."""
        begin = self._tables.get(where, 1)
        for name in reversed(path):
            if (where, name) in self._keys:
                return self._keys[where, name]
        return self._tables.get((path[0], 0), begin) if path and not where[0] else begin


def _line_of(message: str, text: str) -> str:
    match = re.search(r"at line (\d+)", message)
    if match is None:
        return f":{len(text.splitlines())}" if "end of document" in message else ""
    return f":{match[1]}"
