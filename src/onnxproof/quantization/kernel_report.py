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

from onnxproof.onnxmodel import large_models
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
_PASSES = 5
"""Passes of a model in one turn (not measured)."""
_WARM_UP = 3
"""Turns that are not measured: the first passes allocate."""

_WEIGHTS_BESIDE = "session.optimized_model_external_initializers_file_name"
"""A setting of ONNX Runtime: where the weights of an optimised graph go, so that one of any size can be written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCounts:
    """The heavy nodes of the graph as the runtime runs it."""

    integer: Mapping[str, int] = field(default_factory=dict)
    """Integer kernels by operator."""
    fallback: Mapping[str, int] = field(default_factory=dict)
    """Heavy operators that run in float."""
    conversions: int = 0
    """Q and DQ nodes that are left: each is a pass over memory."""
    fell_back: tuple[str, ...] = ()
    """Names of the heavy nodes that run in float."""
    float_outputs: frozenset[str] = frozenset()
    """What they give."""

    @property
    def heavy(self) -> tuple[int, int]:
        """Integer kernels of heavy operators, of how many heavy operators."""
        integer = sum(
            count
            for op_type, count in self.integer.items()
            if any(part in op_type for part in ("Conv", "MatMul", "Gemm", "LSTM", "Attention"))
        )
        return integer, integer + sum(self.fallback.values())


def count_kernels(model: onnx.ModelProto | Path) -> KernelCounts:
    """Let the runtime optimise the graph, and count its kernels."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    with temporary.Folder() as folder:
        options.optimized_model_filepath = str(Path(folder) / "optimized.onnx")
        options.add_session_config_entry(_WEIGHTS_BESIDE, "optimized.data")
        ort.native(_source(model, Path(folder)), options)
        nodes = list(
            onnx.load(options.optimized_model_filepath, load_external_data=False).graph.node
        )
    counts = Counter(node.op_type for node in nodes)
    return KernelCounts(
        integer={op: count for op, count in sorted(counts.items()) if op in INTEGER},
        fallback={op: count for op, count in sorted(counts.items()) if op in _HEAVY},
        conversions=counts["QuantizeLinear"] + counts["DequantizeLinear"],
        fell_back=tuple(node.name for node in nodes if node.op_type in _HEAVY),
        float_outputs=frozenset(
            name for node in nodes if node.op_type in _HEAVY for name in node.output if name
        ),
    )


def latencies(
    models: Sequence[onnx.ModelProto | Path],
    batch: Mapping[str, Array],
    *,
    rounds: int = 40,
    seconds: float = 3.0,
) -> list[float]:
    """Seconds of one pass of each model on one thread, measured in turns so that a busy machine slows all alike.

    The 20th percentile is given: passes that were interrupted lie above it (not measured against others).
    """
    times = take_turns(models, batch, rounds=rounds, seconds=seconds)
    return [fast_pass(measured) for measured in times]


def fast_pass(turns: Sequence[Sequence[float]]) -> float:
    """The 20th percentile of all passes."""
    return float(np.percentile([spent for turn in turns for spent in turn], 20))


def take_turns(
    models: Sequence[onnx.ModelProto | Path],
    batch: Mapping[str, Array],
    *,
    rounds: int = 40,
    seconds: float = 3.0,
) -> list[list[list[float]]]:
    """Seconds of each pass, by model and turn; in every turn each model has five passes."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    folders = [temporary.Folder() for _ in models]
    pairs = zip(models, folders, strict=True)
    sessions = [ort.native(_source(model, folder.path), options) for model, folder in pairs]
    times: list[list[list[float]]] = [[] for _ in sessions]
    end = time.perf_counter() + seconds
    inputs = dict(batch)
    for turn in range(_WARM_UP + rounds):
        for place, session in enumerate(sessions):
            passes = [_time_pass(session, inputs) for _ in range(_PASSES)]
            if turn >= _WARM_UP:
                times[place].append(passes)
        if time.perf_counter() > end and turn > 8:
            break
    return times


def _time_pass(session: Any, inputs: dict[str, Array]) -> float:
    start = time.perf_counter()
    session.run(None, inputs)
    return time.perf_counter() - start


def _source(model: onnx.ModelProto | Path, folder: Path) -> Path | bytes:
    """What a session is opened from; a large graph is written to the folder first."""
    if isinstance(model, Path):
        return model
    if large_models.is_large(model):
        return large_models.save(model, folder / "model.onnx")[0]
    return bytes(model.SerializeToString())
