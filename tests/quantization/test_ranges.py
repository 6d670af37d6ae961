"""The ranges of a quantized model on data that did not choose them: what they clip, what they leave unused, and who is told."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from support.quantized_faults import convnet, mlp

import onnxproof
from onnxproof.exporter import export
from onnxproof.options import Policy
from onnxproof.quantization.calibration.observe import is_held_out, observe
from onnxproof.quantization.calibration.observer import Observer
from onnxproof.quantization.calibration.range_coverage import examine, measure_coverage
from onnxproof.quantization.float_graph import prepare
from onnxproof.quantization.insert_qdq import HEAVY, Plan, choose, insert
from onnxproof.reference import subject
from onnxproof.report import quantized as report
from onnxproof.report import terminal

RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def source(tmp_path_factory: Any) -> Path:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("net") / "float.onnx"
    export.write(
        subject.load(mlp().eval(), (torch.randn(2, 16),), dynamic_shapes=({0: "batch"},)), path
    )
    return path


@pytest.mark.parametrize(
    ("range_", "clipped", "unused", "code"),
    [
        ((-1.0, 1.0), 0.317, 0.0, "range-clips"),
        ((-40.0, 40.0), 0.0, 0.9, "range-unused"),
        ((-5.0, 5.0), 0.0, 0.2, ""),
    ],
)
def test_a_planted_range_is_measured_and_told(
    source: Path, range_: tuple[float, float], clipped: float, unused: float, code: str
) -> None:
    model = prepare(source)
    name = model.graph.input[0].name
    samples = [(str(k), {name: RNG.standard_normal((64, 16)).astype(np.float32)}) for k in range(8)]
    seen = observe(Observer(model), iter(samples)).merged_statistics()
    ranges = {value: (stats.low, stats.high) for value, stats in seen.items()} | {name: range_}
    made = insert(model, ranges, Plan(nodes=choose(model, HEAVY))).model
    found = measure_coverage(made, samples, model)
    mine = next(r for r in found if r.tensor == name)
    assert (
        mine.values == 8 * 64 * 16
        and mine.clipped == pytest.approx(clipped, abs=0.02)
        and mine.unused == pytest.approx(unused, abs=0.1)
    )
    told = {f.code: f.what for f in examine(found, ())}
    assert set(told) == ({code} if code else set())
    assert "range-clips" not in {
        f.code for f in examine(found, found)
    }  # what it clips where it was chosen, a calibrator gave up on purpose
    if code:
        assert f"`{name}`" in told[code] and "samples that no range was chosen by" in told[code]


def test_a_relu_that_is_part_of_the_rounding_clips_nothing(tmp_path: Path) -> None:
    torch.manual_seed(0)
    export.write(
        subject.load(convnet().eval(), (torch.randn(2, 3, 8, 8),), dynamic_shapes=({0: "batch"},)),
        tmp_path / "float.onnx",
    )
    result = quantized(
        tmp_path / "float.onnx",
        tmp_path / "int8.onnx",
        [{"x": RNG.standard_normal((32, 3, 8, 8)).astype(np.float32)} for _ in range(10)],
    )
    assert not any(
        node.op_type == "Relu" for node in onnx.load(result.path).graph.node
    )  # their roundings do it
    assert len(result.proof.ranges) >= 4 and all(
        found.clipped < 1e-3 and found.low >= 0
        for found in result.proof.ranges
        if "relu" in found.tensor
    )
    assert not [finding for finding in result.findings if finding.code.startswith("range-")]


def test_ranges_never_see_the_batches_that_are_held_out(source: Path, tmp_path: Path) -> None:
    batches = [
        {
            "input": RNG.standard_normal((32, 16)).astype(np.float32)
            * np.float32(8 if is_held_out(k) else 1)
        }
        for k in range(10)
    ]
    result = quantized(source, tmp_path / "int8.onnx", batches)
    assert (
        result.proof.ranges[0].clipped > 0.3
        and result.proof.ranges[0].high > 2 * result.proof.ranges[0].chosen_high
    )
    assert "range-clips" in {f.code for f in result.findings}
    result.to_json(tmp_path / "r.json")
    first = json.loads((tmp_path / "r.json").read_text())["proof"]["ranges"][0]
    assert (
        first["clipped"] == pytest.approx(result.proof.ranges[0].clipped)
        and first["tensor"] == result.proof.ranges[0].tensor
    )


def test_outliers_that_stretch_a_range_are_told_and_shown_in_every_report(
    source: Path, tmp_path: Path, capsys: Any
) -> None:
    batches = [{"input": RNG.standard_normal((32, 16)).astype(np.float32)} for _ in range(10)]
    batches[0]["input"][0, 0] = 60.0
    result = quantized(source, tmp_path / "int8.onnx", batches)
    worst = max(result.proof.ranges, key=lambda r: r.unused)
    assert worst.tensor == "input" and worst.unused > 0.8
    assert "of the range of `input` is unused on samples that no range was chosen by" in next(
        f.what for f in result.findings if f.code == "range-unused"
    )
    report.show(result, terminal.console())
    told = " ".join(capsys.readouterr().out.split())
    assert "clips unused" in told and f"{worst.unused:.0%}" in told
    result.proof.to_html(tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert 'data-from="ranges"' in page and f"{worst.unused:.0%}" in page


def quantized(source: Path, output: Path, batches: Any) -> onnxproof.Quantized:
    result = onnxproof.quantize(
        source,
        output,
        calibration=batches,
        recipes=(),
        calibrator="min-max",
        budget=onnxproof.Budget(seconds=20, min_sqnr=0),
        proof_s=1.0,
        policy=Policy(domains=()),
    )
    assert onnx.load(result.path).graph.node
    return result
