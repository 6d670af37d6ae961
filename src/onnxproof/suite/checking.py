"""A value against a schema: the few words of JSON Schema that a manifest needs, with messages for people."""

import datetime
import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "array": (list,),
    "object": (dict,),
}
_WORDS = {
    "string": "text in quotes",
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "array": 'a list, such as ["ort"]',
    "object": "a table",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """What is wrong, and with which key: its path below the table."""

    path: tuple[str, ...]
    what: str
    help: str = ""


def mistakes(
    value: Any, schema: Mapping[str, Any], path: tuple[str, ...] = ()
) -> Iterator[Mistake]:
    """Everything in a value that its schema does not allow."""
    if "anyOf" in schema:
        yield from _none_fits(value, schema["anyOf"], path)
    elif "enum" in schema or "const" in schema:
        yield from _not_among(value, schema, path)
    elif schema.get("format") == "date":
        yield from _no_date(value, path)
    elif "type" in schema:
        yield from _typed(value, schema, path)


def unknown(name: str, known: Sequence[str], path: tuple[str, ...], note: str = "") -> Mistake:
    """A key that nobody knows."""
    near = difflib.get_close_matches(name, known, n=1)
    help = f"known are {', '.join(known)}"
    if near:
        help = f"did you mean `{near[0]}`?"
    return Mistake(path=(*path, name), what=f"`{name}` is no key here{note}", help=help)


def _typed(value: Any, schema: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[Mistake]:
    kind: str = schema["type"]
    fits = isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))
    if not fits:
        yield Mistake(path=path, what=f"`{_name(path)}` should be {_WORDS[kind]}")
    elif kind == "array":
        for item in value:
            yield from mistakes(item, schema["items"], path)
    elif kind == "object":
        yield from _keys(value, schema, path)
    elif kind == "string":
        if not value.strip():
            yield Mistake(path=path, what=f"`{_name(path)}` is empty")
    elif kind != "boolean":
        yield from _bounds(value, schema, path)


def _keys(
    value: Mapping[str, Any], schema: Mapping[str, Any], path: tuple[str, ...]
) -> Iterator[Mistake]:
    known = schema.get("properties", {})
    others = schema.get("additionalProperties", True)
    for name, item in value.items():
        if name in known:
            yield from mistakes(item, known[name], (*path, name))
        elif others is False:
            yield unknown(name, list(known), path)
        elif others is not True:
            yield from mistakes(item, others, (*path, name))
    for name in schema.get("required", ()):
        if name not in value:
            yield Mistake(path=path, what=f"`{_name(path)}` lacks `{name}`")


def _bounds(value: float, schema: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[Mistake]:
    least, above = schema.get("minimum"), schema.get("exclusiveMinimum")
    if least is not None and not value >= least:
        yield Mistake(path=path, what=f"`{_name(path)}` should be at least {least}")
    if above is not None and not above < value < float("inf"):
        yield Mistake(path=path, what=f"`{_name(path)}` should be a number above {above}")


def _not_among(value: Any, schema: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[Mistake]:
    allowed = schema.get("enum", [schema.get("const")])
    if (value in allowed and not isinstance(value, int)) or any(value is word for word in allowed):
        return
    near = difflib.get_close_matches(str(value), [str(word) for word in allowed], n=1)
    help = f"it is one of {', '.join(map(str, allowed))}"
    if near:
        help = f"did you mean `{near[0]}`?"
    yield Mistake(path=path, what=f"`{_name(path)}` can't be `{value}`", help=help)


def _no_date(value: Any, path: tuple[str, ...]) -> Iterator[Mistake]:
    if as_date(value) is None:
        yield Mistake(
            path=path,
            what=f"`{_name(path)}` is no date",
            help="write a day, such as 2026-12-31",
        )


def as_date(value: Any) -> datetime.date | None:
    """A day from TOML's own date or from text; None where it is neither."""
    if isinstance(value, datetime.datetime):
        return value.date()
    if isinstance(value, datetime.date):
        return value
    try:
        return datetime.date.fromisoformat(value)
    except (TypeError, ValueError):
        return None


def _none_fits(
    value: Any, schemas: Sequence[Mapping[str, Any]], path: tuple[str, ...]
) -> Iterator[Mistake]:
    """Nothing where one of them fits; otherwise what is wrong with the nearest: a table is held against the table."""
    wrong = [list(mistakes(value, schema, path)) for schema in schemas]
    if all(wrong):
        tables = [schema.get("type") == "object" for schema in schemas]
        place = tables.index(isinstance(value, dict)) if isinstance(value, dict) in tables else 0
        yield from wrong[place]


def _name(path: tuple[str, ...]) -> str:
    return ".".join(path)
