from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxproof.errors import UsageError
from onnxproof.suite.expansion import Expected, expand
from onnxproof.suite.manifest import read


def write(folder: Path, text: str) -> Path:
    path = folder / "suite.toml"
    path.write_text(text)
    return path


def refused(folder: Path, text: str) -> str:
    with pytest.raises(UsageError) as caught:
        expand(read(write(folder, text)))
    return str(caught.value)


MODEL = '[[model]]\nname = "a"\nsubject = "m.py:f"\nfile = "a.onnx"\n'


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (MODEL + 'file_ = "b"\n', 5, "did you mean `file`?"),
        (MODEL + "budget_s = 0\n", 5, "`budget_s` should be a number above 0"),
        (MODEL + "budget_s = true\n", 5, "`budget_s` should be a number"),
        (MODEL + 'backends = "ort"\n', 5, "`backends` should be a list"),
        (MODEL + 'do = "verfy"\n', 5, "did you mean `verify`?"),
        (MODEL + 'expect = "drfit"\n', 5, "did you mean `drift`?"),
        (MODEL + 'expect = "drift"\nexpires = "tomorrow"\n', 6, "`expires` is no date"),
        (MODEL + 'reason = "x"\n', 5, "belong to an `expect`"),
        (MODEL + "[model.policy]\natoll = 1\n", 6, "did you mean `atol`?"),
        (MODEL + "\n" + MODEL.replace('"a"\n', '"b"\n') + "steps = 0\n", 10, "at least 1"),
        (MODEL + "\n" + MODEL, 6, "two models have the name `a`"),
        ('[suite]\nbackend = ["ort"]\n' + MODEL, 2, "did you mean `backends`?"),
        ("[suite]\n", 1, "there is no [[model]]"),
        ('[[model]]\nname = "a"\nsubject = "m.py:f"\n', 1, "this model has no `file`"),
        ("[[models]]\n", 1, "did you mean `model`?"),
        (MODEL + "x = = 1\n", 5, "this is no TOML"),
        (MODEL + "size = [[1]]\n" + 'tags = ["{size}"]\n', 5, "one for each model"),
        ("[[model]]\nname = 'a\n", 2, "this is no TOML"),
        (MODEL + 'steps = "{n}"\nn = [1, "x"]\n', 5, "`steps` should be a whole number"),
        (MODEL.replace('"a"', '"a{n}"') + 'do = "{n}"\nn = ["verify", "exprt"]\n', 5, "export"),
        (MODEL.replace("a.onnx", "{n}.onnx"), 4, "nothing says what {n} in `file` is"),
        (MODEL.replace("m.py:f", "*.py:f").replace("a.onnx", "*.onnx"), 3, "both have a wildcard"),
        (MODEL + "opset = 17\n", 5, "`opset` has no meaning for `verify`"),
        (MODEL + 'do = "replay"\nloop = false\n', 6, "it belongs to verify and export and diff"),
    ],
)
def test_a_mistake_is_told_with_its_line(tmp_path, text, line, words):
    message = refused(tmp_path, text)
    assert f"suite.toml:{line}\n" in message + "\n"
    assert words in message


def test_several_mistakes_are_told_at_once(tmp_path):
    message = refused(tmp_path, MODEL + "budget_s = -1\nsteps = 0\n")
    assert "suite.toml:5" in message and "line 6: `steps` should be at least 1" in message


def test_options_make_several_models_and_defaults_fill_them_in(tmp_path):
    text = """
[suite]
budget_s = 7
tags = ["all"]
policy = {atol = 1e-3}

[[model]]
name = "detector-{size}-{n}"
do = "export"
subject = "models.py:detector_{size}"
size = ["small", "large"]
n = [17, 18]
opset = "{n}"
tags = ["vision", "{size}"]
policy = {strict = true}
baseline = "locks/{name}.json"
"""
    models = expand(read(write(tmp_path, text)))
    assert [m.name for m in models] == [
        "detector-small-17",
        "detector-small-18",
        "detector-large-17",
        "detector-large-18",
    ]
    first = models[0]
    assert first.values["opset"] == 17
    assert first.values["subject"] == "models.py:detector_small"
    assert first.values["baseline"] == "locks/detector-small-17.json"
    assert first.values["policy"] == {"atol": 1e-3, "strict": True}
    assert first.values["budget_s"] == 7
    assert first.tags == ("all", "vision", "small")


def test_wildcards_name_models_by_what_they_match(tmp_path):
    for name in ("zoo/a.onnx", "zoo/deep/a.onnx", "zoo/b.onnx"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    text = '[[model]]\nsubject = "m.py:{stem}"\nfile = "zoo/**/*.onnx"\n'
    models = expand(read(write(tmp_path, text)))
    assert {m.name: m.values["file"] for m in models} == {
        "a": "zoo/a.onnx",
        "b": "zoo/b.onnx",
        "deep/a": "zoo/deep/a.onnx",
    }
    assert models[0].values["subject"] == "m.py:a"
    named = text.replace("subject", 'name = "zoo"\nsubject', 1)
    assert [m.name for m in expand(read(write(tmp_path, named)))] == [
        "zoo/a",
        "zoo/b",
        "zoo/deep/a",
    ]


def test_a_wildcard_may_stand_before_a_factory_and_brackets_may_be_part_of_a_name(tmp_path):
    for name in ("nets/a.py", "nets/b.py", "m[1].onnx"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    text = '[[model]]\nsubject = "nets/?.py:build"\nfile = "{stem}.onnx"\n'
    models = expand(read(write(tmp_path, text)))
    assert [(m.name, m.values["subject"], m.values["file"]) for m in models] == [
        ("a", "nets/a.py:build", "a.onnx"),
        ("b", "nets/b.py:build", "b.onnx"),
    ]
    (model,) = expand(read(write(tmp_path, MODEL.replace("a.onnx", "m[1].onnx"))))
    assert model.values["file"] == "m[1].onnx" and not model.problem


def test_a_wildcard_that_matches_nothing_is_a_model_that_cannot_run(tmp_path):
    text = '[[model]]\nname = "zoo"\nsubject = "m.py:f"\nfile = "zoo/*.onnx"\n'
    (model,) = expand(read(write(tmp_path, text)))
    assert model.problem == "no file matches `zoo/*.onnx`"


@pytest.mark.parametrize(
    "said",
    [
        'expect = "drift"\nreason = "known"\nexpires = 2030-01-02\n',
        'expect = {verdict = "drift", reason = "known", expires = "2030-01-02"}\n',
        '[model.expect]\nverdict = "drift"\nreason = "known"\nexpires = 2030-01-02\n',
    ],
)
def test_an_expected_verdict_has_a_reason_and_a_day(tmp_path, said):
    (model,) = expand(read(write(tmp_path, MODEL + said)))
    assert model.expected == Expected(verdict="drift", reason="known", expires=date(2030, 1, 2))


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("m") / "suite.toml"
    path.write_text(text, encoding="utf-8", errors="replace")
    with pytest.raises(UsageError):
        expand(read(path))
