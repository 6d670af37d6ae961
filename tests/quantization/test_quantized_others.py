"""Models that other tools quantized: proven when they are sound, explained when they are not. Quantized PyTorch modules are subjects too."""

import logging
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from support.quantized_faults import convnet, imbalanced, mlp, quick  # noqa: F401 quick works by being here
from torch import nn

import onnxproof
from onnxproof.exporter import export
from onnxproof.options import Policy
from onnxproof.reference import subject
from onnxproof.results import NoiseKind, Verdict

FINITE = Policy(domains=())


def images(rows: int = 64, shape: tuple[int, ...] = (3, 8, 8)) -> Any:
    return np.random.default_rng(0).standard_normal((rows, *shape)).astype(np.float32)


def floats(module: nn.Module, x: Any, path: Path) -> Path:
    export.write(
        subject.load(module, (torch.from_numpy(x[:2]),), dynamic_shapes=({0: "batch"},)), path
    )
    return path


def by_ort(source: Path, x: Any, target: Path, **options: Any) -> Path:
    from onnxruntime.quantization import CalibrationDataReader, quantize_static

    name = onnx.load(source).graph.input[0].name

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self._left = iter([{name: x[k : k + 8]} for k in range(0, len(x), 8)])

        def get_next(self) -> Any:
            return next(self._left, None)

    logging.disable(logging.WARNING)
    try:
        quantize_static(str(source), str(target), Reader(), **options)
    finally:
        logging.disable(logging.NOTSET)
    return target


def by_nncf(source: Path, x: Any, target: Path) -> Path:
    nncf = pytest.importorskip("nncf")
    model = onnx.load(source)
    name = model.graph.input[0].name
    logging.getLogger("nncf").setLevel(logging.ERROR)
    onnx.save(
        nncf.quantize(
            model, nncf.Dataset([{name: x[k : k + 1]} for k in range(len(x))]), subset_size=len(x)
        ),
        target,
    )
    return target


def proven(module: nn.Module, path: Path, x: Any, **options: Any) -> onnxproof.Proof:
    return onnxproof.verify(
        module,
        path,
        (torch.from_numpy(x[:2]),),
        dynamic_shapes=({0: "batch"},),
        data={"x": x},
        policy=FINITE,
        budget_s=30,
        **{"only": ("example", "data-data"), **options},
    )


@pytest.mark.parametrize("tool", [by_ort, by_nncf])
def test_a_sound_model_of_another_tool_is_faithful(tool: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module, x = convnet().eval(), images()
    proof = proven(
        module,
        tool(floats(module, x, tmp_path / "float.onnx"), x, tmp_path / "int8.onnx"),
        x,
        only=(),
    )
    assert (
        proof.verdict is Verdict.FAITHFUL and proof.quality() is not None and proof.quality() > 25
    ), proof.sentence()
    assert NoiseKind.SIMULATED in {gap.noise_kind for gap in proof.gaps}


@pytest.mark.parametrize(
    ("tool", "spoil", "cause"),
    [
        (by_ort, 1.0, "channel-imbalance"),
        (by_ort, 0.1, "calibration"),
        (by_nncf, 0.1, "calibration"),
    ],
)
def test_a_model_that_tanked_is_explained_whoever_made_it(
    tool: Any, spoil: float, cause: str, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    module, x = (imbalanced() if cause == "channel-imbalance" else convnet()).eval(), images()
    proof = proven(
        module,
        tool(
            floats(module, x, tmp_path / "float.onnx"),
            x * np.float32(spoil),
            tmp_path / "int8.onnx",
        ),
        x,
    )
    assert proof.verdict is Verdict.DIVERGED
    assert (proof.causes[0].code, proof.causes[0].proven) == (cause, True), [
        (c.code, c.evidence) for c in proof.causes
    ]
    assert proof.causes[0].fix is not None and proof.causes[0].fix.verdict is Verdict.FAITHFUL
    assert sum(step.share for step in proof.waterfall) == pytest.approx(1.0, abs=1e-6)


def pt2e(x: torch.Tensor, calibrate: torch.Tensor) -> tuple[nn.Module, Any]:
    """A float module, and what torchao's PT2E makes of it for x86."""
    pytest.importorskip("torchao")
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    torch.manual_seed(0)
    module = mlp().eval()
    program = torch.export.export(
        module, (x,), dynamic_shapes=({0: torch.export.Dim("batch", min=2)},)
    ).module()
    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config())
    prepared = prepare_pt2e(program, quantizer)
    prepared(calibrate)
    return module, convert_pt2e(prepared)


def pt2e_file(converted: Any, x: torch.Tensor, path: Path) -> Path:
    with export.quiet():
        torch.onnx.export(
            converted, (x,), str(path), dynamo=True, dynamic_shapes=({0: "batch"},), verbose=False
        )
    return path


def test_a_pt2e_export_is_compared_with_the_quantized_and_with_the_float_module(
    tmp_path: Path,
) -> None:
    x = torch.from_numpy(images(64, (16,)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module, converted = pt2e(x, x)
        path = pt2e_file(converted, x, tmp_path / "pt2e.onnx")
    against_float = proven(module, path, x.numpy())
    assert (
        against_float.verdict is Verdict.FAITHFUL
        and against_float.quality() is not None
        and against_float.quality() > 25
    ), against_float.sentence()
    against_itself = onnxproof.verify(
        converted,
        path,
        (x,),
        policy=FINITE,
        budget_s=30,
        only=("example", "ordinary-1"),
        explain=False,
    )
    assert not any(gap.noise_kind is NoiseKind.SIMULATED for gap in against_itself.gaps)
    assert against_itself.verdict in (Verdict.FAITHFUL, Verdict.DRIFT), against_itself.sentence()


def test_a_pt2e_model_calibrated_on_other_data_is_explained(tmp_path: Path) -> None:
    x = torch.from_numpy(images(64, (16,)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module, converted = pt2e(x, x * 0.1)
        path = pt2e_file(converted, x, tmp_path / "pt2e.onnx")
    proof = proven(module, path, x.numpy())
    assert proof.verdict is Verdict.DIVERGED
    assert (proof.causes[0].code, proof.causes[0].proven) == ("calibration", True), [
        (c.code, c.evidence) for c in proof.causes
    ]


class Eager(nn.Module):
    """A module for `torch.ao.quantization`."""

    def __init__(self) -> None:
        super().__init__()
        self.quant, self.dequant = (
            torch.ao.quantization.QuantStub(),
            torch.ao.quantization.DeQuantStub(),
        )
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dequant(self.body(self.quant(x)))


def eager(x: torch.Tensor, *, training: bool) -> tuple[nn.Module, nn.Module]:
    """The float module, and its static (or fake-quantized, trained) form."""
    torch.manual_seed(0)
    module = Eager().eval()
    import copy

    work = copy.deepcopy(module)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if training:
            work.train()
            work.qconfig = torch.ao.quantization.get_default_qat_qconfig("fbgemm", version=0)
            prepared = torch.ao.quantization.prepare_qat(work)
            prepared(x)
            prepared.eval().apply(torch.ao.quantization.disable_observer)
            return module, prepared
        torch.backends.quantized.engine = "fbgemm"
        work.qconfig = torch.ao.quantization.default_qconfig
        prepared = torch.ao.quantization.prepare(work)
        prepared(x)
        return module, torch.ao.quantization.convert(prepared)


@pytest.mark.parametrize("training", [False, True])
def test_eager_static_and_qat_modules_are_subjects(training: bool, tmp_path: Path) -> None:
    x = torch.from_numpy(images(16))
    module, quantized = eager(x, training=training)
    path = tmp_path / "eager.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with export.quiet():
            torch.onnx.export(
                quantized, (x,), str(path), dynamo=False, opset_version=17, input_names=["x"]
            )
    itself = onnxproof.verify(
        quantized, path, (x,), policy=FINITE, budget_s=30, only=("example",), explain=False
    )
    assert itself.verdict in (Verdict.FAITHFUL, Verdict.DRIFT), itself.sentence()
    against_float = onnxproof.verify(
        module, path, (x,), policy=FINITE, budget_s=30, only=("example",), explain=False
    )
    assert against_float.quality() is not None and against_float.quality() > 25, (
        against_float.sentence()
    )
