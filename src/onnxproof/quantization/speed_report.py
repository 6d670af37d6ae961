"""Whether a quantized file is faster than the float one, measured as a ratio in one run, and where it is not, why.

Times of a shared machine are noisy, and the noise falls on both models of a turn alike. So the ratio is taken turn by turn, and told with the range in which eight of
ten turns lie: a ratio of one within that range is no gain that was shown.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from onnxproof.quantization.kernel_fallback import find_float_layers
from onnxproof.quantization.kernel_report import KernelCounts, fast_pass, take_turns
from onnxproof.quantization.pair_form import in_pair_form
from onnxproof.quantization.saturation import has_vnni
from onnxproof.results import Finding

Array = np.ndarray[Any, Any]
_ROWS = 32
"""Rows of the larger batch that is tried where single samples gain nothing. Not measured."""
_SECONDS = 1.5
"""For that trial. Not measured."""
_SHORT_S = 1e-4
"""A float pass below this is calls of nodes more than it is sums: a conv net of 0.08 ms took 0.105 ms with all of its layers as integers. Not measured at twice of it."""
_GAIN = 0.9
"""The larger batch is told to gain where it takes less than this share of float's time. Not measured."""
_STORED = ("w8", "w4")
"""Schemes that store integers and compute in float."""
_MOST_NAMED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """A pass of the quantized model beside one of the float model."""

    float_s: float
    quantized_s: float
    ratio: float
    """Of the quantized one's time to the float one's: the median over turns."""
    low: float
    high: float
    """Eight of ten turns lie between the two."""

    @property
    def is_faster(self) -> bool:
        """True where nine of ten turns were faster than float."""
        return self.high < 1.0

    def __str__(self) -> str:
        """For people.

        >>> str(Speed(float_s=1e-3, quantized_s=2e-3, ratio=2.0, low=1.9, high=2.2))
        '2.00 times as long as float (1.90 to 2.20)'
        """
        return f"{self.ratio:.2f} times as long as float ({self.low:.2f} to {self.high:.2f})"


def measure_speed(
    plain: onnx.ModelProto,
    quantized: onnx.ModelProto,
    batch: Mapping[str, Array],
    seconds: float = 3.0,
) -> Speed:
    """Both models in turns, on one thread."""
    turns = take_turns([plain, quantized], batch, seconds=seconds)
    ratios = [
        float(np.median(after) / max(float(np.median(before)), 1e-9))
        for before, after in zip(*turns, strict=True)
    ]
    low, middle, high = np.percentile(ratios, [10, 50, 90]).tolist()
    return Speed(
        float_s=fast_pass(turns[0]),
        quantized_s=fast_pass(turns[1]),
        ratio=middle,
        low=low,
        high=high,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedQuestion:
    """What the reason for a lack of speed is looked for in."""

    speed: Speed
    scheme: str
    plain: onnx.ModelProto
    quantized: onnx.ModelProto
    census: KernelCounts
    batch: Mapping[str, Array]
    """A single sample, as the speed was measured with."""


def explain_speed(question: SpeedQuestion) -> list[Finding]:
    """A finding where the quantized file is not shown to be faster, with every reason that was seen; none where it is."""
    speed = question.speed
    if speed.is_faster:
        return []
    head = "a pass takes"
    if speed.low < 1.0:
        head = "not shown to be faster: a pass takes"
    reasons = [*_kernel_reasons(question), *_size_reasons(question)]
    if not has_vnni():
        reasons.append("this CPU has no VNNI, so that an integer product takes three instructions")
    if not reasons:
        reasons.append("no reason was found: every heavy node runs as integers")
    return [
        Finding(
            code="no-faster",
            what=f"{head} {speed}: {'; '.join(reasons)}",
            help=_advice(question),
        )
    ]


def _kernel_reasons(question: SpeedQuestion) -> Iterator[str]:
    """Nodes that run in float, and conversions on the way."""
    if question.scheme in _STORED:
        yield "the scheme stores weights as integers and computes in float: it is made for size"
        return
    integer, heavy = question.census.heavy
    if integer < heavy:
        yield f"{heavy - integer} of {heavy} heavy nodes run in float{_named(question)}"
    if question.census.conversions:
        yield f"{question.census.conversions} conversions between float and integers are left"


def _named(question: SpeedQuestion) -> str:
    layers = find_float_layers(in_pair_form(question.quantized), question.census)
    if not layers:
        return ""
    words = ", ".join(f"`{layer.node}`: {layer.reason}" for layer in layers[:_MOST_NAMED])
    return f" ({words})"


def _size_reasons(question: SpeedQuestion) -> Iterator[str]:
    """Small passes are calls of nodes more than they are sums: shown by a larger batch, where that gains."""
    larger = _with_rows(question)
    if larger is not None and larger.ratio < _GAIN and larger.ratio < question.speed.low:
        yield f"single samples are too small to gain: with {_ROWS} rows a pass takes {larger}"
    elif question.speed.float_s < _SHORT_S:
        yield f"a float pass takes {question.speed.float_s * 1e3:.2g} ms: calling the nodes weighs more than what they compute"


def _with_rows(question: SpeedQuestion) -> Speed | None:
    """The ratio at a larger batch; None where the graph takes no other."""
    dims: Sequence[Any] = question.plain.graph.input[0].type.tensor_type.shape.dim
    if not dims or dims[0].HasField("dim_value"):
        return None
    batch = {
        name: np.repeat(array[:1], _ROWS, 0) if array.ndim else array
        for name, array in question.batch.items()
    }
    try:
        return measure_speed(question.plain, question.quantized, batch, _SECONDS)
    except Exception:  # onnxruntime raises a dozen unrelated classes where a graph refuses a size
        return None


def _advice(question: SpeedQuestion) -> str:
    """What would be faster, as far as it is known."""
    if question.scheme in _STORED:
        return "--scheme u8s8 computes with integers; keep this file where size counts"
    integer, heavy = question.census.heavy
    if not heavy:
        return "nothing in this graph has an integer kernel: serve the float file"
    if integer < heavy and question.scheme != "u8s8":
        return "--scheme u8s8 is what ONNX Runtime has integer kernels for on x86; or serve the float file"
    return "serve the float file where single samples are asked for, or larger batches; time both on the machine that serves: `onnxproof bench`"
