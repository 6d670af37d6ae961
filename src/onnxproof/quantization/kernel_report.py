"""Which nodes really run as integer kernels on this runtime, which fell back to float, and how long a pass takes."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

from onnxproof.runtimes import ort
from onnxproof.system import temporary

Array = np.ndarray[Any, Any]
INTEGER = frozenset(
    {
        "QLinearConv",
        "QLinearMatMul",
        "QGemm",
        "QLinearAdd",
        "QLinearMul",
        "QLinearAveragePool",
        "QLinearGlobalAveragePool",
        "QLinearConcat",
        "QLinearSigmoid",
        "QLinearLeakyRelu",
        "QLinearSoftmax",
        "QLinearWhere",
        "QLinearReduceMean",
        "MatMulIntegerToFloat",
        "MatMulInteger",
        "ConvInteger",
        "DynamicQuantizeMatMul",
        "DynamicQuantizeLSTM",
        "MatMulNBits",
        "QAttention",
        "QLinearConvTranspose",
    }
)
"""Kernels that compute on integers."""
_HEAVY = frozenset(
    {
        "Conv",
        "FusedConv",
        "ConvTranspose",
        "MatMul",
        "Gemm",
        "FusedMatMul",
        "FusedGemm",
        "LSTM",
        "GRU",
        "NhwcFusedConv",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Census:
    """The heavy nodes of the graph as the runtime runs it."""

    integer: Mapping[str, int] = field(default_factory=dict)
    """Integer kernels by operator."""
    fallback: Mapping[str, int] = field(default_factory=dict)
    """Heavy operators that run in float."""
    conversions: int = 0
    """Q and DQ nodes that are left: each is a pass over memory."""
    fell_back: tuple[str, ...] = ()
    """Names of the heavy nodes that run in float."""

    @property
    def heavy(self) -> tuple[int, int]:
        """Integer kernels of heavy operators, of how many heavy operators."""
        done = sum(
            count
            for kind, count in self.integer.items()
            if any(word in kind for word in ("Conv", "MatMul", "Gemm", "LSTM", "Attention"))
        )
        return done, done + sum(self.fallback.values())


def census(model: onnx.ModelProto | Path) -> Census:
    """Let the runtime optimise the graph, and count what came of it."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    with temporary.Folder() as folder:
        options.optimized_model_filepath = str(Path(folder) / "optimized.onnx")
        ort.native(_source(model), options)
        nodes = list(
            onnx.load(options.optimized_model_filepath, load_external_data=False).graph.node
        )
    kinds = Counter(node.op_type for node in nodes)
    return Census(
        integer={kind: count for kind, count in sorted(kinds.items()) if kind in INTEGER},
        fallback={kind: count for kind, count in sorted(kinds.items()) if kind in _HEAVY},
        conversions=kinds["QuantizeLinear"] + kinds["DequantizeLinear"],
        fell_back=tuple(n.name for n in nodes if n.op_type in _HEAVY),
    )


def latencies(
    models: Sequence[onnx.ModelProto | Path],
    batch: Mapping[str, Array],
    *,
    rounds: int = 40,
    seconds: float = 3.0,
) -> list[float]:
    """Seconds of one pass of each model on one thread, measured in turns so that a busy machine slows all alike."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads, options.inter_op_num_threads = 4, 1, 1
    sessions = [ort.native(_source(model), options) for model in models]
    times: list[list[float]] = [[] for _ in sessions]
    end = time.perf_counter() + seconds
    fed = dict(batch)
    for turn in range(rounds + 3):
        for place, session in enumerate(sessions):
            for _repeat in range(5):
                start = time.perf_counter()
                session.run(None, fed)
                if turn >= 3:
                    times[place].append(time.perf_counter() - start)
        if time.perf_counter() > end and turn > 8:
            break
    return [float(np.percentile(found, 20)) for found in times]


def _source(model: onnx.ModelProto | Path) -> Path | bytes:
    return model if isinstance(model, Path) else model.SerializeToString()
