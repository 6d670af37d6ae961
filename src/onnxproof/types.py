"""Every frozen dataclass and enum of the flow; nothing here computes, and nothing here is heavy to import."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from onnxproof.errors import PolicyError


class Verdict(StrEnum):
    """What a proof says; the worst gap decides."""

    FAITHFUL = "faithful"
    DRIFT = "drift"
    DIVERGED = "diverged"
    ERROR = "error"
    VACUOUS = "vacuous"


class Status(StrEnum):
    """What happened when one output of one case was to be compared."""

    COMPARED = "compared"
    SHAPE = "shape"
    DTYPE = "dtype"
    MISSING = "missing"
    REFUSED = "refused"
    """The reference answered and the candidate raised."""
    EMPTY = "empty"


class Domain(StrEnum):
    """Where runtimes differ by nature: a difference there is a note, not a verdict."""

    NAN = "nan"
    INF = "inf"
    TIES = "ties"
    EMPTY = "empty"
    MASKED = "masked"
    """A mask hides the very place, or everything that a query could see."""


class Stage(StrEnum):
    """The step between PyTorch and the served answer which broke it."""

    EXPORT = "export"
    GRAPH = "graph"
    OPTIMIZER = "optimizer"
    RUNTIME = "runtime"
    PRECISION = "precision"
    SIGNATURE = "signature"


class NoiseKind(StrEnum):
    """How the noise of a case was estimated: the first that works is used, and the proof says which."""

    DOUBLE = "float64"
    """Against the same module in float64."""
    PROMOTED = "float64-promoted"
    """Against the module with every hard-coded dtype raised to float64 while it runs."""
    GRAPH = "float64-graph"
    """Against the reference ONNX graph evaluated by the standard in float64."""
    PERTURBED = "perturbed"
    """No float64 truth was to be had: from re-runs whose every operation was rounded anew."""
    EXACT = "exact"
    """Integers and booleans: compared exactly."""
    SIMULATED = "simulated"
    """Of a quantized candidate: what its graph's own quantization costs, simulated."""
    TWIN = "simulated-twin"
    """The same, where the reference is a quantized model too."""
    NONE = "none"
    """Nothing was estimated (and so nothing may be called faithful on it)."""


class Void(StrEnum):
    """Why what was measured of an output proves nothing; the finding of the same code says more."""

    RANDOM = "nondeterministic-reference"
    """The reference answers otherwise when it is asked the same again: no difference means anything."""
    CONSTANT = "constant-reference"
    """No output of the reference depends on its inputs: that a file agrees means nothing, that it differs does."""
    NOISE = "noisy-output"
    """The reference's own noise is so large that any answer would pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DimInfo:
    """A dimension that may vary: its name, its size in the example, and the sizes it was promised for."""

    name: str
    example: int
    minimum: int = 0
    maximum: int | None = None
    declared: bool = False
    """True when the user named it; False when only the file leaves it open."""
    derived: str = ""
    """How it follows from others, such as `past + seq`; empty when it moves alone."""
    recorded: tuple[int | None, int | None] = (None, None)
    """The range the exporter assumed and wrote into the file, where it did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputInfo:
    """One tensor the reference takes, and the input of the file that receives it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    dims: tuple[str | int, ...]
    onnx_name: str | None = None
    onnx_dtype: str | None = None
    paired_by: str = "position"
    """name, position, or absent (the file has no such input: constant folding removed it)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputInfo:
    """One tensor the reference returns, and the output of the file that should equal it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    onnx_name: str | None = None
    paired_by: str = "position"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """Inputs, outputs and dims, merged from the example, `dynamic_shapes` and the file."""

    inputs: tuple[InputInfo, ...]
    outputs: tuple[OutputInfo, ...]
    dims: tuple[DimInfo, ...] = ()

    def dim(self, name: str) -> DimInfo:
        """The dimension of that name."""
        return next(dim for dim in self.dims if dim.name == name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One set of inputs: named, seeded, replayable."""

    name: str
    group: str
    """The generator that made it."""
    about: str
    """What a reader should know: `batch=7`, `mask: one row false`."""
    inputs: Mapping[str, Any]
    """Arrays by input name."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    exact: bool = False
    """The inputs sit on a boundary on purpose, so noise may not be estimated by moving them."""
    ordinary: bool = False
    """Plain values of the example's kind: these set the scale of an output."""
    domain: Domain | None = None
    """The odd domain which the inputs are in, if any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """What was measured between reference, truth and candidate for one output of one case. No judgement."""

    case: str
    group: str
    backend: str
    output: str
    status: Status
    compared: int = 0
    detail: str = ""
    """Words for what is not a number: both shapes, both dtypes, the candidate's error."""
    scale: float = 0.0
    max_abs: float = 0.0
    max_rel: float = 0.0
    rms: float = 0.0
    ulps: float = 0.0
    cosine: float = 1.0
    allowance: float = 0.0
    """Share of the classical tolerance that the worst element used: above 1 means `allclose` fails."""
    atol_needed: tuple[float, ...] = ()
    """The smallest atol that passes for each rtol of `compare.RTOL_GRID`, so a stored proof can be judged again."""
    noise: float = 0.0
    noise_kind: NoiseKind = NoiseKind.NONE
    noise_ratio: float = 0.0
    worst_ratio: float = 0.0
    mismatches: int = 0
    """Integers and booleans that differ from the reference."""
    unstable: int = 0
    """How many of those the reference itself does not decide: its own re-runs disagree there."""
    lost: int = 0
    """Elements where the reference is finite and the candidate is not."""
    odd: int = 0
    """Elements where the reference is NaN or infinite and the candidate is something else."""
    worst: tuple[int, ...] | None = None
    top1: float | None = None
    rank: float | None = None
    confirmed: bool = False
    """The noise was measured again by re-runs before this gap could raise an alarm."""
    bias: float | None = None
    """The graph itself, evaluated in float64, against the truth, in units of the noise: what no rounding explains. None where nobody asked."""
    domain: Domain | None = None
    """Set when the difference lives only in an odd domain; it is then a note."""
    sqnr_db: float | None = None
    """Output signal against the candidate's error."""
    channel_db: float | None = None
    """The same for the worst channel of a quantized candidate's output."""
    clipped: float | None = None
    """Share of the inputs' values that a quantized candidate's first rounding can't hold."""
    ordinary: bool = False
    """Measured on ordinary data, so that a quantized candidate's quality is judged by it."""
    void: Void | None = None
    """Set when this output proves nothing, whatever the numbers say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A real difference in a domain where runtimes differ by nature, with both outputs as they were seen."""

    domain: Domain
    case: str
    backend: str
    output: str
    what: str
    reference: str
    candidate: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A fact about the pair of models which the user should know, found without comparing values."""

    code: str
    what: str
    help: str = ""
    counts: bool = False
    """True when it decides the verdict by itself."""
    fails: bool = False
    """True when the run fails on it although the verdict stands: a baseline that was left, an input that was written to."""
    voids: bool = False
    """True when nothing may be called FAITHFUL beside it: the verdict is then VACUOUS, unless a difference was found."""
    doubts: bool = False
    """True when it takes so much from what was measured that the verdict is at best DRIFT: calibration data that looks wrong, or is too little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """A case that was not compared, and why."""

    case: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """How many of the graph's decision points the cases reached on both sides."""

    points: int = 0
    exercised: int = 0
    missed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A line of Python."""

    file: str
    line: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """One ONNX node with its local error: wrong by `ratio` times the noise while its inputs were right."""

    node: str
    op_type: str
    ratio: float
    why: str = ""
    module: str | None = None
    source: Source | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGap:
    """How far the value of one node is from the truth, in units of the output's noise; errors of earlier nodes are in it."""

    node: str
    op_type: str
    ratio: float
    module: str | None = None
    source: Source | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The noise ratio along the graph, in the order of its nodes, on one case."""

    case: str
    against: str
    """What is compared with what, in words."""
    nodes: tuple[NodeGap, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """Where it went wrong."""

    stage: Stage
    nodes: tuple[str, ...] = ()
    module: str | None = None
    source: Source | None = None
    suspects: tuple[Suspect, ...] = ()
    evidence: str = ""
    compared: int = 0
    skipped: tuple[str, ...] = ()
    """Nodes that could not be compared, each with its reason."""
    optimizer: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """A remedy that was applied and verified before it was offered."""

    kind: str
    """graph, session, export or code."""
    what: str
    verdict: Verdict | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A hypothesis that was tried."""

    code: str
    title: str
    proven: bool
    evidence: str
    before: float = 0.0
    after: float = 0.0
    fix: Fix | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One step of the waterfall from a quantized model to float: what granting it recovers, on top of the steps before it."""

    code: str
    db: float
    share: float
    """Of the energy of the whole error; the shares of all steps add up to one."""
    after_db: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationRange:
    """The values that a tensor takes on data that did not choose its range, that range, and how the two fit."""

    tensor: str
    low: float
    high: float
    chosen_low: float
    chosen_high: float
    clipped: float = 0.0
    """Share of the values beyond the range."""
    unused: float = 0.0
    """Share of the range that no value reaches."""
    values: int = 0
    """How many values were looked at."""


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
class Guard:
    """Something the exporter assumed about sizes, and the line of Python that made it assume so."""

    text: str
    """In terms of the dims' names: `batch <= 3`."""
    dims: tuple[str, ...] = ()
    source: Source | None = None
    tested: str = ""
    """What became of it when a size inside and one outside were tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedDim:
    """One dim of one input: open under a name, or fixed for a reason."""

    input: str
    axis: int
    size: int
    """In the example."""
    name: str = ""
    """Empty when the dim is fixed; `past + sequence` when it follows from others."""
    minimum: int = 0
    maximum: int | None = None
    promised: bool = False
    """True when the user gave the range; False when tracing assumed it."""
    reason: str = ""
    """Why it is fixed."""
    baked: bool = False
    """True when the module itself takes other sizes: the export crippled it."""
    source: Source | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One way to export that was tried."""

    name: str
    worked: bool
    what: str
    """What it does, or why it failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRecord:
    """How a file was exported: its dims, what was assumed, what was chosen, what was tried."""

    dims: tuple[ExportedDim, ...] = ()
    guards: tuple[Guard, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    warnings: tuple[str, ...] = ()
    choices: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0


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
                raise PolicyError("bad-threshold", f"`{name}` is {getattr(self, name):g}", help="a limit is a number above 0")
        for name in ("atol", "rtol", "clip_limit"):
            if not getattr(self, name) >= 0:
                raise PolicyError("bad-threshold", f"`{name}` is {getattr(self, name):g}", help="a tolerance is a number of at least 0")
        for name in ("drift_db", "diverged_db", "twin_db"):
            if math.isnan(getattr(self, name)):
                raise PolicyError("bad-threshold", f"`{name}` is {getattr(self, name):g}", help="give it in decibels")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One output on one backend over all cases, and on the case that tells the backends apart."""

    backend: str
    output: str
    verdict: Verdict
    cases: int
    case: str = ""
    """The case on which it came off worst."""
    noise_ratio: float = 0.0
    max_abs: float = 0.0
    from_truth: float | None = None
    """Relative distance to the truth on the telling case; None where it gave no answer."""
    from_arbiter: float | None = None
    """Relative distance to the standard's evaluation of the file in float64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossCheck:
    """Several backends beside each other: who disagrees with whom, and who is right."""

    case: str
    """The telling case: the witness of a fault, or an ordinary one."""
    standings: tuple[Standing, ...] = ()
    disagree: tuple[tuple[str, str, float], ...] = ()
    """Pairs of backends and how far apart their answers are."""
    right: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    arbiter: str = ""
    """Who decided."""
    words: str = ""
