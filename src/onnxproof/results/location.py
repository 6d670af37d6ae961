"""Where it went wrong: the source line, the suspects, the noise along the graph."""

from dataclasses import dataclass

from onnxproof.results.verdicts import Stage


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
    file: str | None = None
    """Of a folder: the guilty file."""
