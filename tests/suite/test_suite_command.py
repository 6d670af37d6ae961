"""Whole suites through the command line: what misbehaves fails alone, a kill loses nothing, and only what changed is run."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import jsonschema
import pytest
import xmlschema
from support.linear_files import linear
from support.suites import ROOT, make_folder, onnxproof, verdicts

from onnxproof.suite.store import Store

SCHEMA = json.loads((ROOT / "docs" / "suite-results.schema.json").read_text())
JUNIT = xmlschema.XMLSchema(ROOT / "tests" / "support" / "junit.xsd")
HEAD = "[suite]\nname = 's'\nbudget_s = 1.5\nexplain = false\n"
UNRULY = (
    HEAD
    + """
[[model]]
name = "{what}"
subject = "model.py:{what}"
file = "good.onnx"
what = ["build", "crash", "hang", "leave", "quit", "abort", "eat", "chatter", "killed", "once", "raises"]

[[model]]
name = "bad"
subject = "model.py:build"
file = "bad.onnx"
tags = ["faulty"]

[[model]]
name = "known"
subject = "model.py:build"
file = "bad.onnx"
tags = ["faulty"]
expect = "diverged"
reason = "the bias is off"
expires = 2999-01-01

[[model]]
name = "nothing"
subject = "model.py:build"
file = "missing.onnx"
"""
)


@pytest.fixture(scope="module")
def unruly(tmp_path_factory):
    folder = make_folder(tmp_path_factory.mktemp("unruly"))
    (folder / "suite.toml").write_text(UNRULY)
    words = ("suite", "suite.toml", "--time-limit", "25", "--memory-limit", "2.5", "-j", "2")
    files = ("--json", "r.json", "--junit", "r.xml", "--markdown", "r.md", "--github")
    done = onnxproof(folder, *words, *files, GITHUB_STEP_SUMMARY=str(folder / "summary.md"))
    results = json.loads((folder / "r.json").read_text())
    return folder, done, results


def result(results, name):
    return next(item for item in results["results"] if item["name"] == name)


def test_every_model_has_exactly_one_verdict(unruly):
    folder, done, results = unruly
    good = {"build", "chatter", "once"}
    wanted = dict.fromkeys(good, "faithful") | {"bad": "diverged", "known": "diverged"}
    others = ("crash", "hang", "leave", "quit", "abort", "eat", "killed", "raises", "nothing")
    assert verdicts(folder / "r.json") == wanted | dict.fromkeys(others, "error")
    assert done.returncode == 1, done.stderr
    jsonschema.validate(results, SCHEMA)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("crash", ("SIGSEGV", "about to crash")),
        ("hang", ("time limit of 25 s", "waiting without end")),
        ("leave", ("without a verdict (exit code 0)",)),
        ("quit", ("SystemExit: 7", "model.py")),
        ("abort", ("SIGABRT",)),
        ("eat", ("error[out-of-memory]", "the limit is 2.5 GB")),
        ("killed", ("SIGKILL",)),
        ("raises", ("FileNotFoundError: weights.pt",)),
        ("nothing", ("there is no file `missing.onnx`",)),
    ],
)
def test_the_last_words_of_what_failed_are_kept(unruly, name, words):
    error = result(unruly[2], name)["error"]
    assert all(word in error for word in words), error


def test_what_was_killed_from_outside_is_started_again(unruly):
    assert result(unruly[2], "once")["attempts"] == 2
    assert result(unruly[2], "killed")["attempts"] == 3
    assert result(unruly[2], "crash")["attempts"] == 1


def test_reports_tell_new_faults_from_known_ones(unruly):
    folder, done, results = unruly
    assert result(results, "bad")["gate"] == "fault"
    assert result(results, "known")["gate"] == "known"
    JUNIT.validate(folder / "r.xml")
    xml = (folder / "r.xml").read_text()
    assert 'failures="1"' in xml and 'errors="9"' in xml and "the bias is off" in xml
    summary = (folder / "summary.md").read_text()
    assert summary == (folder / "r.md").read_text() and "1 new fault, 9 errors" in summary
    assert "::error title=onnxproof%3A bad diverged,file=suite.toml::" in done.stdout


def test_nothing_is_left_behind(unruly):
    folder, _, _ = unruly
    time.sleep(1)
    left = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.readlink(process / "cwd").startswith(str(folder)):
                left.append((process / "cmdline").read_bytes())
    assert left == []


MANY = (
    HEAD
    + """
[[model]]
name = "m{n}"
subject = "model.py:slow"
file = "{file}.onnx"
file_name = ["good"]
n = [0, 1, 2, 3, 4, 5, 6, 7]
"""
)


def many(folder):
    make_folder(folder)
    text = MANY.replace('file_name = ["good"]\n', "").replace("{file}", "good")
    (folder / "suite.toml").write_text(text)
    return folder


def start(folder):
    command = [sys.executable, "-m", "onnxproof", "suite", "suite.toml"]
    return subprocess.Popen(
        [*command, "--history", "h.sqlite", "--json", "r.json", "-j", "2"],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "SLOW_S": "0.5"},
    )


def committed(folder):
    with suppress(Exception), Store(folder / "h.sqlite") as store:
        return {
            result.name: result for run in store.runs()[-1:] for result in store.results(run.id)
        }
    return {}


def wait_for(folder, count, driver):
    for _ in range(2000):
        if len(committed(folder)) >= count:
            return
        assert driver.poll() is None, driver.stderr.read()
        time.sleep(0.05)
    raise AssertionError("no results")


def test_a_kill_of_the_driver_and_of_a_worker_loses_nothing(tmp_path):
    folder = many(tmp_path)
    driver = start(folder)
    wait_for(folder, 2, driver)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    before = committed(folder)
    driver = start(folder)
    wait_for(folder, len(before) + 1, driver)
    for worker in Path(f"/proc/{driver.pid}/task/{driver.pid}/children").read_text().split():
        os.kill(int(worker), signal.SIGKILL)
    assert driver.wait(timeout=200) == 0, driver.stderr.read()
    assert verdicts(folder / "r.json") == {f"m{n}": "faithful" for n in range(8)}
    after = committed(folder)
    assert len(after) == 8
    with Store(folder / "h.sqlite") as store:
        assert len(store.runs()) == 1
        assert store.runs()[0].finished
        assert all(store.results(1)[n] == after[f"m{n}"] for n in range(8))
    # what was there before the kill was not run again
    assert all(after[name].duration_s == kept.duration_s for name, kept in before.items())


def test_an_interrupt_writes_what_is_there_and_says_how_to_go_on(tmp_path):
    folder = many(tmp_path)
    driver = start(folder)
    wait_for(folder, 1, driver)
    driver.send_signal(signal.SIGINT)
    _, said = driver.communicate(timeout=100)
    assert driver.returncode == 2
    results = json.loads((folder / "r.json").read_text())
    jsonschema.validate(results, SCHEMA)
    assert 1 <= len(results["results"]) < 8 and results["finished"] is None
    assert len(results["results"]) + len(results["missing"]) == 8
    assert "the same command goes on where this one stopped" in said


CHANGING = (
    HEAD
    + """
[[model]]
name = "code"
subject = "model.py:build"
file = "good.onnx"

[[model]]
name = "other"
subject = "other.py:build"
file = "other.onnx"
"""
)


def test_only_what_changed_is_run_and_the_rest_says_why(tmp_path):
    folder = make_folder(tmp_path)
    (folder / "suite.toml").write_text(CHANGING)
    (folder / "part.py").write_text("SCALE = 1\n")
    text = "import part\nfrom model import *\n\n\ndef build():\n    import model\n    return model.build()\n"
    (folder / "other.py").write_text(text)
    linear(folder / "other.onnx")
    words = ("suite", "suite.toml", "--changed", "--json", "r.json")

    def run():
        done = onnxproof(folder, *words, "-j", "1", "-v")
        assert done.returncode == 0, done.stdout + done.stderr
        document = json.loads((folder / "r.json").read_text())
        assert len(document["results"]) == 2
        return document, done.stdout

    first, _ = run()
    assert (folder / "history.sqlite").is_file()  # where nobody named a file
    assert first["skipped"] == {} and set(first["changed"]) == {"code", "other"}
    second, said = run()
    assert second["skipped"] == dict.fromkeys(("code", "other"), "nothing changed since run 1")
    assert "code: nothing changed since run 1" in said
    (folder / "part.py").write_text("SCALE = 2\n")  # imported by other.py, named nowhere
    third, _ = run()
    assert third["changed"] == {"other": "`part.py` changed"}
    assert third["skipped"] == {"code": "nothing changed since run 1"}
    (folder / "weight.npy").touch()  # the same content
    linear(folder / "other.onnx", opset=19)
    fourth, _ = run()
    assert fourth["changed"] == {"other": "`other.onnx` changed"}


def test_bad_usage_is_told_before_anything_runs(tmp_path):
    folder = make_folder(tmp_path)
    (folder / "suite.toml").write_text(HEAD + MANY.partition("explain = false\n")[2])
    for words, message in (
        (("nowhere.toml",), "there is no suite `"),
        (("suite.toml", "--engine", "sge"), "there is no engine `sge`"),
        (("suite.toml", "--time-limit", "0"), "`--time-limit 0` lets nothing run"),
        (("suite.toml", "--json", "no/where.json"), "there is no folder `no`"),
        (("suite.toml",), "nothing says {file_name}"),
    ):
        done = onnxproof(folder, "suite", *words)
        assert done.returncode == 2 and message in done.stderr, done.stderr


EXPLAINED = """
[suite]
budget_s = 20
cases = ["ordinary-0", "ordinary-1"]

[[model]]
name = "{what}"
subject = "late.py:build"
file = "bad.onnx"
set = {what = "{what}"}
time_limit_s = 20
what = ["abort", "sleep", "leave"]
"""
LATE = """
import os
import time

import torch
from model import build as right

DEEDS = {"abort": os.abort, "sleep": lambda: time.sleep(1000), "leave": lambda: os._exit(0)}


class Late(torch.nn.Module):
    def __init__(self, what):
        super().__init__()
        self.body, self.what = right()[0], what

    def forward(self, input):
        if os.path.exists(os.path.join(os.environ["TMPDIR"], "early.json")):
            DEEDS[self.what]()
        return self.body(input)


def build(what):
    return Late(what).eval(), right()[1]
"""


def test_a_model_that_ends_its_process_while_it_is_explained_keeps_its_verdict(tmp_path):
    folder = make_folder(tmp_path)
    (folder / "suite.toml").write_text(EXPLAINED)
    (folder / "late.py").write_text(LATE)
    done = onnxproof(folder, "suite", "suite.toml", "--json", "r.json", "-j", "2")
    assert done.returncode == 1, done.stderr
    assert verdicts(folder / "r.json") == dict.fromkeys(("abort", "sleep", "leave"), "diverged")
    results = json.loads((folder / "r.json").read_text())
    jsonschema.validate(results, SCHEMA)
    assert "SIGABRT" in result(results, "abort")["error"]
    assert "time limit of 20 s" in result(results, "sleep")["error"]
    assert "exit code 0" in result(results, "leave")["error"]
    assert result(results, "abort")["noise_ratio"] > 100
