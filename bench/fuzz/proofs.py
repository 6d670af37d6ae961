"""Damage of stored proofs, for `verify --from`, `explain` and `report`, and of baselines."""

import json
import random
from collections.abc import Callable, Iterable
from typing import Any

_ODD_VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    10**400,
    1.5,
    -0.0,
    float("nan"),
    float("inf"),
    "",
    "text",
    "nan",
    "\x1b[31m",
    [],
    {},
    [[]],
    {"a": 1},
    "a" * 10_000,
    "\ud800",
    2**63,
    1e308,
)
_DEEP = 100_000
Change = Callable[[Any, random.Random], Any]


def _places(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    items: Iterable[tuple[Any, Any]] = ()
    if isinstance(document, dict):
        items = document.items()
    elif isinstance(document, list):
        items = enumerate(document)
    for key, value in items:
        found += _places(value, (*path, key))
    return found


def _holder(document: Any, path: tuple[Any, ...]) -> Any:
    for key in path[:-1]:
        document = document[key]
    return document


def _chosen(
    document: Any, source: random.Random, *, only: type | tuple[type, ...] | None = None
) -> tuple[Any, Any]:
    """A random place: what holds it, and its key there. Places near the root are as likely as those in the many gaps."""
    places = _places(document)
    if only is not None:
        places = [p for p in places if isinstance(_holder(document, p)[p[-1]], only)] or places
    depth = source.choice(sorted({len(place) for place in places}))
    path = source.choice([place for place in places if len(place) == depth])
    return _holder(document, path), path[-1]


def removed(document: Any, source: random.Random) -> Any:
    """A field is gone."""
    holder, key = _chosen(document, source)
    del holder[key]
    return document


def other_type(document: Any, source: random.Random) -> Any:
    """A field holds something else."""
    holder, key = _chosen(document, source)
    holder[key] = source.choice(_ODD_VALUES)
    return document


def odd_number(document: Any, source: random.Random) -> Any:
    """A number is huge, negative, NaN or infinite."""
    holder, key = _chosen(document, source, only=(int, float))
    holder[key] = source.choice(
        [
            10**400,
            -(10**400),
            float("nan"),
            float("inf"),
            float("-inf"),
            0,
            -1,
            1e308,
            1e-320,
            2**64,
            "inf",
            "-inf",
            "nan",
        ]
    )
    return document


def odd_text(document: Any, source: random.Random) -> Any:
    """A text is odd."""
    holder, key = _chosen(document, source, only=str)
    holder[key] = source.choice(
        [
            "",
            "\x1b[2J",
            "\n::error::x",
            "\ud800",
            "a" * 100_000,
            "[bold]",
            "[/x]",
            "</script>",
            "\x00",
        ]
    )
    return document


def emptied(document: Any, source: random.Random) -> Any:
    """A list or an object is empty."""
    holder, key = _chosen(document, source, only=(list, dict))
    holder[key] = type(holder[key])()
    return document


def grown(document: Any, source: random.Random) -> Any:
    """A list has something more in it, of an odd kind or again what it has."""
    holder, key = _chosen(document, source, only=list)
    if isinstance(holder[key], list):
        holder[key] = [*holder[key], source.choice([*_ODD_VALUES, *holder[key]])]
    return document


def key_added(document: Any, source: random.Random) -> Any:
    """A key that nobody knows."""
    holder, key = _chosen(document, source, only=dict)
    (holder[key] if isinstance(holder[key], dict) else document)[
        source.choice(["unknown", "", "__class__", "\x1b[31m", "a" * 5000])
    ] = source.choice(_ODD_VALUES)
    return document


def schema(document: Any, source: random.Random) -> Any:
    """Another schema, or none."""
    document["schema"] = source.choice([None, 0, "0", "99", [], {}, "\x1b[31m", 1, float("nan")])
    return document


def policy(document: Any, source: random.Random) -> Any:
    """Limits that make no sense."""
    fields = sorted(document["policy"])
    document["policy"][source.choice(fields)] = source.choice(
        [0, 0.0, -1, 10**400, float("nan"), "nan", "inf", None, [], ["nan"]]
    )
    return document


def gaps(document: Any, source: random.Random) -> Any:
    """Gaps or sizes of odd kinds."""
    field = source.choice(
        [
            "gaps",
            "sizes",
            "notes",
            "findings",
            "causes",
            "dropped",
            "seconds",
            "passes",
            "hashes",
            "environment",
        ]
    )
    document[field] = source.choice(
        [[], {}, None, [None], [[]], {"a": []}, {"a": {"b": 10**400}}, "text", 0]
    )
    return document


def root(document: Any, source: random.Random) -> Any:
    """Something else than an object."""
    return source.choice(
        [
            [],
            None,
            1,
            "text",
            {},
            [document],
            {"schema": document["schema"]},
            {"schema": document["schema"], "gaps": []},
            10**400,
        ]
    )


CHANGES: dict[str, Change] = {
    f"proof-{change.__name__}".replace("_", "-"): change
    for change in (
        removed,
        other_type,
        odd_number,
        odd_text,
        emptied,
        grown,
        key_added,
        schema,
        policy,
        gaps,
        root,
    )
}
TEXTS = ("proof-truncated", "proof-nested", "proof-not-utf8", "proof-flipped", "proof-key-twice")
KINDS = (*CHANGES, *TEXTS)


BASELINE = "baseline-"
BASELINES = tuple(
    BASELINE + kind.removeprefix("proof-")
    for kind in KINDS
    if kind not in ("proof-schema", "proof-policy", "proof-gaps", "proof-root", "proof-key-twice")
)
"""The same kinds of damage, done to a lock file."""


def damaged(text: str, kind: str, source: random.Random) -> bytes:
    """The bytes of a proof that is damaged in this way."""
    if kind in CHANGES:
        return json.dumps(CHANGES[kind](json.loads(text), source)).encode()
    if kind == "proof-truncated":
        return text[: source.randrange(len(text))].encode()
    if kind == "proof-nested":
        opening, closing = source.choice([("[", "]"), ('{"a":', "}"), ("[", "")])
        deep = opening * _DEEP + "1" + closing * _DEEP
        return source.choice([deep, text.rstrip()[:-1] + f', "environment": {deep}' + "}"]).encode()
    content = bytearray(text.encode())
    if kind == "proof-not-utf8":
        content[source.randrange(len(content))] = 0xFF
    elif kind == "proof-flipped":
        for _ in range(source.choice([1, 3, 20])):
            content[source.randrange(len(content))] ^= 1 << source.randrange(7)
    else:
        return text.rstrip()[:-1].encode() + b', "verdict": "faithful", "verdict": "perhaps"}'
    return bytes(content)
