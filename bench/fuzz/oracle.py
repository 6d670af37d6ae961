"""Do two files answer alike on the base model's own example? Asked of plain ONNX Runtime, knowing nothing of onnxproof."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
_LIMITS = {"float16": 2e-2, "bfloat16": 1e-1, "float32": 3e-5, "float64": 3e-5}
"""Root mean square of the difference over that of the answer. The base models' own rounding is 1e-7 in float32 and 5e-4 in half: far below."""
_QUANTIZED = 0.3
"""The same where a file is quantized: FAITHFUL is then said of answers some 20 dB above the error."""
_NOISE = 20.0
"""Times what the optimiser itself changes in the original."""


def differs(
    original: Path,
    damaged: Path,
    example: Mapping[str, Array],
    *,
    quantized: bool,
    backwards: bool = False,
) -> str:
    """In which way the answers differ at both levels of optimisation; an empty string where they don't.

    `backwards` makes the damaged file the reference: where that is not finite, nothing is asked of the other.
    """
    plain, optimised = (_answers(original, example, level) for level in ("DISABLE", "ENABLE"))
    reasons = []
    for level, right in (("DISABLE", plain), ("ENABLE", optimised)):
        try:
            found = _answers(damaged, example, level)
        except (
            Exception
        ):  # the runtime's own classes; a file that it refuses gives no answers that could differ
            return ""
        first, second = (found, right) if backwards else (right, found)
        reasons.append(_compared(first, second, _noise(plain, optimised), quantized))
    return reasons[0] if all(reasons) else ""


def _answers(path: Path, example: Mapping[str, Array], level: str) -> dict[str, Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = getattr(
        onnxruntime.GraphOptimizationLevel, f"ORT_{level}_ALL"
    )
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [port.name for port in session.get_inputs()]
    feeds = (
        {name: example[name] for name in names}
        if set(names) <= set(example)
        else dict(zip(names, example.values(), strict=False))
    )
    outputs = [port.name for port in session.get_outputs()]
    return dict(zip(outputs, session.run(None, feeds), strict=True))


def _noise(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, float]:
    return {
        name: _rms(np.asarray(value, np.float64) - np.asarray(second[name], np.float64))
        for name, value in first.items()
        if isinstance(value, np.ndarray) and value.dtype.kind == "f"
    }


def _compared(
    right: Mapping[str, Any], found: Mapping[str, Any], noise: Mapping[str, float], quantized: bool
) -> str:
    if len(found) < len(right):
        return f"{len(found)} outputs of {len(right)}"
    by_name = set(right) <= set(found)
    for place, (name, value) in enumerate(right.items()):
        other = found[name] if by_name else list(found.values())[place]
        if reason := _one(value, other, noise.get(name, 0.0), quantized):
            return f"{name}: {reason}"
    return ""


def _one(value: Any, other: Any, noise: float, quantized: bool) -> str:
    if isinstance(value, list):
        if not isinstance(other, list) or len(value) != len(other):
            return "another sequence"
        return next(
            (
                reason
                for a, b in zip(value, other, strict=True)
                if (reason := _one(a, b, noise, quantized))
            ),
            "",
        )
    value, other = np.asarray(value), np.asarray(other)
    if value.shape != other.shape:
        return f"shape {other.shape} for {value.shape}"
    if value.dtype.kind != "f":
        return (
            ""
            if value.dtype == other.dtype and bool((value == other).all())
            else "other integers, flags or words"
        )
    if other.dtype.kind != "f":
        return f"{other.dtype} for {value.dtype}"
    right, wrong = value.astype(np.float64), other.astype(np.float64)
    if not np.isfinite(wrong[np.isfinite(right)]).all():
        return "not finite"
    both = np.isfinite(right) & np.isfinite(wrong)
    limit = _QUANTIZED if quantized else _LIMITS[value.dtype.name]
    error, scale = _rms((right - wrong)[both]), _rms(right[both])
    return f"error {error:.3g} of {scale:.3g}" if error > max(limit * scale, _NOISE * noise) else ""


def _rms(values: Array) -> float:
    return float(np.sqrt(np.mean(np.square(values)))) if values.size else 0.0
