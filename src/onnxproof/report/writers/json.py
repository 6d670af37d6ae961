"""A proof as JSON and back: everything but the witness's tensors, one gap a line so that two proofs can be compared by eye.

JSON has no infinities and no NaN; they are written as the strings "inf", "-inf" and "nan".
"""

import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from onnxproof.errors import PolicyError, UsageError
from onnxproof.results.proof import SCHEMA, Proof
from onnxproof.system.user_files import DOCUMENT_BYTES, require_regular
from onnxproof.system.writing import write_text

LEFT_OUT = frozenset({"witness", "scene", "located", "recording"})
"""Fields that hold tensors; they stay in memory."""
_NUMBERS = ("inf", "-inf", "nan")
_MOST_SHOWN = 10**18
"""A larger number in a message is called large: writing out one of a million digits would take minutes."""
_LONGEST_SHOWN = 80
"""Characters of a damaged value in a message."""
_MOST_COUNTED = 1 << 63
"""Nothing in a proof is counted beyond 64 bits."""


def write(proof: Proof, path: str | Path) -> None:
    """Write the proof; the file appears whole or not at all."""
    write_text(dumps(proof), path)


def read(path: str | Path) -> Proof:
    """The proof that `write` wrote."""
    path = Path(path)
    require_regular(path, UsageError, most=DOCUMENT_BYTES, what="proof")
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as why:
        raise UsageError(
            "no-such-file",
            f"there is no proof `{path}`",
            where=str(path),
            notes=[str(why.strerror)],
        ) from why
    except RecursionError:
        raise UsageError(
            "nested-too-deep",
            "this JSON is nested deeper than any proof",
            where=str(path),
            help="give a file that `--json` wrote",
        ) from None
    except ValueError as why:
        raise UsageError(
            "not-a-proof",
            "this file is not JSON",
            where=str(path),
            notes=[str(why)],
            help="give a file that `--json` wrote",
        ) from why
    return from_dict(document, where=str(path))


def dumps(proof: Proof) -> str:
    """The text: one line for each item of a list."""
    return layout(to_dict(proof))


def failure(error: str) -> str:
    """The document for a run that ended before anything was measured."""
    return layout({"schema": SCHEMA, "verdict": "error", "error": error})


def to_dict(proof: Proof) -> dict[str, Any]:
    """Plain dicts, lists, strings and numbers, with the schema's version in front."""
    return {"schema": SCHEMA} | {
        field.name: to_plain(getattr(proof, field.name))
        for field in fields(proof)
        if field.name not in LEFT_OUT
    }


def from_dict(document: Any, *, where: str = "") -> Proof:
    """The proof behind `to_dict`; what does not fit is an error that names the field."""
    if not isinstance(document, dict) or "schema" not in document:
        raise UsageError(
            "not-a-proof",
            "this JSON is not a proof: it has no `schema`",
            where=where,
            help="give a file that `--json` wrote",
        )
    if document["schema"] != SCHEMA:
        raise UsageError(
            "other-schema",
            f"this proof has schema {document['schema']}, and this onnxproof reads {SCHEMA}",
            where=where,
            help="verify again, or use the onnxproof that wrote it",
        )
    if "gaps" not in document:
        raise UsageError(
            "nothing-measured",
            "this run ended before anything was measured, so there is nothing to judge",
            where=where,
            notes=str(document.get("error", "")).splitlines()[:1],
        )
    try:
        body = {name: value for name, value in document.items() if name != "schema"}
        proof: Proof = restore(body, Proof, "proof")
    except OverflowError:
        raise UsageError(
            "number-too-large",
            "this proof holds a number that no float can hold",
            where=where,
            help="verify again",
        ) from None
    except PolicyError as why:
        raise PolicyError(
            why.code,
            f"this proof's policy makes no sense: {why.what}",
            where=where,
            help="verify again",
        ) from why
    except (TypeError, ValueError, KeyError) as why:
        raise UsageError(
            "not-a-proof", f"this proof is damaged: {why}", where=where, help="verify again"
        ) from why
    return proof


def layout(document: Mapping[str, Any]) -> str:
    """The text of a document: a line for each field, and one for each item of a list."""
    lines = []
    for name, value in document.items():
        if isinstance(value, list) and value:
            body = ",\n".join(f"    {json.dumps(item, allow_nan=False)}" for item in value)
            lines.append(f"  {json.dumps(name)}: [\n{body}\n  ]")
        else:
            lines.append(f"  {json.dumps(name)}: {json.dumps(value, allow_nan=False)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def to_plain(value: Any) -> Any:
    """Any value of a result as plain dicts, lists, strings and numbers."""
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return _plain_float(value)
    if is_dataclass(value):
        return {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_plain(item) for item in value]
    if hasattr(value, "item"):  # a numpy scalar
        return to_plain(value.item())
    raise TypeError(f"a {type(value).__name__} has no place in a proof")


def _plain_float(value: float) -> float | str:
    if math.isfinite(value):
        return float(value)
    return str(float(value))


@cache
def hints(kind: type) -> dict[str, Any]:
    """The resolved types of a dataclass's fields."""
    return get_type_hints(kind)


def restore(value: Any, kind: Any, where: str) -> Any:
    """The value as the type says: enums, dataclasses, tuples and mappings are made again."""
    origin = get_origin(kind)
    if origin in (UnionType, Union):
        return _restore_union(value, get_args(kind), where)
    if origin is tuple:
        if not isinstance(value, list):
            raise ValueError(f"`{where}` is {_shown(value)} and should be a list")
        return _restore_tuple(value, get_args(kind), where)
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, dict):
            raise ValueError(f"`{where}` is {_shown(value)} and should be an object")
        return {
            key: restore(item, get_args(kind)[1], f"{where}.{key}") for key, item in value.items()
        }
    if kind is Any:
        return value
    return _restore_single(value, kind, where)


def _restore_tuple(items: list[Any], inner: tuple[Any, ...], where: str) -> tuple[Any, ...]:
    kinds = inner
    if inner[1:] == (...,):
        kinds = inner[:1] * len(items)
    return tuple(
        restore(item, kind, f"{where}[{place}]")
        for place, (item, kind) in enumerate(zip(items, kinds, strict=True))
    )


def _restore_union(value: Any, kinds: tuple[Any, ...], where: str) -> Any:
    if value is None and NoneType in kinds:
        return None
    rest = [kind for kind in kinds if kind is not NoneType]
    if len(rest) == 1:
        return restore(value, rest[0], where)
    if any(type(value) is kind for kind in rest):
        return value
    raise ValueError(f"`{where}` is {_shown(value)}")


def _restore_single(value: Any, kind: type, where: str) -> Any:
    if is_dataclass(kind):
        return _restore_record(value, kind, where)
    if issubclass(kind, Enum):
        return kind(value)
    whole = isinstance(value, int) and not isinstance(value, bool)
    if kind is float and (value in _NUMBERS or whole):
        return float(value)
    if type(value) is not kind:
        raise ValueError(f"`{where}` is {_shown(value)} and should be a {kind.__name__}")
    if isinstance(value, int) and abs(value) >= _MOST_COUNTED:
        raise OverflowError
    return value


def _shown(value: Any) -> str:
    """A value in a message: the first words of it, since a damaged file may hold anything of any length."""
    if isinstance(value, int) and abs(value) >= _MOST_SHOWN:
        return "a very large number"
    text = repr(value)
    if len(text) > _LONGEST_SHOWN:
        text = f"{text[:_LONGEST_SHOWN]}..."
    return text


def _restore_record(value: Any, kind: type, where: str) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"`{where}` is {_shown(value)} and should be an object")
    known: dict[str, Field[Any]] = {
        field.name: field for field in fields(kind) if field.name not in LEFT_OUT
    }
    unknown = sorted(value.keys() - known.keys())
    if unknown:
        raise ValueError(f"`{where}` has an unknown field `{unknown[0]}`")
    for name, field in known.items():
        if name not in value and _is_required(field):
            raise ValueError(f"`{where}` lacks `{name}`")
    types = hints(kind)
    values = {name: restore(item, types[name], f"{where}.{name}") for name, item in value.items()}
    return kind(**values)


def _is_required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING
