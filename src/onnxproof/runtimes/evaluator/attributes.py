"""The attributes of an operator as a frozen object, for operators that have many."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

Kind = TypeVar("Kind")


def read(kind: type[Kind], attributes: Mapping[str, Any]) -> Kind:
    """The attributes that the dataclass `kind` has a field for; the others do not change the result."""
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in attributes.items() if name in names})
