"""The published JSON Schema of a proof, made from the dataclasses themselves: `python -m onnxproof.report.schema > docs/proof.schema.json`."""

import json
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from onnxproof.report.writers.json import LEFT_OUT, hints
from onnxproof.results.proof import SCHEMA, Proof

_PLAIN: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    bool: {"type": "boolean"},
    NoneType: {"type": "null"},
    Any: {},
    float: {"$ref": "#/$defs/number"},
}
_NUMBER = {
    "description": "JSON has no infinities and no NaN, so these three are strings.",
    "anyOf": [{"type": "number"}, {"enum": ["inf", "-inf", "nan"]}],
}


def make() -> dict[str, Any]:
    """The whole schema: a proof, or the small document of a run that ended before anything was measured."""
    document = document_of(Proof, "onnxproof proof", SCHEMA)
    defs = document["$defs"]
    defs["Failure"] = {
        "description": "A run that ended before anything was measured.",
        "type": "object",
        "additionalProperties": False,
        "required": ["schema", "verdict", "error"],
        "properties": {
            "schema": defs["Proof"]["properties"]["schema"],
            "verdict": {"const": "error"},
            "error": {"type": "string"},
        },
    }
    del document["$ref"]
    alternatives = [{"$ref": "#/$defs/Proof"}, {"$ref": "#/$defs/Failure"}]
    return document | {"oneOf": alternatives, "$defs": dict(sorted(defs.items()))}


def document_of(kind: type, title: str, schema: str) -> dict[str, Any]:
    """The schema of a JSON document that holds one dataclass, with the version of its form in front."""
    defs: dict[str, Any] = {"number": _NUMBER}
    reference = _object(kind, defs)
    body = defs[kind.__name__]
    version = {"const": schema, "description": "The version of this form."}
    body["properties"] = {"schema": version} | body["properties"]
    body["required"] = ["schema", *body["required"]]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **reference,
        "$defs": dict(sorted(defs.items())),
    }


def text() -> str:
    """The file as it is published."""
    return json.dumps(make(), indent=2) + "\n"


def _object(kind: type, defs: dict[str, Any]) -> dict[str, Any]:
    """A reference to the definition of a dataclass, which is made on first sight."""
    name = kind.__name__
    if name not in defs:
        defs[name] = {}
        names = [field.name for field in fields(kind) if field.name not in LEFT_OUT]
        defs[name] = {
            "description": _first_line(kind),
            "type": "object",
            "additionalProperties": False,
            "required": names,
            "properties": {field: _schema(hints(kind)[field], defs) for field in names},
        }
    return {"$ref": f"#/$defs/{name}"}


def _schema(kind: Any, defs: dict[str, Any]) -> dict[str, Any]:
    if kind in _PLAIN:
        return _PLAIN[kind]
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (UnionType, Union):
        return {"anyOf": [_schema(item, defs) for item in inner]}
    if origin is tuple:
        return _array(inner, defs)
    if origin is not None and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _schema(inner[1], defs)}
    if is_dataclass(kind) and isinstance(kind, type):
        return _object(kind, defs)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _enum(kind, defs)
    raise TypeError(f"no schema for {kind}")


def _array(inner: tuple[Any, ...], defs: dict[str, Any]) -> dict[str, Any]:
    """A tuple: of any length, or with a type for each place."""
    if inner[1:] == (...,):
        return {"type": "array", "items": _schema(inner[0], defs)}
    return {
        "type": "array",
        "prefixItems": [_schema(item, defs) for item in inner],
        "minItems": len(inner),
        "maxItems": len(inner),
        "items": False,
    }


def _enum(kind: type[Enum], defs: dict[str, Any]) -> dict[str, Any]:
    definition = {"description": _first_line(kind), "enum": [item.value for item in kind]}
    defs.setdefault(kind.__name__, definition)
    return {"$ref": f"#/$defs/{kind.__name__}"}


def _first_line(kind: type) -> str:
    return (kind.__doc__ or "").strip().partition("\n")[0]


if __name__ == "__main__":
    sys.stdout.write(text())
