"""What a hypothesis hands back, and what it may use beside the scene of the fault."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx

from onnxproof.diagnosis.judge import Judgement
from onnxproof.inputs.space import Space
from onnxproof.reference.subject import Subject
from onnxproof.results import Case, Fix


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One hypothesis after it was tried."""

    evidence: str
    judgement: Judgement | None = None
    """What the judge of causes said to its counterfactual; None where none could be run: then it is likely at best."""
    after: float | None = None
    """The relative error that is left with the hypothesis granted, where no judge measured it."""
    before: float | None = None
    """The relative error without it, where that is not the workbench's own: of another runtime."""
    fix: Fix | None = None
    model: onnx.ModelProto | None = None
    """The mended model, where the remedy is one."""
    options: tuple[str, ...] = ()
    """Optimizers to disable, where the remedy is that."""
    elsewhere: bool = False
    """True when what was changed is not what was located: another cause may explain as much."""
    node: str = ""
    """The one node whose change mends all, where the hypothesis looks beyond the located ones: once proven, it is the place."""
    code: str = ""
    """Another code than the file's name, where what was found belongs there."""

    @property
    def proven(self) -> bool:
        """Whether the judge of causes calls it proven: nobody else can."""
        return self.judgement is not None and self.judgement.proven

    @property
    def in_reference(self) -> bool:
        """Whether the module with the fault put into it gave the candidate's answers: then it is proven whether or not the remedy mends all."""
        return self.judgement is not None and self.judgement.in_reference

    @property
    def error_left(self) -> float | None:
        """The relative error that is left with the hypothesis granted; None where nothing measured it."""
        if self.judgement is not None:
            return self.judgement.after
        return self.after


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What the causes may use beside the evidence."""

    export_float: Callable[[Subject, Path], object] | None = None
    """Writes a module as a float ONNX file, for the study of a quantized one."""
    calibration: Any = None
    """The data that a quantized candidate was calibrated on, where it is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedCases:
    """What is known of all cases of the run."""

    beyond_noise: Mapping[str, bool] = field(default_factory=dict)
    """Case name -> whether it was beyond noise (cases of odd domains left out)."""
    sizes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Case name -> the sizes of its dims."""
    ordinary: Mapping[str, bool] = field(default_factory=dict)
    """Case name -> whether its values are ordinary, so that sizes alone explain a difference."""
    others: Sequence[Case] = ()
    """Further cases that differ: an accident of the witness does not hold on them."""
    agreeing: Sequence[Case] = ()
    """A few cases that agree: what explains the witness changes nothing there."""
    space: Space | None = None
    """The inputs from which further cases are drawn."""
    pass_s: float = 0.0
    """Seconds of a forward pass of the reference, as far as is known."""
