"""What a user may choose: one definition for Python and the command line."""

import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypedDict

from onnxproof.errors import PolicyError, UsageError
from onnxproof.results.verdicts import Domain

TARGETS = {"fp16": "float16", "bf16": "bfloat16", "tf32": "tf32"}
"""What the user calls a device that will run a file, and the precision that it computes in."""


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
    with_cache: bool = False
    """A Hugging Face model that generates, with its cache, as a folder of files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """What one input is: the values that it may have, and its dtype and shape where there is no example.

    >>> Input(values=(8000, 16000)), Input(dtype="float32", shape=(2, 3, 224, 224), range=(0, 1))  # doctest: +ELLIPSIS
    (Input(...), Input(...))
    """

    dtype: str = ""
    shape: tuple[int, ...] | None = None
    values: tuple[float, ...] = ()
    """All the values that its elements may have."""
    range: tuple[float | None, float | None] | None = None
    """The smallest and the largest value; None leaves an end open."""
    avoid: tuple[float, ...] = ()
    """Values that it never has, such as special tokens."""
    samples: Any = field(default=None, compare=False)
    """An array of real values: elements are drawn from it, and stay within its range."""

    def __post_init__(self) -> None:
        """Refuse a range that holds nothing."""
        low, high = self.range or (None, None)
        if low is not None and high is not None and not low <= high:
            raise UsageError(
                "bad-range",
                f"nothing lies between {low:g} and {high:g}",
                help="the smaller one first",
            )


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

    def is_stricter_than(self, other: "Policy") -> bool:
        """True where any limit is tighter, or another domain is looked into: what was measured under `other` may not be enough."""
        upper = ("noise_limit", "worst_limit", "bias_limit", "atol", "rtol", "clip_limit")
        lower = ("drift_db", "diverged_db", "twin_db")
        return (
            any(getattr(self, name) < getattr(other, name) for name in (*upper, "runtime_limit"))
            or any(getattr(self, name) > getattr(other, name) for name in lower)
            or not set(self.domains) <= set(other.domains)
        )

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
    """Threads that each runtime may use; None is what `OMP_NUM_THREADS` says, else it is left to the runtime."""
    ops: tuple[str, ...] = ()
    """Operators of your own: libraries for ONNX Runtime (`.so`, `.dll`, `.dylib`), and Python files with `OPERATORS` for the standard's evaluator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    """How a verification is run, beside what is compared: the keywords of `verify`, `diff`, `export` and `explain`."""

    backends: tuple[str, ...] = ("ort",)
    policy: Policy = field(default_factory=Policy)
    budget_s: float = 60.0
    """Seconds for the cases and the explanation together."""
    seed: int = 0
    explain: bool = True
    """Look for the node and the cause where the verdict is not FAITHFUL."""
    only: tuple[str, ...] = ()
    """Cases to run, by name."""
    serving: Serving | None = None
    profile: bool = False
    """Measure the noise along the graph of a faithful file, too."""
    target: str = ""
    """`fp16`, `bf16` or `tf32`: the precision of the device that will run the file; what it would lose there decides the verdict."""
    loop: Mapping[str, str] | str | None = "auto"
    """Which output is which input's next value; `auto` finds out, None leaves loops out."""
    steps: int | None = None
    """Calls after the prompt in the longest rollouts; None decides by itself."""
    evaluate: Any = None
    """A function of `predict` that gives one score a sample, or `eval.py:metric`: a drop that the samples tell from chance fails the run."""

    def __post_init__(self) -> None:
        """Refuse a target that no evaluator computes like."""
        if self.target not in ("", *TARGETS):
            raise UsageError(
                "unknown-target",
                f"`{self.target}` is not a precision of a device",
                help=f"use {', '.join(TARGETS)}",
            )

    @classmethod
    def of(cls, keywords: Mapping[str, Any]) -> "VerifyOptions":
        """The options from keywords, lists as tuples; an unknown keyword is a TypeError with the nearest known one."""
        _refuse_unknown(cls, keywords)
        given = {name: value for name, value in keywords.items() if value is not None}
        if "loop" in keywords:
            given["loop"] = keywords["loop"]  # here None is a choice
        for name in ("backends", "only"):
            if name in given:
                given[name] = tuple(given[name])
        return cls(**given)


class VerifyKeywords(TypedDict, total=False):
    """The fields of `VerifyOptions` as keywords; a test compares the two."""

    backends: Sequence[str]
    policy: Policy | None
    budget_s: float
    seed: int
    explain: bool
    only: Sequence[str]
    serving: Serving | None
    profile: bool
    target: str
    loop: Mapping[str, str] | str | None
    steps: int | None
    evaluate: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizeOptions:
    """How a model is quantized and proven, beside the model and its data: the keywords of `quantize`."""

    scheme: str = "u8s8"
    calibrator: str = "min-max"
    recipes: tuple[str, ...] | None = None
    """None: all of them, in the order in which they help."""
    exclude: tuple[str, ...] = ()
    """Nodes that stay float, by name."""
    target: str = ""
    """`avx2` or `vnni`; empty for this CPU."""
    cache: Path | None = None
    """A folder in which statistics and trials are kept for the next run."""
    backends: tuple[str, ...] = ("ort",)
    policy: Policy = field(default_factory=Policy)
    preprocess: Any = None
    """Makes inputs of an image, where the calibration data is a folder of images and the model does not take pixels."""
    text: Path | None = None
    """A text file in the place of calibration data, for language models."""
    tokenizer: Path | None = None
    """The tokenizer.json for it; None looks beside the model."""
    proof_s: float = 20.0
    """The budget of the proof, in seconds."""
    seed: int = 0
    progress: Callable[[Any], None] | None = None
    """Told how far it is."""

    @classmethod
    def of(cls, keywords: Mapping[str, Any]) -> "QuantizeOptions":
        """The options from keywords, lists as tuples; an unknown keyword is a TypeError with the nearest known one."""
        _refuse_unknown(cls, keywords)
        given = {name: value for name, value in keywords.items() if value is not None}
        for name in ("recipes", "exclude", "backends"):
            if name in given:
                given[name] = tuple(given[name])
        for name in ("cache", "text", "tokenizer"):
            if name in given:
                given[name] = Path(given[name])
        return cls(**given)


class QuantizeKeywords(TypedDict, total=False):
    """The fields of `QuantizeOptions` as keywords; a test compares the two."""

    scheme: str
    calibrator: str
    recipes: Sequence[str] | None
    exclude: Sequence[str]
    target: str
    cache: str | Path | None
    backends: Sequence[str]
    policy: Policy | None
    preprocess: Any
    text: str | Path | None
    tokenizer: str | Path | None
    proof_s: float
    seed: int
    progress: Callable[[Any], None] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleOptions:
    """What a bundle holds beside its cases."""

    with_model: bool = False
    """The ONNX file with its external data, too."""
    most_mb: float = 8.0
    """Megabytes beside the model; the most telling cases come first. More than 8 are never recorded."""
    sign: Path | None = None
    """A private key (PEM) that signs the statement."""
    sign_model: Path | None = None
    """A private key (PEM) on a NIST curve for OpenSSF model signing: `PATH.sig` covers the model and the bundle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """Where the page of `replay --serve` is served, and for how long somebody may take to open it."""

    host: str = "127.0.0.1"
    port: int = 0
    """0 takes one that is free."""
    wait_s: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """How a bundle is replayed: the keywords of `replay`."""

    model: Path | None = None
    """The ONNX file; None takes the one in the bundle, or the one of its name beside it."""
    backends: tuple[str, ...] = ("ort",)
    policy: Policy | Callable[[Policy], Policy] | None = None
    """None judges as the bundle was judged; a function makes another policy of the bundle's."""
    only: tuple[str, ...] = ()
    """Cases to run, by name."""
    serving: Serving | None = None
    allow_other_model: bool = False
    """Replay a file with another hash; the proof says so."""
    verify: Path | None = None
    """A public key (PEM) that must have signed the bundle."""

    @classmethod
    def of(cls, keywords: Mapping[str, Any]) -> "ReplayOptions":
        """The options from keywords, lists as tuples; an unknown keyword is a TypeError with the nearest known one."""
        _refuse_unknown(cls, keywords)
        given = {name: value for name, value in keywords.items() if value is not None}
        for name in ("backends", "only"):
            if name in given:
                given[name] = tuple(given[name])
        for name in ("model", "verify"):
            if name in given:
                given[name] = Path(given[name])
        return cls(**given)


class ReplayKeywords(TypedDict, total=False):
    """The fields of `ReplayOptions` as keywords; a test compares the two."""

    model: str | Path | None
    backends: Sequence[str]
    policy: Policy | Callable[[Policy], Policy] | None
    only: Sequence[str]
    serving: Serving | None
    allow_other_model: bool
    verify: str | Path | None


def _refuse_unknown(options: type, keywords: Mapping[str, Any]) -> None:
    known = [item.name for item in fields(options)]
    for name in keywords:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean `{near[0]}`?" if near else f"; known are {', '.join(known)}"
            raise TypeError(f"unexpected keyword argument `{name}`{hint}")
