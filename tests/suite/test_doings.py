"""Everything that a model may ask for, through the local engine; and what a key is made of."""

import json
from pathlib import Path

import jsonschema
import numpy as np
import onnx
import pytest
from support.linear_files import linear
from support.suites import ROOT, make_folder, onnxproof, verdicts

from onnxproof.options import Policy
from onnxproof.suite import document, keys, plan
from onnxproof.suite.doing import policy
from onnxproof.suite.expansion import expand
from onnxproof.suite.manifest import read

SUITE = """
[suite]
budget_s = 10
cases = ["ordinary-0", "ordinary-1"]
seed = 3

[[model]]
name = "diff"
do = "diff"
subject = "good.onnx"
file = "bad.onnx"
expect = {verdict = "diverged", reason = "a wrong bias"}

[[model]]
name = "strict"
subject = "model.py:build"
file = "drift.onnx"
strict = true
expect = "drift"

[[model]]
name = "loose"
subject = "model.py:build"
file = "drift.onnx"
policy = {noise_limit = 1e6}

[[model]]
name = "replay"
do = "replay"
subject = "good.proof"
cases = []

[[model]]
name = "declared"
subject = "model.py:no_example"
file = "good.onnx"
inputs = {input = {dtype = "float32", shape = [3, 8], range = [-1, 1]}}
baseline = "locks/{name}.json"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = make_folder(tmp_path_factory.mktemp("doings"))
    bundled = ("verify", "model.py:build", "good.onnx", "--budget", "2", "--bundle", "good.proof")
    assert onnxproof(folder, *bundled).returncode == 0
    (folder / "suite.toml").write_text(SUITE)
    return folder


def test_what_a_model_asks_for_is_done(folder):
    words = ("suite", "suite.toml", "--json", "r.json", "-j", "1", "--update-baseline")
    done = onnxproof(folder, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert verdicts(folder / "r.json") == {
        "diff": "diverged",
        "strict": "drift",
        "loose": "faithful",
        "replay": "faithful",
        "declared": "faithful",
    }
    results = {r["name"]: r for r in json.loads((folder / "r.json").read_text())["results"]}
    assert results["diff"]["gate"] == "known" and results["diff"]["why"] == "a wrong bias"
    assert results["strict"]["gate"] == "known" and not results["strict"]["passed"]
    assert results["loose"]["measures"][0]["latency_ms"] > 0
    assert results["loose"]["noise_ratio"] > 100
    assert (folder / "locks" / "declared.json").is_file()


MAKING = """
[suite]
budget_s = 5
seed = 3

[[model]]
name = "{what}-{which}"
do = "{what}"
subject = "sides.py:{which}"
file = "made/{name}.onnx"
calibration = "calibration.npz"
dynamic = {input = {0 = "batch"}}
which = ["build", "other_on_export"]
what = ["export", "quantize"]
"""
SIDES = """
import torch
from model import build


class OtherOnExport(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = build()[0]

    def forward(self, input):
        if torch.compiler.is_exporting():
            return self.body(input) + 0.5
        return self.body(input)


def other_on_export():
    return OtherOnExport().eval(), build()[1]
"""


def test_export_and_quantize_write_their_file_and_a_module_that_exports_otherwise_is_a_fault(
    folder,
):
    (folder / "sides.py").write_text(SIDES)
    (folder / "made").mkdir()
    inputs = np.random.default_rng(0).standard_normal((48, 8)).astype(np.float32)
    np.savez(folder / "calibration.npz", input=inputs)
    (folder / "making.toml").write_text(MAKING)
    done = onnxproof(folder, "suite", "making.toml", "--json", "m.json", "-j", "1")
    assert done.returncode == 1, done.stdout + done.stderr
    found = verdicts(folder / "m.json")
    assert found["export-build"] == "faithful" and found["export-other_on_export"] == "diverged"
    assert found["quantize-build"] in ("faithful", "drift"), done.stdout
    assert found["quantize-other_on_export"] == "diverged"
    assert {path.stem for path in (folder / "made").glob("*.onnx")} >= {
        "export-build",
        "quantize-build",
    }
    kinds = {node.op_type for node in onnx.load(folder / "made/quantize-build.onnx").graph.node}
    assert "QuantizeLinear" in kinds


REPLAYED = """
[[model]]
name = "{where}"
do = "replay"
subject = "good.proof"
file = "{where}.onnx"
allow_other_model = true
where = ["good", "bad"]

[[model]]
name = "refused"
do = "replay"
subject = "good.proof"
file = "bad.onnx"

[[model]]
name = "same"
do = "diff"
subject = "good.onnx"
file = "good.onnx"
budget_s = 5
"""


def test_a_replay_finds_another_model_and_refuses_it_unless_told(folder):
    (folder / "replayed.toml").write_text(REPLAYED)
    done = onnxproof(folder, "suite", "replayed.toml", "--json", "p.json", "-j", "1")
    assert done.returncode == 1, done.stdout + done.stderr
    assert verdicts(folder / "p.json") == {
        "good": "faithful",
        "bad": "diverged",
        "refused": "error",
        "same": "faithful",
    }
    results = {r["name"]: r for r in json.loads((folder / "p.json").read_text())["results"]}
    assert "error[other-model]" in results["refused"]["error"]


def test_noise_beyond_a_baseline_is_a_fault(folder):
    lock = folder / "locks" / "moved.json"
    text = (
        SUITE.partition("[[model]]")[0]
        + """
[[model]]
name = "moved"
subject = "model.py:build"
file = "{file}"
policy = {noise_limit = 1e6}
baseline = "locks/moved.json"
"""
    )
    (folder / "lock.toml").write_text(text.replace("{file}", "good.onnx"))
    assert onnxproof(folder, "suite", "lock.toml", "--update-baseline").returncode == 0
    assert lock.is_file()
    (folder / "lock.toml").write_text(text.replace("{file}", "drift.onnx"))
    done = onnxproof(folder, "suite", "lock.toml", "--json", "lock.json")
    assert done.returncode == 1
    (result,) = json.loads((folder / "lock.json").read_text())["results"]
    assert result["verdict"] == "faithful" and result["gate"] == "fault"
    assert "baseline" in result["why"]


def test_the_published_schemas_are_those_of_the_code(folder):
    published = json.loads((ROOT / "docs" / "suite.schema.json").read_text())
    assert published == keys.make()
    import tomllib

    jsonschema.validate(tomllib.loads(SUITE), published)
    results = json.loads((ROOT / "docs" / "suite-results.schema.json").read_text())
    assert results == document.schema()


def test_the_limits_of_the_manifest_keep_the_proportions_of_the_command_line():
    chosen = policy({"policy": {"noise_limit": 24, "domain": "finite"}, "strict": True})
    assert chosen == Policy(noise_limit=24, worst_limit=48, bias_limit=4, strict=True, domains=())


LIMITED = """
[[model]]
name = "{what}-{budget}"
do = "{what}"
subject = "good.onnx"
file = "made.onnx"
budget_s = "{budget}"
budget = [5, 60]
what = ["diff", "quantize"]
"""


def test_budgets_end_before_the_time_limit_does(tmp_path):
    make_folder(tmp_path)
    (tmp_path / "limits.toml").write_text(LIMITED)
    models = expand(read(tmp_path / "limits.toml"))
    planned = plan.make(models, tmp_path, {}, plan.Limits(time_s=40))
    jobs = {item.model.name: item.job.values for item in planned}
    assert {name: values["budget_s"] for name, values in jobs.items()} == {
        "diff-5": 5,
        "diff-60": 20,
        "quantize-5": 5,
        "quantize-60": 20,
    }
    assert jobs["quantize-5"]["tuning_s"] == 10 and "tuning_s" not in jobs["diff-5"]
    (unlimited,) = plan.make(models[:1], tmp_path, {}, plan.Limits())
    assert unlimited.job.values["budget_s"] == 5


def key_of(folder: Path, more: str = "") -> str:
    text = f'[[model]]\nname = "a"\nsubject = "model.py:build"\nfile = "big.onnx"\n{more}\n'
    (folder / "key.toml").write_text(text)
    models = expand(read(folder / "key.toml"))
    (planned,) = plan.make(models, folder, {}, plan.Limits())
    return planned.key


def test_a_key_holds_files_external_data_and_limits_and_no_names(tmp_path):
    make_folder(tmp_path)
    linear(tmp_path / "plain.onnx")
    model = onnx.load(tmp_path / "plain.onnx")
    onnx.save(
        model,
        tmp_path / "big.onnx",
        save_as_external_data=True,
        location="big.data",
        size_threshold=0,
    )
    before = key_of(tmp_path)
    assert key_of(tmp_path, 'tags = ["x"]\ntime_limit_s = 9') == before
    assert key_of(tmp_path, "seed = 1") != before
    assert key_of(tmp_path, "policy = {atol = 1}") != before
    weights = tmp_path / "big.data"
    content = bytearray(weights.read_bytes())
    content[0] ^= 1
    weights.write_bytes(content)
    changed = key_of(tmp_path)
    assert changed != before
    with (tmp_path / "model.py").open("a") as file:
        file.write("# a comment\n")
    assert key_of(tmp_path) != changed
