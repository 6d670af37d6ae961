"""Inputs, outputs and dims of the two models, and one case of inputs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from onnxproof.results.verdicts import Domain


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
