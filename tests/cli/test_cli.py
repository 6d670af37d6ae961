"""The command line as a user meets it: exit codes, what goes to which stream, and the words of each error."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import onnx
import pytest
from support.linear_files import candidates, linear, reference

from onnxproof.cli import commands, main, overview

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "docs" / "proof.schema.json").read_text())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    reference(tmp_path)
    candidates(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield tmp_path


QUICK = ("--budget", "4", "--no-explain")


# ---------------------------------------------------------------- verdicts and exit codes


def test_a_faithful_file_exits_0_and_says_so(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", "model.py:build", "good.onnx", *QUICK]) == 0
    out = capfd.readouterr().out
    assert "FAITHFUL  good.onnx matches build" in out
    assert "onnxproof verify model.py:build good.onnx --case" in out


def test_drift_passes_with_a_warning_and_fails_under_strict(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", "model.py:build", "drift.onnx", *QUICK, "--json", "proof.json"]) == 0
    assert "it passes, but it is a real defect" in capfd.readouterr().out
    assert main(["verify", "model.py:build", "drift.onnx", *QUICK, "--strict"]) == 1
    assert "it fails, since the policy is strict" in capfd.readouterr().out


def test_a_wrong_file_exits_1(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "model.py:build", "bad.onnx", *QUICK]) == 1
    assert "DIVERGED  bad.onnx differs from build" in capfd.readouterr().out


def test_a_case_that_does_not_exist_proves_nothing_and_exits_3(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", "model.py:build", "good.onnx", "--case", "no such case"]) == 3
    assert "VACUOUS  nothing is proven: there is no case `no such case`" in capfd.readouterr().out


def test_the_replay_line_runs_one_case_again(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(
            [
                "verify",
                "model.py:build",
                "bad.onnx",
                "--case",
                "ordinary-1",
                "--backend",
                "ort",
                "--seed",
                "0",
                "--json",
                "one.json",
                "--no-explain",
            ]
        )
        == 1
    )
    assert {gap["case"] for gap in json.loads(Path("one.json").read_text())["gaps"]} == {
        "ordinary-1"
    }


def test_two_files_are_compared_without_a_module(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["diff", "good.onnx", "good.onnx", *QUICK]) == 0
    assert main(["diff", "good.onnx", "bad.onnx", *QUICK]) == 1


def test_export_writes_the_file_and_proves_it(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(["export", "model.py:build", "-o", "made.onnx", "--dynamic", "input:0=batch", *QUICK])
        == 0
    )
    assert "FAITHFUL  made.onnx" in capfd.readouterr().out
    assert onnx.load("made.onnx").graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"


def test_backends_are_listed(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["backends"]) == 0
    listed = capfd.readouterr().out
    assert all(name in listed for name in ("ort", "reference", "torch64"))


# ---------------------------------------------------------------- a stored proof


def test_a_stored_proof_is_judged_again_without_running(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", "model.py:build", "drift.onnx", *QUICK, "--json", "proof.json"]) == 0
    Path("drift.onnx").unlink()
    assert main(["verify", "--from", "proof.json"]) == 0
    assert main(["verify", "--from", "proof.json", "--strict"]) == 1
    assert main(["verify", "--from", "proof.json", "--noise-limit", "1e9"]) == 0
    assert "FAITHFUL" in capfd.readouterr().out


def test_from_takes_no_subject(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "model.py:build", "--from", "proof.json"]) == 2
    assert (
        "error[usage]: `--from` judges a stored proof, so it takes no SUBJECT"
        in capfd.readouterr().err
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "error[not-a-proof]: this file is not JSON"),
        ("[]", "error[not-a-proof]: this JSON is not a proof: it has no `schema`"),
        (
            '{"schema": "0"}',
            "error[other-schema]: this proof has schema 0, and this onnxproof reads 1",
        ),
        ('{"schema": "1", "verdict": "error", "error": "x"}', "error[nothing-measured]"),
        ('{"schema": "1", "gaps": 3}', "error[not-a-proof]: this proof is damaged"),
    ],
)
def test_a_file_that_is_no_proof(
    folder: Path, capfd: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    Path("proof.json").write_text(text)
    assert main(["verify", "--from", "proof.json"]) == 2
    assert words in capfd.readouterr().err


# ---------------------------------------------------------------- streams


def run(*words: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """The real program in its own process."""
    return subprocess.run(
        [sys.executable, "-m", "onnxproof.cli", *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")} | environment,
    )


def test_nothing_but_json_goes_to_standard_output(folder: Path) -> None:
    done = run("verify", "model.py:build", "good.onnx", "--json", "-", *QUICK, cwd=folder)
    assert done.returncode == 0
    document = json.loads(done.stdout)
    jsonschema.validate(document, SCHEMA)
    assert document["verdict"] == "faithful"
    assert "a factory may print" in done.stderr
    assert "FAITHFUL" in done.stderr


def test_no_control_characters_when_piped(folder: Path) -> None:
    done = run("verify", "model.py:build", "bad.onnx", "--verbose", *QUICK, cwd=folder)
    assert done.returncode == 1
    assert not {c for c in done.stdout + done.stderr if ord(c) < 32 and c != "\n"}
    assert "paired by" in done.stdout


def test_quiet_says_one_line(folder: Path) -> None:
    done = run("diff", "good.onnx", "good.onnx", "-q", *QUICK, cwd=folder)
    assert done.stdout.startswith("FAITHFUL  ")
    assert len(done.stdout.splitlines()) == 1
    assert done.stderr == ""


def test_an_error_before_anything_was_measured_is_json_too(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", "model.py:raises", "good.onnx", "--json", "-"]) == 2
    told = capfd.readouterr()
    document = json.loads(told.out)
    jsonschema.validate(document, SCHEMA)
    assert document["verdict"] == "error"
    assert document["error"].startswith("error[factory-raised]")
    assert main(["verify", "model.py:raises", "good.onnx", "--json", "failed.json"]) == 2
    assert json.loads(Path("failed.json").read_text()) == document


def test_what_was_measured_before_an_error_is_written(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from onnxproof.errors import Crashed
    from onnxproof.verification.case_runner import Trial

    honest, seen = Trial.run, []

    def dies_later(self: Trial, case: object) -> object:
        seen.append(case)
        if len(seen) > 5:
            raise Crashed("crashed", "the runtime's process died", help="look at its log")
        return honest(self, case)  # type: ignore[arg-type]

    monkeypatch.setattr(Trial, "run", dies_later)
    assert (
        main(["verify", "model.py:build", "good.onnx", "--json", "proof.json", "--budget", "4"])
        == 2
    )
    told = capfd.readouterr()
    document = json.loads(Path("proof.json").read_text())
    jsonschema.validate(document, SCHEMA)
    assert document["verdict"] == "error"
    assert len({gap["case"] for gap in document["gaps"]}) == 5
    assert "error[crashed]: the runtime's process died" in told.err


# ---------------------------------------------------------------- errors in words


def fails(capfd: pytest.CaptureFixture[str], *words: str) -> str:
    """Run, expect exit code 2 and no traceback, and give what was said."""
    assert main(words) == 2
    told = capfd.readouterr().err
    assert "Traceback" not in told
    return told


def test_a_file_that_is_not_there(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert "error[no-such-file]: there is no file `nowhere.onnx`" in fails(
        capfd, "verify", "model.py:build", "nowhere.onnx"
    )


def test_a_file_that_is_not_onnx(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    Path("text.onnx").write_text("version https://git-lfs.github.com/spec/v1\n" * 3)
    told = fails(capfd, "verify", "model.py:build", "text.onnx")
    assert "error[not-onnx]: this file" in told
    assert "--> text.onnx" in told
    assert "but a pointer of Git LFS" in told


def test_a_truncated_file(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    whole = Path("good.onnx").read_bytes()
    Path("half.onnx").write_bytes(whole[: len(whole) // 2])
    assert "error[not-onnx]: this file" in fails(capfd, "verify", "model.py:build", "half.onnx")


def test_external_data_that_is_missing(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    onnx.save_model(
        onnx.load("good.onnx"),
        "split.onnx",
        save_as_external_data=True,
        location="split.data",
        size_threshold=0,
    )
    Path("split.data").unlink()
    told = fails(capfd, "verify", "model.py:build", "split.onnx")
    assert (
        "error[external-data-missing]: the weights of this model are kept in `split.data`, which isn't there"
        in told
    )
    assert "copy the .data file beside the .onnx file" in told


def test_an_opset_that_is_too_new(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    linear(folder / "new.onnx", opset=99)
    told = fails(capfd, "verify", "model.py:build", "new.onnx")
    assert "error[opset-too-new]: onnxruntime" in told
    assert "lower opset_version" in told


def test_an_operator_that_the_runtime_lacks(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    linear(folder / "odd.onnx", op="Mystery", domain="com.example")
    told = fails(capfd, "verify", "model.py:build", "odd.onnx")
    assert "error[missing-operator]: onnxruntime" in told
    assert "Mystery" in told


def test_a_factory_that_raises(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    told = fails(capfd, "verify", "model.py:raises", "good.onnx")
    assert "error[factory-raised]: `raises()` raised FileNotFoundError: weights.pt" in told
    assert "model.py:" in told


def test_debug_shows_the_traceback(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "model.py:raises", "good.onnx", "--debug"]) == 2
    told = capfd.readouterr().err
    assert "Traceback (most recent call last)" in told
    assert told.rstrip().splitlines()[-1].startswith("  = help: ")


@pytest.mark.parametrize(
    ("subject", "words"),
    [
        ("model.py:wrong_rank", "error[rank-differs]"),
        (
            "model.py:wrong_size",
            "error[size-differs]: dim 1 of `input` is 6 in the example and fixed at 8 in the file",
        ),
        ("model.py:refused", "error[example-refused]: the reference refuses the example inputs"),
        ("model.py:nothing", "error[no-factory]: `model.py` has no `nothing`"),
        ("model.py:number", "error[bad-factory]: `number()` returned a int"),
        ("nowhere.py:build", "error[no-such-file]: there is no file `nowhere.py`"),
        ("no.such.package:build", "error[no-module]: `no.such.package` can't be imported"),
        ("model", "error[unknown-subject]: `model` is not something onnxproof can load"),
    ],
)
def test_a_subject_that_does_not_fit(
    folder: Path, capfd: pytest.CaptureFixture[str], subject: str, words: str
) -> None:
    assert words in fails(capfd, "verify", subject, "good.onnx")


def test_data_that_does_not_fit(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert "error[no-such-file]: there is no file `nowhere.npz`" in fails(
        capfd, "verify", "model.py:build", "good.onnx", "--data", "nowhere.npz"
    )
    Path("data.txt").write_text("1 2 3")
    assert "error[bad-data]: `data.txt` is not a data file" in fails(
        capfd, "verify", "model.py:build", "good.onnx", "--data", "data.txt"
    )


def test_a_backend_that_is_unknown(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    told = fails(capfd, "verify", "model.py:build", "good.onnx", "--backend", "abacus")
    assert "error[unknown-backend]: there is no backend `abacus`" in told
    assert "`onnxproof backends` lists them" in told


def test_a_backend_that_is_not_installed(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    monkeypatch.delitem(sys.modules, "onnxproof.runtimes.ort", raising=False)
    monkeypatch.delattr("onnxproof.runtimes.ort", raising=False)
    told = fails(capfd, "verify", "model.py:build", "good.onnx")
    assert (
        "error[backend-missing]: the backend `ort` needs a package that isn't installed: onnxruntime"
        in told
    )
    assert "pip install" in told


def test_a_provider_that_is_not_installed(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert "has no CUDAExecutionProvider" in fails(
        capfd, "verify", "model.py:build", "good.onnx", "--backend", "ort:cuda"
    )
    assert "error[unknown-provider]: `ort:abacus`" in fails(
        capfd, "verify", "model.py:build", "good.onnx", "--backend", "ort:abacus"
    )


def test_a_module_that_cannot_be_exported(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    told = fails(capfd, "export", "model.py:branch", "-o", "branch.onnx")
    assert (
        "error[export-failed]: torch can't export `branch`: its path through the code depends on the values of a tensor"
        in told
    )
    assert "`while x.norm() > 1:`" in told
    assert "tried branch: ValueError: the line is no `if` of a form that can be rewritten" in told
    assert "torch.where or torch.cond" in told


# ---------------------------------------------------------------- bad usage


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["verfy"], "error[unknown-command]: there is no command `verfy`"),
        (["verfy"], "did you mean `onnxproof verify`?"),
        (["verify"], "error[usage]: SUBJECT and MODEL are needed"),
        (["verify", "--bakend", "ort"], "error[usage]: no such option"),
        (["verify", "--bakend", "ort"], "--bakend"),
        (
            ["verify", "a:b", "c.onnx", "--budget", "soon"],
            "error[usage]: invalid value for '--budget'",
        ),
        (
            ["verify", "a:b", "c.onnx", "--budget", "0"],
            "error[bad-budget]: `--budget 0` leaves no time for a single case",
        ),
        (
            ["verify", "a:b", "c.onnx", "--atol", "-1"],
            "error[bad-threshold]: `--atol -1` makes no sense",
        ),
        (
            ["verify", "a:b", "c.onnx", "--noise-limit", "nan"],
            "error[bad-threshold]: `--noise-limit nan` makes no sense",
        ),
        (
            ["verify", "a:b", "c.onnx", "--domain", "odd"],
            "error[unknown-domain]: `--domain odd` is not known",
        ),
        (
            ["verify", "a:b", "c.onnx", "--dynamic", "x=batch"],
            "error[bad-dynamic]: `--dynamic x=batch` can't be understood",
        ),
        (
            ["verify", "a:b", "c.onnx", "--json", "no/such/folder/p.json"],
            "error[cannot-write]: there is no folder `no/such/folder`",
        ),
        (["diff", "a.onnx"], "error[usage]: missing argument"),
        (["diff", "a.pt", "b.onnx"], "error[not-onnx]: `a.pt` is not an .onnx file"),
        (["export", "a:b"], "error[usage]: missing option"),
    ],
)
def test_bad_usage_exits_2_with_words(
    folder: Path, capfd: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert said in fails(capfd, *words)


def test_no_words_at_all(capfd: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert capfd.readouterr().err == overview()


def test_the_overview_lists_every_command_and_every_exit_code(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert main(["--help"]) == 0
    told = capfd.readouterr().out
    assert all(name in told and about in told for name, about in commands().items())
    assert {"verify", "export", "diff", "backends", "demo"} <= set(commands())
    assert "exit codes: 0 faithful" in told


@pytest.mark.parametrize("name", sorted(commands()))
def test_every_command_has_help(capfd: pytest.CaptureFixture[str], name: str) -> None:
    assert main([name, "--help"]) == 0
    assert f"Usage: onnxproof {name}" in capfd.readouterr().out


def test_a_bug_is_never_a_verdict(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("onnxproof.api.verify", broken)
    told = fails(capfd, "verify", "model.py:build", "good.onnx", "--json", "proof.json")
    assert "error[internal]: ZeroDivisionError: division by zero" in told
    assert json.loads(Path("proof.json").read_text())["verdict"] == "error"


def test_ctrl_c_is_not_a_verdict(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("onnxproof.api.verify", stopped)
    assert "error[interrupted]: stopped by the user: there is no verdict" in fails(
        capfd, "verify", "model.py:build", "good.onnx"
    )


def test_a_factory_that_exits_is_not_a_verdict(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("leaves.py").write_text("import sys\n\n\ndef build():\n    sys.exit(0)\n")
    assert "error[exited]: the code of the reference ended the program: sys.exit(0)" in fails(
        capfd, "verify", "leaves.py:build", "good.onnx"
    )
