"""What a user may choose: one definition for Python and the command line."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from onnxproof.errors import PolicyError
from onnxproof.results.verdicts import Domain


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """What an export may be asked for, beside the module and its example inputs."""

    dynamic: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    """Dims that must vary, with the names you give them; all other dims are still found out."""
    static: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Dims that must not vary."""
    ranges: Mapping[str, tuple[int | None, int | None]] = field(default_factory=dict)
    """Sizes that a named dim will ever have."""
    opset: int | None = None
    precision: str | None = None
    """`fp16` or `bf16`; nodes that can't bear it stay in float32."""
    external_data: bool | None = None
    """None decides by size."""
    input_names: tuple[str, ...] = ()
    output_names: tuple[str, ...] = ()
    optimize: str | None = None
    """`onnxslim` or `onnxscript`, verified against the unoptimised file."""
    pipeline: Any = None
    """The preprocessing that deployment will use: a callable, or `deploy.py:preprocess`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How gaps become a verdict: data, so that a stored proof can be judged again under another one."""

    noise_limit: float = 12.0
    """Beyond noise: the rms error is more than this many times the noise. Evidence: docs/verdict.md."""
    worst_limit: float = 24.0
    """The same for the worst element against the worst element of the noise."""
    bias_limit: float = 2.0
    """The same for the graph's own arithmetic in float64, where no rounding blurs it: asked where a gap is not plainly noise."""
    atol: float = 1e-4
    rtol: float = 1e-3
    strict: bool = False
    strict_domains: bool = False
    drift_db: float = 25.0
    """Quantized candidates: output SQNR below this is DRIFT."""
    diverged_db: float = 15.0
    twin_db: float = 35.0
    """Where the reference is quantized as well, output SQNR below this is DRIFT: the two round alike."""
    clip_limit: float = 1e-2
    """Quantized candidates: a larger share of ordinary input values beyond the first rounding's range is DRIFT."""
    runtime_limit: float = 2.0
    """Quantized candidates: what the runtime adds, in units of what the graph's own quantization costs. Evidence: docs/quantize.md."""
    domains: tuple[Domain, ...] = (Domain.NAN, Domain.INF, Domain.TIES, Domain.EMPTY, Domain.MASKED)
    """Odd domains to look into; `--domain finite` empties it."""

    def __post_init__(self) -> None:
        """Refuse limits that nothing can keep: a ratio is divided by them."""
        for name in ("noise_limit", "worst_limit", "bias_limit", "runtime_limit"):
            if not getattr(self, name) > 0:
                raise PolicyError(
                    "bad-threshold",
                    f"`{name}` is {getattr(self, name):g}",
                    help="a limit is a number above 0",
                )
        for name in ("atol", "rtol", "clip_limit"):
            if not getattr(self, name) >= 0:
                raise PolicyError(
                    "bad-threshold",
                    f"`{name}` is {getattr(self, name):g}",
                    help="a tolerance is a number of at least 0",
                )
        for name in ("drift_db", "diverged_db", "twin_db"):
            if math.isnan(getattr(self, name)):
                raise PolicyError(
                    "bad-threshold",
                    f"`{name}` is {getattr(self, name):g}",
                    help="give it in decibels",
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """How backends are run: apart or not, within which limits, and whether a fallback is forgiven."""

    isolate: bool | None = None
    """True: each in a process of its own; False: none; None: each backend that may crash."""
    allow_fallback: bool = False
    """A provider that is missing, or nodes that run elsewhere, are reported instead of refused."""
    time_s: float = 60.0
    """Seconds that one forward pass may take, in a process of its own or in this one; four times the reference's own pass at least."""
    open_s: float = 300.0
    """Seconds that opening a model may take there."""
    memory_gb: float | None = None
    """Memory that such a process may hold, or that a run in this process may add; None is three quarters of the machine's in all."""
    threads: int | None = None
    """Threads that each runtime may use; None leaves it to the runtime."""
