"""What a verification is asked for, and what it hands on: both frozen."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from onnxproof.inputs.space import Space
from onnxproof.onnxmodel.onnx_file import OnnxFile
from onnxproof.options import Policy
from onnxproof.reference.protocol import Reference
from onnxproof.reference.subject import Subject
from onnxproof.results import Case, Signature
from onnxproof.results.proof import Proof
from onnxproof.runtimes.session.execution import Clock
from onnxproof.verification.budget import Budget
from onnxproof.verification.progress import Progress, Report


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One verification: which file, against which reference, on which runtimes, within which time."""

    subject: Subject
    path: Path
    backends: tuple[str, ...] = ("ort",)
    policy: Policy = field(default_factory=Policy)
    budget_s: float = 60.0
    seed: int = 0
    only: tuple[str, ...] = ()
    """The cases that are run, by name; all where it is empty."""
    first: tuple[Case, ...] = ()
    """Cases that a fix must mend: they come before all others, and the first that still differs ends it."""
    explained: bool = False
    """Whether a share of the budget is kept for a diagnosis."""
    disabled_optimizers: tuple[str, ...] = ()
    """Optimizers of ONNX Runtime that are turned off, to try a fix."""
    target: str = ""
    """`fp16`, `bf16` or `tf32` where the file is meant for a device of that precision."""
    progress: Report | None = None
    loop: Mapping[str, str] | str | None = "auto"
    """Which output is which input's next value; `auto` finds out, None leaves loops out."""
    steps: int | None = None
    """Calls after the prompt in the longest rollouts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What was measured and judged, with both models still at hand for a diagnosis."""

    request: Request
    proof: Proof
    reference: Reference
    file: OnnxFile
    signature: Signature
    clock: Clock
    budget: Budget
    noted: Case | None
    """The first case with a note that ties, NaN or infinity explain."""
    differing: tuple[Case, ...]
    """A few cases that differ: what explains the witness must explain these."""
    agreeing: tuple[Case, ...]
    """A few that agree: what explains the witness must change nothing there."""
    space: Space | None
    """The inputs that may be drawn; None where nothing was."""
    hung: bool
    """True when no runtime answers within its time limit any more."""

    def announce(self, step: str, proof: Proof | None = None) -> None:
        """Tell the observer which step begins after the cases."""
        if self.request.progress is None:
            return
        state = Progress(
            case="",
            done=len(self.proof.sizes),
            elapsed=self.clock.elapsed,
            budget=self.request.budget_s,
            step=step,
            proof=proof,
        )
        self.request.progress(state)
