"""The fuzzer: a small run of it, and each thing that it looks for planted, so that its silence means something."""

import json
import os
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from bench.fuzz import oracle, proofs
from bench.fuzz.damage import KINDS, NotApplicable, Target
from bench.fuzz.models import bases
from bench.fuzz.samples import ALL_KINDS, SOUND, Workshop, write

ROOT = Path(__file__).parents[2]
SEED, COUNT = 42, 60
PROOF = json.dumps(
    {
        "schema": "1",
        "policy": {"atol": 1e-4},
        "gaps": [{"case": "c", "rms": 1.0}],
        "findings": [],
        "verdict": "faithful",
    }
)

PLANTS = """
import json, os, signal, sys
from bench.fuzz import process
from bench.fuzz.run import fuzz, prepare

prepare()
from onnxproof.onnxmodel import onnx_file
from onnxproof.results import Verdict, judging

def key_error(path): raise KeyError("planted")
def dies(path): os.kill(os.getpid(), signal.SIGSEGV)
def hangs(path):
    while True:
        pass
def sleeps(path): signal.pause()
def leaves(path): os._exit(7)
def says_nothing(path): os._exit(2)
def traced(path):
    sys.stderr.write("Traceback (most recent call last):\\n")
    os._exit(0)
def escapes(path):
    sys.stdout.write("\\x1b[31mred\\n")
    sys.stdout.flush()
    os._exit(0)
def refuses(path):
    sys.stderr.write("error[refused]: no\\n")
    sys.stderr.flush()
    os._exit(2)

found = {}
read = onnx_file.read
for plant in (key_error, dies, hangs, sleeps, leaves, says_nothing, traced, escapes, refuses):
    process.CPU_S, process.WALL_S = (1.0, 60.0) if plant is hangs else (20.0, 3.0 if plant is sleeps else 60.0)
    onnx_file.read = plant
    found[plant.__name__] = fuzz(1, range(1), kinds=("none",))[0].faults
onnx_file.read, process.WALL_S = read, 90.0
judging.judge = lambda *_, **__: Verdict.FAITHFUL
results = [r for r in fuzz(2, range(10), kinds=("weight-scaled", "operator-swapped")) if r.verdict == "faithful" and r.words[1] != r.words[2]]
found["always_faithful"] = sorted({fault for r in results for fault in r.faults})
print("RESULT" + json.dumps(found))
"""


def fuzzed(*words: str) -> subprocess.CompletedProcess[str]:
    """A process of its own: it forks, which a test runner with threads may not."""
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        timeout=280,
        env=environment,
        cwd=ROOT,
        check=False,
    )


def test_a_small_run_finds_nothing(tmp_path: Path) -> None:
    done = fuzzed(
        "-m",
        "bench.fuzz",
        "--seed",
        str(SEED),
        "--count",
        str(COUNT),
        "--json",
        str(tmp_path / "all.json"),
        "--failures",
        str(tmp_path / "failures"),
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    results = json.loads((tmp_path / "all.json").read_text())
    assert len(results) == COUNT and len({result["kind"] for result in results}) == COUNT
    assert {result["code"] for result in results} >= {
        0,
        1,
        2,
    }  # some run, some differ, some are refused
    assert f"seed {SEED}: {COUNT} calls, 0 with faults" in done.stdout


def test_what_it_looks_for_is_found_when_it_is_planted() -> None:
    done = fuzzed("-c", PLANTS)
    assert "RESULT" in done.stdout, done.stderr[-2000:]
    found = json.loads(done.stdout.rpartition("RESULT")[2])
    refused = "a sound file is refused"
    assert found == {
        "key_error": ["error[internal]", refused],
        "dies": ["signal SIGSEGV"],
        "hangs": ["hang"],
        "sleeps": ["hang"],
        "leaves": ["exit code 7", refused],
        "says_nothing": ["no message", refused],
        "traced": ["traceback"],
        "escapes": ["control characters"],
        "refuses": [refused],
        "always_faithful": ["wrong FAITHFUL"],
    }


def test_a_failing_call_is_kept_and_replayed(tmp_path: Path) -> None:
    script = "from onnxproof.onnxmodel import onnx_file\ndef read(path): raise KeyError('planted')\nonnx_file.read = read\n"
    start = f"{script}import sys\nfrom bench.fuzz.__main__ import main\nsys.argv[1:] = WORDS\nsys.exit(main())"
    words = ["--seed", "3", "--count", "1", "--kind", SOUND, "--failures", str(tmp_path)]
    done = fuzzed("-c", start.replace("WORDS", repr(words)))
    assert done.returncode == 1 and "1 times error[internal]" in done.stdout, (
        done.stdout + done.stderr
    )
    again = fuzzed("-c", start.replace("WORDS", repr(["--replay", str(tmp_path / "3-0")])))
    assert (
        again.returncode == 1
        and "KeyError" in again.stdout
        and "faults: error[internal]" in again.stdout
    ), again.stdout + again.stderr
    assert "faults: none" in fuzzed("-m", "bench.fuzz", "--replay", str(tmp_path / "3-0")).stdout


def test_every_kind_of_damage_fits_some_model_and_changes_it(tmp_path: Path) -> None:
    assert len(KINDS) >= 40 and len(ALL_KINDS) == len(set(ALL_KINDS))
    models = bases()
    for kind in KINDS.values():
        changed = False
        for place, base in enumerate(models):
            folder = tmp_path / f"{kind.name}-{place}"
            folder.mkdir()
            write(base, folder, "bad")
            target = Target(
                model=onnx.load(folder / "bad.onnx", load_external_data=False),
                folder=folder,
                random=Random(place),
            )
            before = target.model.SerializeToString(deterministic=True), _beside(folder)
            try:
                kind.apply(target)
            except NotApplicable:
                continue
            after = target.model.SerializeToString(deterministic=True), _beside(folder)
            changed |= before != after or bool(target.bytes_change)
        assert changed, kind.name


def _beside(folder: Path) -> dict[str, Any]:
    return {
        path.name: path.read_bytes() if path.is_file() else path.is_symlink()
        for path in folder.iterdir()
    }


def test_the_same_seed_and_index_give_the_same_call(tmp_path: Path) -> None:
    shop = Workshop(seed=5, bases=bases(), proof=PROOF, baseline=PROOF)
    for index in range(0, len(ALL_KINDS), 7):
        made = []
        for turn in ("a", "b"):
            folder = tmp_path / f"{index}{turn}"
            folder.mkdir()
            call = shop.make(index, folder)
            made.append(
                (
                    call,
                    {
                        path.name: path.read_bytes()
                        for path in sorted(folder.iterdir())
                        if path.suffix in (".onnx", ".json", ".data") and path.is_file()
                    },
                )
            )
        assert made[0] == made[1]


def test_each_kind_comes_once_before_any_comes_twice(tmp_path: Path) -> None:
    shop = Workshop(seed=6, bases=bases(), proof=PROOF, baseline=PROOF)
    kinds = []
    for index in range(len(ALL_KINDS)):
        (tmp_path / str(index)).mkdir()
        kinds.append(shop.make(index, tmp_path / str(index)).kind)
    assert sorted(kinds) == sorted(ALL_KINDS)


@pytest.mark.parametrize("kind", proofs.KINDS)
def test_proofs_are_damaged(kind: str) -> None:
    assert any(proofs.damaged(PROOF, kind, Random(seed)) != PROOF.encode() for seed in range(5))


def files(folder: Path, change: float) -> tuple[Path, Path, dict[str, Any]]:
    """A network, and the same with its first weight times a factor."""
    base = next(base for base in bases() if base.name == "conv_bn")
    write(base, folder, "good")
    weight = base.model.graph.initializer[0]
    weight.CopyFrom(
        numpy_helper.from_array(numpy_helper.to_array(weight) * np.float32(change), weight.name)
    )
    write(base, folder, "bad")
    return folder / "good.onnx", folder / "bad.onnx", dict(base.example)


@pytest.mark.parametrize(
    ("change", "differs"),
    [(1.0, False), (1 + 1e-7, False), (1.001, True), (-1.0, True), (float("nan"), True)],
)
def test_the_oracle_tells_other_answers_from_rounding(
    tmp_path: Path, change: float, differs: bool
) -> None:
    good, bad, example = files(tmp_path, change)
    assert bool(oracle.differs(good, bad, example, quantized=False)) is differs
    backwards = oracle.differs(good, bad, example, quantized=False, backwards=True)
    assert bool(backwards) is (differs and change == change)  # a reference of NaN asks nothing


def test_the_oracle_says_nothing_of_a_file_that_the_runtime_refuses(tmp_path: Path) -> None:
    good, bad, example = files(tmp_path, 2.0)
    bad.write_bytes(bad.read_bytes().replace(b"Relu", b"Rolu"))
    assert oracle.differs(good, bad, example, quantized=False) == ""
