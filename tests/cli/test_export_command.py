"""`onnxproof export` as it is typed: dims in the words of the command line, the table of dims before the verdict, the line that fixed each."""

from pathlib import Path

import onnx
import pytest

from onnxproof.cli import main

MODEL = """
import torch


class Net(torch.nn.Module):
    def forward(self, x, y):
        if x.shape[0] > 3:
            return x.cumsum(0).sum(1) + y
        if x.shape[1] == 6:
            return x.sum(1) + y
        return x.sum(1) - y


def build():
    return Net(), (torch.randn(2, 6), torch.randn(2))
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "model.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def export(*words: str) -> int:
    return main(
        ["export", "model.py:build", "-o", "m.onnx", "--budget", "1.5", "--no-explain", *words]
    )


def test_the_table_of_dims_comes_before_the_verdict_with_the_line_that_fixed_each(
    place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert export() == 1
    said = capfd.readouterr().out
    assert (
        "fixed at 6" in said
        and "model.py:9: `if x.shape[1] == 6:`" in " ".join(said.split())
        and "the module itself takes other sizes" in " ".join(said.split())
    )
    assert (
        "assumed: batch <= 3 at model.py:7: `if x.shape[0] > 3:`; inside (batch 3): it answers as the module does; outside (batch 4):"
        in said
    )
    assert said.index("fixed at 6") < said.index("DIVERGED")


def test_names_fixed_dims_and_ranges_are_taken_from_the_words(
    place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert export("--dynamic", "x:0=rows,y:0=rows", "--static", "x:1", "--dim", "rows=1..3") == 0
    said = capfd.readouterr().out
    assert (
        "rows (1 to 3)" in said
        and "the range you gave" in said
        and "you asked for it" in said
        and "FAITHFUL" in said
    )
    shapes = {
        port.name: [dim.dim_param or dim.dim_value for dim in port.type.tensor_type.shape.dim]
        for port in onnx.load("m.onnx").graph.input
    }
    assert shapes == {"x": ["rows", 6], "y": ["rows"]}


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--dynamic", "z:0=rows"), "error[unknown-input]: there is no input `z`"),
        (("--dim", "batch=3.1"), "error[bad-dim]: `--dim batch=3.1` can't be understood"),
        (("--static", "x:7"), "error[unknown-axis]: `x` has no axis 7"),
    ],
)
def test_words_that_can_not_be_followed_are_told_and_leave_no_file(
    place: Path, capfd: pytest.CaptureFixture[str], words: tuple[str, ...], code: str
) -> None:
    assert export(*words) == 2
    assert code in capfd.readouterr().err and not (place / "m.onnx").exists()
