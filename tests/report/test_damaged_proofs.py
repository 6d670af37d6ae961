"""A stored proof with anything in the place of anything: read and judged, or refused in words."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.made_proofs import full

from onnxproof.cli import main
from onnxproof.errors import PolicyError, UsageError
from onnxproof.options import Policy
from onnxproof.report.writers import json as json_writer

DOCUMENT = json.loads(json_writer.dumps(full()))
ODD: list[Any] = [
    None,
    True,
    0,
    -1,
    1,
    2**63,
    10**30,
    -(10**400),
    0.0,
    -0.5,
    1e308,
    5e-324,
    "",
    "inf",
    "-inf",
    "nan",
    "x" * 5000,
    "\x1b[31m\n",
    [],
    {},
    [[]],
    [None],
    {"a": []},
    [[[[[[[[]]]]]]]],
]


def places(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value in a document."""
    yield way
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, item in inner:
        yield from places(item, (*way, key))


PLACES = [way for way in places(DOCUMENT) if way]


def damaged(way: tuple[Any, ...], value: Any) -> Any:
    """The document with another value in one place."""
    made = copy.deepcopy(DOCUMENT)
    inner = made
    for key in way[:-1]:
        inner = inner[key]
    inner[way[-1]] = value
    return made


def test_a_comparison_of_no_backends_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "proof.json"
    path.write_text(json.dumps(damaged(("cross", "standings"), [])))
    assert main(["verify", "--from", str(path)]) in (0, 1, 3)


@settings(
    max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.sampled_from(PLACES), st.sampled_from(ODD))
def test_any_value_in_any_place_is_judged_or_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], way: tuple[Any, ...], value: Any
) -> None:
    path = tmp_path / "proof.json"
    path.write_text(json.dumps(damaged(way, value)))
    code = main(["verify", "--from", str(path)])
    said = capsys.readouterr()
    assert code in (0, 1, 2, 3)
    assert "error[internal]" not in said.err
    assert "Traceback" not in said.err
    assert code != 2 or "error[" in said.err + said.out


@pytest.mark.parametrize(
    "text", ["[" * 200_000 + "]" * 200_000, '{"schema": ' * 100_000 + "1" + "}" * 100_000]
)
def test_deep_nesting_is_told(text: str, tmp_path: Path) -> None:
    (tmp_path / "deep.json").write_text(text)
    with pytest.raises(
        UsageError, match=r"error\[nested-too-deep\]: this JSON is nested deeper than any proof"
    ):
        json_writer.read(tmp_path / "deep.json")


@pytest.mark.parametrize("where", ["budget_s", "seed"])
def test_a_number_beyond_every_float_is_told(where: str) -> None:
    with pytest.raises(
        UsageError,
        match=r"error\[number-too-large\]: this proof holds a number that no float can hold",
    ):
        json_writer.from_dict(DOCUMENT | {where: 10**400})


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("sizes", [], r"`proof.sizes` is \[\] and should be an object"),
        ("gaps", {}, r"`proof.gaps` is {} and should be a list"),
        ("backends", "ort", r"`proof.backends` is 'ort' and should be a list"),
    ],
)
def test_another_container_is_told(field: str, value: Any, words: str) -> None:
    with pytest.raises(UsageError, match=r"error\[not-a-proof\]: this proof is damaged: " + words):
        json_writer.from_dict(DOCUMENT | {field: value})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("noise_limit", 0),
        ("worst_limit", -1.0),
        ("bias_limit", "nan"),
        ("runtime_limit", 0.0),
        ("atol", -1e-9),
        ("rtol", "nan"),
        ("drift_db", "nan"),
    ],
)
def test_a_policy_that_nothing_can_keep_is_told(field: str, value: Any) -> None:
    with pytest.raises(
        PolicyError,
        match=rf"error\[bad-threshold\]: this proof's policy makes no sense: `{field}` is",
    ):
        json_writer.from_dict(DOCUMENT | {"policy": DOCUMENT["policy"] | {field: value}})
    with pytest.raises(PolicyError, match=rf"error\[bad-threshold\]: `{field}` is"):
        Policy(**{field: float(value)})
