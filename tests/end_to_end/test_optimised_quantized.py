"""Quantized files that were saved after ONNX Runtime's own optimisation: sound ones pass, and a wrong scale in a fused operator does not."""

import contextlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)

import onnxproof
from onnxproof.onnxmodel import onnx_file
from onnxproof.results import Verdict
from onnxproof.runtimes import reference


class Mlp(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.norm = (
            torch.nn.Linear(16, 64),
            torch.nn.Linear(64, 8),
            torch.nn.LayerNorm(64),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.norm(torch.nn.functional.gelu(self.a(x))))


class Recurrent(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = torch.nn.LSTM(16, 32, batch_first=True), torch.nn.Linear(32, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(x)[0])


class _Samples(CalibrationDataReader):
    def __init__(self, name: str, shape: tuple[int, ...]) -> None:
        rng = np.random.default_rng(1)
        self._left = iter(
            [{name: rng.standard_normal(shape).astype(np.float32)} for _ in range(16)]
        )

    def get_next(self) -> Any:
        return next(self._left, None)


def _static(layout: QuantFormat) -> Callable[[Path, Path, str, tuple[int, ...]], None]:
    def quantize(source: Path, target: Path, name: str, shape: tuple[int, ...]) -> None:
        quantize_static(
            source,
            target,
            _Samples(name, shape),
            quant_format=layout,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )

    return quantize


WAYS: dict[str, Callable[[Path, Path, str, tuple[int, ...]], None]] = {
    "dynamic": lambda source, target, name, shape: quantize_dynamic(source, target),
    "QDQ": _static(QuantFormat.QDQ),
    "QOperator": _static(QuantFormat.QOperator),
}
MODELS: dict[str, Callable[[], tuple[torch.nn.Module, torch.Tensor]]] = {
    "mlp": lambda: (Mlp(), torch.randn(4, 16)),
    "attention": lambda: (
        torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.0),
        torch.randn(2, 6, 32),
    ),
    "recurrent": lambda: (Recurrent(), torch.randn(2, 5, 16)),
}


def _optimised(folder: Path, model: str, way: str) -> tuple[torch.nn.Module, torch.Tensor, Path]:
    """The module, its example, and the quantized file as ONNX Runtime saves it after all its fusions."""
    torch.manual_seed(3)
    module, x = MODELS[model]()
    plain, quantized, saved = (
        folder / "plain.onnx",
        folder / "quantized.onnx",
        folder / "optimised.onnx",
    )
    with contextlib.redirect_stdout(io.StringIO()):
        torch.onnx.export(module.eval(), (x,), plain, external_data=False, verbose=False)
    exported = onnx.load(plain)
    del exported.graph.value_info[
        :
    ]  # the quantizer turns weights around, and leaves the old shapes behind
    onnx.save(exported, plain)
    WAYS[way](plain, quantized, onnx.load(plain).graph.input[0].name, tuple(x.shape))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(saved)
    onnxruntime.InferenceSession(quantized, options, providers=["CPUExecutionProvider"])
    return module, x, saved


@pytest.mark.parametrize(
    ("model", "way"),
    [
        ("mlp", "dynamic"),
        ("mlp", "QDQ"),
        ("mlp", "QOperator"),
        ("attention", "dynamic"),
        ("attention", "QDQ"),
        ("recurrent", "dynamic"),
    ],
)
def test_an_optimised_quantized_file_is_sound(tmp_path: Path, model: str, way: str) -> None:
    module, x, path = _optimised(tmp_path, model, way)
    assert any(node.domain == "com.microsoft" for node in onnx.load(path).graph.node)
    assert onnx_file.read(path).quantized
    proof = onnxproof.verify(module, path, (x,), budget_s=4, explain=False)
    assert proof.verdict is Verdict.FAITHFUL, proof.sentence()
    if (
        model != "recurrent"
    ):  # DynamicQuantizeLSTM is simulated by ONNX Runtime without optimisation
        session = reference.open(path, "float64")
        assert session.run({session.input_names[0]: x.numpy()})[0] is not None, (
            "the simulation is our own"
        )


@pytest.mark.parametrize(
    ("model", "way", "kind"),
    [
        ("mlp", "dynamic", "DynamicQuantizeMatMul"),
        ("mlp", "QDQ", "QGemm"),
        ("attention", "dynamic", "DynamicQuantizeMatMul"),
    ],
)
def test_a_wrong_scale_in_a_fused_operator_is_caught(
    tmp_path: Path, model: str, way: str, kind: str
) -> None:
    module, x, path = _optimised(tmp_path, model, way)
    graph = onnx.load(path)
    node = [node for node in graph.graph.node if node.op_type == kind][-1]
    scale = next(
        t
        for t in graph.graph.initializer
        if t.name == node.input[2 if kind == "DynamicQuantizeMatMul" else 4]
    )
    scale.CopyFrom(
        onnx.numpy_helper.from_array(
            onnx.numpy_helper.to_array(scale) * np.float32(1.5), scale.name
        )
    )
    onnx.save(graph, path)
    proof = onnxproof.verify(module, path, (x,), budget_s=4, explain=False)
    assert proof.verdict in (Verdict.DRIFT, Verdict.DIVERGED), proof.sentence()
