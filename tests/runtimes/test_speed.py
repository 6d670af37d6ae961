"""`onnxproof bench`: every backend per batch size with PyTorch beside it, and what fails is told without hiding the rest."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from onnxproof import testing
from onnxproof.cli import main
from onnxproof.errors import InputError, Refused
from onnxproof.options import Serving
from onnxproof.reference.subject import load
from onnxproof.runtimes import open_session
from onnxproof.runtimes.session import speed
from onnxproof.testing import _models


class Linear(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x))


@pytest.fixture
def linear(tmp_path: Path) -> Path:
    return _models.linear_model(tmp_path)[0]


def test_each_backend_is_timed_at_each_batch_with_pytorch_as_the_baseline(linear: Path) -> None:
    threads = torch.get_num_threads()
    made = speed.bench(
        linear,
        ("ort", "ort:disabled"),
        reference=load(Linear().eval(), (torch.randn(2, 4),)),
        batches=(1, 8),
        seconds=0.02,
        serving=Serving(threads=1),
    )
    assert [(t.backend, t.batch) for t in made.timings] == [
        (name, batch) for batch in (1, 8) for name in ("pytorch", "ort", "ort:disabled")
    ]
    assert made.baseline == "pytorch" and {
        t.ratio for t in made.timings if t.backend == "pytorch"
    } == {1.0}
    for timing in made.timings:
        base = next(t for t in made.timings if t.backend == "pytorch" and t.batch == timing.batch)
        assert timing.runs >= 5 and timing.p10_s <= timing.median_s <= timing.p90_s
        assert timing.ratio == pytest.approx(
            base.median_s / timing.median_s
        ) and timing.per_second == pytest.approx(timing.batch / timing.median_s)
    assert torch.get_num_threads() == threads, "torch is left as it was found"


def test_every_backend_gets_the_same_rows(linear: Path) -> None:
    seen: list[tuple[int, ...]] = []

    def look(session: object, inputs: object) -> list[np.ndarray]:
        seen.append(inputs["x"].shape)  # type: ignore[index]
        return session.run(inputs)  # type: ignore[attr-defined,no-any-return]

    with testing.fake_backend("looks", look):
        speed.bench(linear, ("looks",), batches=(3,), seconds=0.001)
    assert set(seen) == {(3, 4)}


def test_a_backend_that_fails_hides_no_other(linear: Path) -> None:
    def fails_later(session: object, inputs: object) -> list[np.ndarray]:
        if inputs["x"].shape[0] > 1:  # type: ignore[index]
            raise Refused("refused", "one row is all I take")
        return session.run(inputs)  # type: ignore[attr-defined,no-any-return]

    with testing.fake_backend("small", fails_later):
        made = speed.bench(linear, ("small", "ort"), batches=(1, 2), seconds=0.01)
    assert made.failed == (("small", 2, "one row is all I take"),)
    assert [(t.backend, t.batch) for t in made.timings] == [("small", 1), ("ort", 1), ("ort", 2)]


def test_a_session_apart_is_timed_there(linear: Path) -> None:
    session = open_session("ort", linear, Serving(isolate=True))
    observed = session.run_observed({"x": np.ones((2, 4), np.float32)})  # type: ignore[attr-defined]
    session.close()
    assert observed.seconds > 0 and observed.overwritten == ()


def test_a_fixed_batch_is_told(tmp_path: Path, linear: Path) -> None:
    model = onnx.load(linear)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2
    onnx.save(model, tmp_path / "fixed.onnx")
    assert {
        t.batch for t in speed.bench(tmp_path / "fixed.onnx", ("ort",), seconds=0.01).timings
    } == {2}
    with pytest.raises(InputError, match="takes batches of 2 only"):
        speed.bench(tmp_path / "fixed.onnx", ("ort",), batches=(4,))


def test_the_command_prints_a_table_and_writes_json(
    linear: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(
            [
                "bench",
                str(linear),
                "--backend",
                "ort",
                "--backend",
                "ort:basic",
                "--batch",
                "1,4",
                "--seconds",
                "0.01",
                "--json",
                str(tmp_path / "t.json"),
            ]
        )
        == 0
    )
    said = capsys.readouterr()
    assert "median ms" in said.out and "x ort" in said.out and "batch 4" in said.err
    assert [
        (t["backend"], t["batch"]) for t in json.loads((tmp_path / "t.json").read_text())["timings"]
    ] == [("ort", 1), ("ort:basic", 1), ("ort", 4), ("ort:basic", 4)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--batch", "none"], "bad-batch"),
        (["--seconds", "0"], "bad-seconds"),
        (["--threads", "0"], "bad-limit"),
        (["--backend", "torch"], "not-a-runtime"),
        (["--batch", "0"], "bad-batch"),
    ],
)
def test_bad_words(
    words: list[str], said: str, linear: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", str(linear), *words]) == 2
    assert f"error[{said}]" in capsys.readouterr().err
