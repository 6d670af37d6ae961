"""A proof goes to JSON and comes back the same, and every form of it fits the published schema."""

import json
import math
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.made_proofs import full

from onnxproof.errors import UsageError
from onnxproof.report import schema
from onnxproof.report.writers import json as json_writer
from onnxproof.results import Verdict
from onnxproof.results.proof import SCHEMA, Proof

PUBLISHED = Path(__file__).parents[2] / "docs" / "proof.schema.json"
VALIDATOR = jsonschema.Draft202012Validator(json.loads(PUBLISHED.read_text()))


def test_a_full_proof_comes_back_the_same_without_its_tensors(tmp_path: Path) -> None:
    proof = full()
    json_writer.write(proof, tmp_path / "proof.json")
    back = json_writer.read(tmp_path / "proof.json")
    assert back == proof
    assert back.witness is None
    assert [p.name for p in tmp_path.iterdir()] == ["proof.json"]


def test_to_json_of_the_proof_writes_the_same(tmp_path: Path) -> None:
    full().to_json(tmp_path / "a.json")
    assert (tmp_path / "a.json").read_text() == json_writer.dumps(full())


def test_a_full_proof_fits_the_published_schema() -> None:
    VALIDATOR.validate(json.loads(json_writer.dumps(full())))


def test_a_failure_fits_the_published_schema() -> None:
    document = json.loads(json_writer.failure("error[not-onnx]: this file is not an ONNX model"))
    VALIDATOR.validate(document)
    assert document == {
        "schema": SCHEMA,
        "verdict": "error",
        "error": "error[not-onnx]: this file is not an ONNX model",
    }


def test_the_published_schema_is_the_one_of_the_dataclasses() -> None:
    assert PUBLISHED.read_text() == schema.text(), "run `make schema`"


def test_the_schema_itself_is_sound_and_closed() -> None:
    made = schema.make()
    jsonschema.Draft202012Validator.check_schema(made)
    objects = [d for d in made["$defs"].values() if d.get("type") == "object"]
    assert len(objects) > 10
    assert all(d["additionalProperties"] is False for d in objects)


def test_every_field_but_the_tensors_is_written() -> None:
    written = json_writer.to_dict(full())
    assert (
        written.keys()
        == {"schema"} | {field.name for field in fields(Proof)} - json_writer.LEFT_OUT
    )
    assert written["schema"] == SCHEMA


def changed(path: list[Any], value: Any) -> dict[str, Any]:
    document = json.loads(json_writer.dumps(full()))
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return document


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["surprise"], 1),
        (["gaps", 0, "surprise"], 1),
        (["verdict"], "fine"),
        (["gaps", 0, "max_abs"], "large"),
        (["gaps", 0, "worst"], "here"),
        (["signature", "dims", 0, "recorded"], [1]),
        (["schema"], "2"),
        (["seed"], "7"),
        (["policy", "strict"], 1),
    ],
)
def test_what_does_not_fit_is_refused_by_the_schema_and_by_the_reader(
    path: list[Any], value: Any
) -> None:
    document = changed(path, value)
    assert not VALIDATOR.is_valid(document)
    with pytest.raises(UsageError, match=r"error\[(not-a-proof|other-schema)\]"):
        json_writer.from_dict(document)


def test_a_damaged_proof_is_told_by_its_field() -> None:
    with pytest.raises(
        UsageError,
        match=r"this proof is damaged: `proof.gaps\[0\].max_abs` is 'large' and should be a float",
    ):
        json_writer.from_dict(changed(["gaps", 0, "max_abs"], "large"))


@given(value=st.floats(), other=st.floats())
@settings(max_examples=60, deadline=None)
def test_any_float_survives(value: float, other: float) -> None:
    gap = replace(full().gaps[0], noise_ratio=value, sqnr_db=other)
    proof = replace(full(), gaps=(gap,))
    text = json_writer.dumps(proof)
    VALIDATOR.validate(
        json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    )
    back = json_writer.from_dict(json.loads(text)).gaps[0]
    assert back.noise_ratio == value or (math.isnan(back.noise_ratio) and math.isnan(value))
    assert back.sqnr_db is not None
    assert back.sqnr_db == other or (math.isnan(back.sqnr_db) and math.isnan(other))


def test_numpy_numbers_are_written_as_numbers() -> None:
    gap = replace(
        full().gaps[0],
        compared=np.int64(5),
        noise_ratio=np.float64(2.5),
        max_abs=np.float32(0.5),
        worst=(np.int64(1),),
        confirmed=np.bool_(True),
    )
    document = json.loads(json_writer.dumps(replace(full(), gaps=(gap,))))
    VALIDATOR.validate(document)
    assert document["gaps"][0]["compared"] == 5
    assert document["gaps"][0]["confirmed"] is True


def test_a_proof_that_was_really_made(tmp_path: Path) -> None:
    import torch

    import onnxproof

    proof = onnxproof.export(
        torch.nn.Linear(8, 4),
        (torch.randn(3, 8),),
        tmp_path / "m.onnx",
        dynamic_shapes=({0: "batch"},),
        budget_s=2.0,
    )
    VALIDATOR.validate(json.loads(json_writer.dumps(proof)))
    assert json_writer.dumps(
        json_writer.from_dict(json.loads(json_writer.dumps(proof)))
    ) == json_writer.dumps(proof)


def test_judged_again_under_another_policy(tmp_path: Path) -> None:
    gap = replace(full().gaps[0], domain=None, lost=0, mismatches=0)
    json_writer.write(
        replace(full(), verdict=Verdict.DIVERGED, error="", findings=(), notes=(), gaps=(gap,)),
        tmp_path / "p.json",
    )
    stored = json_writer.read(tmp_path / "p.json")
    assert stored.judged(replace(stored.policy, noise_limit=12.0)).verdict is Verdict.DRIFT
    assert stored.judged(replace(stored.policy, noise_limit=1e6)).verdict is Verdict.FAITHFUL
