"""A layer that is quantized and runs in float is named, with the reason and with what was tried against it."""

from pathlib import Path

import onnx
import pytest
import torch
from support import eager_quantized
from torch.ao import quantization

import onnxproof
from onnxproof.diagnosis.remedy import Mended
from onnxproof.quantization.kernel_fallback import find_fallback
from onnxproof.quantization.speed_report import Speed, measure_speed
from onnxproof.results import Verdict
from onnxproof.results.proof import Proof


def write(path: Path, scheme: torch.qscheme) -> Path:
    """The net with its activations quantized by a scheme."""
    module, example = eager_quantized.build()
    observer = quantization.MinMaxObserver.with_args(dtype=torch.quint8, qscheme=scheme)
    config = quantization.QConfig(
        activation=observer, weight=quantization.default_per_channel_weight_observer
    )
    data = eager_quantized.ordinary(1)
    quantized = eager_quantized.convert(module, lambda prepared: prepared(data), config=config)
    return eager_quantized.write(quantized, example, path)


def test_a_relu_that_a_symmetric_rounding_can_not_hold(tmp_path: Path) -> None:
    finding = find_fallback(write(tmp_path / "m.onnx", torch.per_tensor_symmetric))
    assert finding is not None
    assert finding.what.startswith("1 of 2 layers are quantized and run in float on ort")
    assert "`/conv/Conv`: its Relu can't be part of the rounding" in finding.what
    assert "tried: 1 of 2 layers run as integers before, 2 after" in finding.help


def test_a_file_whose_layers_all_run_as_integers_has_none(tmp_path: Path) -> None:
    assert find_fallback(write(tmp_path / "m.onnx", torch.per_tensor_affine)) is None


def explained(path: Path, output: Path) -> tuple[Proof, Mended]:
    """The file beside its float module, with the mended file written where there is one."""
    module, example = eager_quantized.build()
    data = {"x": eager_quantized.ordinary(2).numpy()}
    mended = onnxproof.mend(module, path, output, example, data=data, budget_s=10)
    return onnxproof.explain(module, path, example, data=data, budget_s=10), mended


def test_the_fallback_of_a_sound_file_is_a_proven_cause_and_its_fix_is_written(
    tmp_path: Path,
) -> None:
    path, output = write(tmp_path / "m.onnx", torch.per_tensor_symmetric), tmp_path / "mended.onnx"
    proof, mended = explained(path, output)
    assert proof.verdict is Verdict.FAITHFUL
    (cause,) = proof.causes
    assert cause.code == "unfused" and cause.proven
    assert "1 of 2 layers run as integers before, 2 after" in cause.evidence
    assert cause.fix is not None and cause.fix.verdict is Verdict.FAITHFUL
    assert mended.path == output and find_fallback(output) is None


def test_a_sound_file_without_a_fallback_has_no_cause(tmp_path: Path) -> None:
    path, output = write(tmp_path / "m.onnx", torch.per_tensor_affine), tmp_path / "mended.onnx"
    proof, mended = explained(path, output)
    assert proof.verdict is Verdict.FAITHFUL and not proof.causes
    assert mended.path is None and not output.exists()


def test_the_same_model_twice_is_not_shown_to_be_faster(tmp_path: Path) -> None:
    model = onnx.load(write(tmp_path / "m.onnx", torch.per_tensor_affine))
    batch = {"x": eager_quantized.ordinary(2)[:1].numpy()}
    speed = measure_speed(model, model, batch, seconds=0.2)
    assert 0 < speed.low <= speed.ratio <= speed.high


@pytest.mark.parametrize(("high", "faster"), [(0.9, True), (1.1, False)])
def test_faster_is_what_nine_of_ten_turns_show(high: float, faster: bool) -> None:
    speed = Speed(float_s=1.0, quantized_s=0.8, ratio=0.8, low=0.7, high=high)
    assert speed.is_faster is faster
