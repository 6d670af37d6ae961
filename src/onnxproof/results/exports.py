"""How a file was exported: dims, guards, attempts."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from onnxproof.results.location import Source


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
