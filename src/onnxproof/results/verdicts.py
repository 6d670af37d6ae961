"""The words of a verdict: what was found, in which domain, at which stage, against which noise."""

from enum import StrEnum


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
    WIDER = "float64-reference"
    """Against the reference itself, which computes in float64 what its file computes in less: its parameters are rounded in the file."""
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
