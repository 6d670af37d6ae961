"""What moved in recorded runs: a planted change is named with its run and its reason, and jitter is not."""

import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxproof.cli import main
from onnxproof.suite import history, history_words, series
from onnxproof.suite.change_points import find_steps
from onnxproof.suite.records import Measure, Result, Run
from onnxproof.suite.store import Store

RUNS, MODELS = 30, 8


def _record(
    path: Path, *, planted: int | None = None, factor: float = 50.0, runs: int = RUNS
) -> None:
    """Runs of jittering models; from run `planted` to the next, the file of m3 is another one."""
    rng = np.random.default_rng(5)
    with Store(path, write=True) as store:
        for number in range(1, runs + 1):
            versions = {"onnxruntime": "1.30.0" if number < 20 else "1.31.1"}
            run = store.begin(
                Run(
                    id=0,
                    suite="nightly",
                    started=f"2026-03-{number:02}T02:00:00Z",
                    commit_id=f"{number:040x}",
                    versions=versions,
                )
            )
            for model in range(MODELS):
                changed = model == 3 and number == planted
                value = float(2.0 * 10 ** rng.normal(0, 0.06)) * (factor if changed else 1.0)
                verdict = "drift" if value > 12 else "faithful"
                store.add(
                    run.id,
                    Result(
                        name=f"m{model}",
                        verdict=verdict,
                        noise_ratio=value,
                        passed=verdict == "faithful",
                        key=f"{model}-{changed}-{versions}",
                        depends={f"m{model}.onnx": f"sha-{changed}"},
                        tags=("vision",),
                        measures=(Measure(backend="ort", verdict=verdict, noise_ratio=value),),
                    ),
                )
            store.finish(run.id)


@pytest.mark.parametrize("planted", [7, 30])
def test_a_planted_regression_is_named_with_its_run_and_no_other_model_is(
    planted: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "history.sqlite"
    _record(path, planted=planted)
    target = tmp_path / "history.json"
    assert main(["history", str(path), "--json", str(target)]) == 0
    document = json.loads(target.read_text())
    jsonschema.validate(document, history_words.schema())
    worse = {(move["model"], move["run"]) for move in document["moves"] if move["worse"]}
    assert worse == {("m3", planted)}
    move = next(move for move in document["moves"] if move["metric"] == "noise_ratio")
    assert {"kind": "file", "name": "m3.onnx"}.items() <= move["reasons"][0].items()
    assert 40 < move["after"] / move["before"] < 60
    said = capsys.readouterr().out
    assert f"m3: verdict faithful -> drift since run {planted}" in said
    assert "with it the file m3.onnx changed" in said


def test_jitter_is_not_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also not the new onnxruntime of run 20, with which nothing moved."""
    path = tmp_path / "history.sqlite"
    _record(path)
    assert main(["history", str(path)]) == 0
    assert "nothing moved beyond the jitter" in capsys.readouterr().out


def test_a_step_is_named_with_the_version(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    with Store(path, write=True) as store:
        for number in range(1, 13):
            version = "1.30.0" if number < 9 else "1.31.1"
            run = store.begin(
                Run(id=0, suite="s", started="2026-01-01", versions={"onnxruntime": version})
            )
            for name in ("a", "b", "c"):
                moved = 3.0 if name == "b" and number >= 9 else 1.0
                ratio = moved * (1 + 0.02 * ((number * 7 + ord(name)) % 5))
                store.add(
                    run.id, Result(name=name, verdict="faithful", noise_ratio=ratio, key=version)
                )
            store.finish(run.id)
    with Store(path) as store:
        (move,) = history.examine(series.read(store)).moves
    assert (move.model, move.run, move.until, move.worse) == ("b", 9, None, True)
    reason = move.reasons[0]
    assert (reason.kind, reason.name, reason.before, reason.after) == (
        "version",
        "onnxruntime",
        "1.30.0",
        "1.31.1",
    )


def test_a_verdict_that_comes_and_goes_by_itself_is_unsteady(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    with Store(path, write=True) as store:
        for number in range(1, 9):
            run = store.begin(Run(id=0, suite="s", started="2026-01-01"))
            verdict = "drift" if number in (3, 6) else "faithful"
            store.add(run.id, Result(name="flaps", verdict=verdict, key="same"))
            key = f"file{number > 4}"
            store.add(run.id, Result(name="changed", verdict="faithful", key=key))
    with Store(path) as store:
        examined = history.examine(series.read(store))
    assert examined.unsteady == ("flaps",) and not examined.moves


def test_two_runs_beside_each_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "history.sqlite"
    _record(path, planted=6, runs=7)
    assert main(["history", str(path), "--compare", "5", "6"]) == 0
    said = capsys.readouterr().out
    assert "run 5 and run 6: 1 of 8 models with another verdict" in said
    assert said.splitlines()[1].startswith("  m3: faithful ")
    target = tmp_path / "compared.json"
    assert main(["history", str(path), "--compare", "5", "6", "--json", str(target)]) == 0
    document = json.loads(target.read_text())
    jsonschema.validate(document, history_words.schema())
    first = document["compared"][0]
    assert first["model"] == "m3" and first["second"]["verdict"] == "drift"
    capsys.readouterr()
    assert main(["history", str(path), "--compare", "5", "99"]) == 2
    assert "error[no-such-run]" in capsys.readouterr().err


def test_every_run_of_one_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "history.sqlite"
    _record(path, runs=5)
    assert main(["history", str(path), "--model", "m2"]) == 0
    rows = capsys.readouterr().out.splitlines()[-5:]
    assert [row.split()[0] for row in rows] == ["1", "2", "3", "4", "5"]
    assert main(["history", str(path), "--model", "other"]) == 2
    assert "error[no-such-model]" in capsys.readouterr().err


def test_the_published_schema_is_that_of_the_code() -> None:
    published = Path(__file__).parents[2] / "docs" / "history.schema.json"
    assert json.loads(published.read_text()) == history_words.schema()


def test_a_file_that_is_no_history(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "h.sqlite"
    path.write_bytes(b"no database" * 100)
    assert main(["history", str(path)]) == 2
    assert "error[not-a-history]" in capsys.readouterr().err
    assert main(["history", str(tmp_path / "missing")]) == 2
    assert "error[no-such-file]" in capsys.readouterr().err


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(6, 40), st.data())
def test_a_step_far_beyond_the_jitter_is_found_at_its_place(
    seed: int, count: int, data: st.DataObject
) -> None:
    place = data.draw(st.integers(4, count - 1))
    rng = np.random.default_rng(seed)
    values = rng.normal(0.0, 0.05, count)
    values[place:] += 5.0
    (steps,) = find_steps([list(values)], lambda number, where: where == place)
    assert place in [step.start for step in steps]
