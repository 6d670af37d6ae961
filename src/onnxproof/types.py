"""Every frozen dataclass and enum of the flow; nothing here computes, and nothing here is heavy to import."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


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
class Policy:
    """How gaps become a verdict: data, so that a stored proof can be judged again under another one."""

    noise_limit: float = 12.0
    """Beyond noise: the rms error is more than this many times the noise. Evidence: docs/verdict.md."""
    worst_limit: float = 24.0
    """The same for the worst element against the worst element of the noise."""
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
    domains: tuple[Domain, ...] = (Domain.NAN, Domain.INF, Domain.TIES, Domain.EMPTY)
    """Odd domains to look into; `--domain finite` empties it."""
