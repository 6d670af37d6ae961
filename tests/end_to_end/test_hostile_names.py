"""Names with escape sequences, line breaks, workflow commands, bidi marks and links: nothing of that reaches a terminal, a log or a page."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from onnxproof.cli import main
from onnxproof.errors import OnnxproofError, SubjectError
from onnxproof.report.writers import json as json_writer
from onnxproof.results.proof import Proof
from onnxproof.system import text

EVIL = "\x1b[31mred\x1b]0;title\x07\n::error file=a.py,line=1::planted\r\n##[error]planted\u202eback\u2028\x9b2J](http://evil.example) `x` <b> @all"
"""Everything at once: colours, a window's title, two kinds of workflow commands, bidi, a C1 sequence, markup."""
RAW = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2028\u2029\u2066-\u2069\ufeff]"
)
ANSI = re.compile(r"\x1b\[[0-9;]*m")


def model(path: Path, *, slope: float, evil: str = EVIL) -> Path:
    """A small graph whose every name is hostile; `slope` tells two of them apart."""
    name = {
        kind: f"{kind}{evil}"
        for kind in ("in", "out", "mid", "weight", "node1", "node2", "dim", "graph")
    }
    weight = numpy_helper.from_array(
        np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32), name["weight"]
    )
    nodes = [
        helper.make_node(
            "MatMul",
            [name["in"], name["weight"]],
            [name["mid"]],
            name=name["node1"],
            doc_string=evil,
        ),
        helper.make_node(
            "LeakyRelu", [name["mid"]], [name["out"]], name=name["node2"], alpha=slope
        ),
    ]
    nodes[1].metadata_props.add(
        key="pkg.torch.onnx.stack_trace", value=f'File "{evil}.py", line 3, in forward\n    {evil}'
    )
    graph = helper.make_graph(
        nodes,
        name["graph"],
        [helper.make_tensor_value_info(name["in"], TensorProto.FLOAT, [name["dim"], 4])],
        [helper.make_tensor_value_info(name["out"], TensorProto.FLOAT, [name["dim"], 3])],
        [weight],
        doc_string=evil,
    )
    made = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=9,
        producer_name=evil,
        producer_version=evil,
        doc_string=evil,
    )
    made.metadata_props.add(key=evil, value=evil)
    onnx.save(made, path)
    return path


def problems(content: str, *, ours: bool = False, log: bool = True) -> Iterator[str]:
    """What would act: raw control characters, and lines that begin a workflow command which is not ours."""
    found = RAW.search(content)
    if found:
        yield f"U+{ord(found[0]):04X} in {content[max(0, found.start() - 60) : found.end() + 20]!r}"
    for line in content.split("\n"):
        if line.strip().startswith("::") and not (
            ours and re.match(r"::(error|warning|notice) [^:]*title=onnxproof", line)
        ):
            yield f"a command: {line[:100]!r}"
        if log and "##[" in line:
            yield f"an old command: {line[:100]!r}"


def check(content: str, *, ours: bool = False, log: bool = True) -> None:
    """Nothing acts; JSON and Python are read by programs, and only their lines must be no commands."""
    assert list(problems(content, ours=ours, log=log)) == []


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("names")
    return model(folder / "a.onnx", slope=0.1), model(folder / "b.onnx", slope=0.3)


WRITTEN = ("json", "html", "junit", "markdown", "sarif")


@pytest.fixture(scope="module")
def run(
    pair: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> tuple[subprocess.CompletedProcess[str], Path]:
    """One run of `explain` with every writer, a repro, and a workflow's annotations: native libraries write to the real streams, so it has its own."""
    folder = tmp_path_factory.mktemp("written")
    words = [
        "explain",
        *map(str, pair),
        "--repro",
        str(folder / "repro"),
        "--overlay",
        str(folder / "overlay.json"),
        "--budget",
        "20",
        "--github",
        "--verbose",
    ]
    words += [
        part for writer in WRITTEN for part in (f"--{writer}", str(folder / f"proof.{writer}"))
    ]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-m", "onnxproof.cli", *words],
        capture_output=True,
        text=True,
        timeout=300,
        env=environment,
        check=False,
        errors="surrogateescape",
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done, folder


def test_nothing_raw_reaches_the_streams(
    run: tuple[subprocess.CompletedProcess[str], Path],
) -> None:
    done, _ = run
    assert (
        "DIVERGED" in done.stdout
        and "node2<U+001B>[31mred" in done.stdout
        and "<U+000A>::error file=a.py" in done.stdout
    )
    check(done.stdout, ours=True)
    check(done.stderr)


@pytest.mark.parametrize(
    "name",
    [
        *(f"proof.{writer}" for writer in WRITTEN),
        "summary.md",
        "overlay.json",
        "repro/report.md",
        "repro/repro.py",
    ],
)
def test_nothing_raw_reaches_a_file(
    run: tuple[subprocess.CompletedProcess[str], Path], name: str
) -> None:
    content = (run[1] / name).read_text()
    assert "planted" in content
    check(content, log=not name.endswith(("json", "sarif", ".py")))


@pytest.mark.parametrize("name", ["proof.markdown", "summary.md", "repro/report.md"])
def test_no_name_is_markup(run: tuple[subprocess.CompletedProcess[str], Path], name: str) -> None:
    content = re.sub(
        r"^(`{3,}).*?^\1$", "", (run[1] / name).read_text(), flags=re.DOTALL | re.MULTILINE
    )  # code blocks are code
    content = re.sub(r"(`+) ?.*?(?<!`)\1(?!`)", "", content)  # and so are spans
    assert (
        not re.search(r"(?<!\\)\]\(http", content)
        and "<b>" not in content
        and not re.search(r"@all\b", content)
    )


def test_the_repro_prints_nothing_raw(run: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    done = subprocess.run(
        [sys.executable, str(run[1] / "repro" / "repro.py")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1 and "WRONG" in done.stdout
    check(done.stdout)
    check(done.stderr)


def test_a_stored_proof_is_no_way_round(
    run: tuple[subprocess.CompletedProcess[str], Path],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A proof's JSON comes from a file too: every text of it is hostile here."""

    def spoiled(value: object, key: str = "") -> object:
        if isinstance(value, dict):
            return {name: spoiled(item, name) for name, item in value.items()}
        if isinstance(value, list):
            return [spoiled(item, key) for item in value]
        free = key in (
            "what",
            "help",
            "evidence",
            "title",
            "case",
            "output",
            "reason",
            "error",
            "replay",
            "subject",
            "candidate",
            "text",
            "file",
            "module",
            "nodes",
            "about",
        )
        return f"{value}{EVIL}" if isinstance(value, str) and free else value

    path = tmp_path / "proof.json"
    path.write_text(json.dumps(spoiled(json.loads((run[1] / "proof.json").read_text()))))
    proof = json_writer.read(path)
    assert isinstance(proof, Proof) and EVIL in proof.candidate
    for words in (
        ["explain", str(path)],
        ["verify", "--from", str(path), "-v"],
        ["verify", "--from", str(path), "-q", "--github"],
        *(
            ["report", str(path), "-o", str(tmp_path / f"report.{ending}")]
            for ending in ("html", "md", "xml", "sarif")
        ),
    ):
        capfd.readouterr()
        main(words)
        out, err = capfd.readouterr()
        check(out, ours="--github" in words)
        check(err)
    for ending in ("html", "md", "xml", "sarif"):
        check((tmp_path / f"report.{ending}").read_text(), log=ending != "sarif")


@pytest.mark.parametrize(
    "words",
    [
        ["inspect", "{a}"],
        ["inspect", "{a}", "-q"],
        ["inspect", "{a}", "--json", "-"],
        ["diff", "{a}", "{a}", "--budget", "2", "-v"],
        ["diff", "{a}", "{b}", "--budget", "2", "-q", "--no-explain"],
        ["verify", "{a}", "{b}", "--budget", "2", "--no-explain", "--junit", "-"],
        ["diff", "{a}", "{b}", "--budget", "2", "--no-explain", "--markdown", "-"],
        ["diff", "{a}", "{b}", "--budget", "2", "--no-explain", "--html", "-"],
        ["diff", "{a}", "{a}", "--data", "{data}", "--budget", "2"],
    ],
)
def test_commands_show_and_never_obey(
    pair: tuple[Path, Path], tmp_path: Path, words: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data.npz"
    np.savez(data, **{f"in{EVIL}".replace("/", "_"): np.ones((2, 4))})
    main([word.format(a=pair[0], b=pair[1], data=data) for word in words])
    out, err = capfd.readouterr()
    assert out + err
    check(out, log="--json" not in words)
    check(err)


@pytest.mark.parametrize(
    "words",
    [
        ["verify", "{evil}", "m.onnx"],
        ["verify", "{evil}.pt2", "m.onnx"],
        ["verify", "m.py:build", "{evil}.onnx"],
        ["inspect", "{evil}.onnx"],
        ["report", "{evil}.json", "-o", "r.html"],
        ["verify", "--from", "{evil}.json"],
        ["{evil}"],
        ["verify", "--{evil}"],
        ["explain", "--cause", "{evil}"],
        ["verify", "a.onnx", "b.onnx", "--json", "{evil}/x"],
        ["verify", "a.onnx", "b.onnx", "--backend", "{evil}"],
    ],
)
def test_errors_show_and_never_obey(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    model(tmp_path / "a.onnx", slope=0.1)
    model(tmp_path / "b.onnx", slope=0.1)
    assert main([word.format(evil=EVIL.replace("/", "_")) for word in words]) == 2
    out, err = capfd.readouterr()
    assert err.startswith("error[") and "error[internal]" not in err
    check(out)
    check(err)


@given(st.text(max_size=80))
@settings(max_examples=300, deadline=None)
def test_whatever_goes_through_is_seen_and_does_nothing(name: str) -> None:
    shown = text.visible(name)
    assert "\n" not in shown and list(problems(f"x{shown}")) == []
    for several in (
        text.block(name),
        f"error: {text.lines(name)}",
        str(OnnxproofError("a", name, where=name, notes=[name], help=name)),
    ):
        assert list(problems(several)) == []
    if (
        name.isprintable()
        and "##[" not in name
        and not re.search("[\U000e0000-\U000e007f\ud800-\udfff\u2060-\u2065]", name)
    ):
        assert shown == name


def test_an_error_keeps_its_lines_apart() -> None:
    shown = str(
        SubjectError("bad-pt2", "torch says:\n::error::no\x1b[1m", where="a\nb", help="try\tit")
    )
    assert (
        shown
        == "error[bad-pt2]: torch says:\n  | ::error::no<U+001B>[1m\n  --> a\n  | b\n  = help: try    it"
    )


@pytest.mark.parametrize(
    ("name", "shown"), [("a`b", "`` a`b ``"), ("``", "``` `` ```"), ("a|b", "`a\\|b`")]
)
def test_code_in_markdown_ends_where_we_end_it(name: str, shown: str) -> None:
    assert text.code(name) == shown
