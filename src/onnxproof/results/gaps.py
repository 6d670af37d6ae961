"""What was measured: gaps, notes, findings, dropped cases, coverage, and how backends stand beside each other."""

from dataclasses import dataclass

from onnxproof.results.verdicts import Domain, NoiseKind, Status, Verdict, Void

RTOL_GRID = (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
"""The relative tolerances for which a gap keeps the smallest absolute one that passes."""

CAUSE_FAILED = "cause-failed"
"""The finding that trying a cause raised or ended its process."""


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
    """The smallest atol that passes for each rtol of `RTOL_GRID`, so a stored proof can be judged again."""
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
    retrieval: float | None = None
    """Of embeddings, which have no best class: the share of rows whose nearest other row is the same."""
    detection_map: float | None = None
    """Of a detector's boxes: the mean average precision of the candidate's rows, those of the reference in the place of a ground truth."""
    detection_map_noise: float | None = None
    """The same of the reference itself with other rounding, at its lowest."""
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
    unsaturated_db: float | None = None
    """What `sqnr_db` would be if none of a quantized candidate's 16-bit roundings clipped; None where it has none."""
    rounding_db: float | None = None
    """The SQNR of the reference with its own weights rounded to as few bits as the candidate's; None where those have 8 or more."""
    kl: float | None = None
    """Of a quantized language model: KL of the next token from the truth's in nats, the mean over places."""
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
