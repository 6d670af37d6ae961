"""What the answer should be: a reference with its truth, its re-runs, and its ways of breaking ties."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from onnxproof.inputs.decisions import Decisions
from onnxproof.inputs.rules import Rules
from onnxproof.onnxmodel.onnx_file import OnnxFile
from onnxproof.reference.leaf import Leaf
from onnxproof.reference.subject import Subject
from onnxproof.reference.traced_value import Fetch, TracedValue
from onnxproof.results import Finding, NoiseKind
from onnxproof.runtimes.session.execution import Clock

if TYPE_CHECKING:
    from onnxproof.reference.float64 import TruthSession
    from onnxproof.reference.torch_session import TorchSession

Array = np.ndarray[Any, Any]


class Reference(Protocol):
    """The side that is right by definition: a PyTorch module, a function of arrays, or an ONNX file.

    Every method takes arrays by input name and returns them in output order. What a kind of reference can't do returns None.
    """

    kind: NoiseKind
    """How the truth is computed; downgraded after a failure."""
    tree: Any
    """The example as nested containers by parameter name, for reading `dynamic_shapes`; None for a graph."""

    rules: Rules
    """What the user said that inputs are: `run` refuses what breaks it."""

    @property
    def session(self) -> "TorchSession | None":
        """The module in its own precision; None for a graph."""

    def float64_session(self) -> "TruthSession | None":
        """The module in float64, opened once; None for a graph."""

    def example(self) -> dict[str, Array]:
        """The example inputs."""

    def leaves(self, inputs: Mapping[str, Array]) -> tuple[list[Leaf], list[Leaf]]:
        """Inputs and outputs as they are for these inputs."""

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        """The outputs of the reference in its own precision."""

    def truth(self, inputs: Mapping[str, Array]) -> list[Array] | None:
        """The outputs in float64, or None where they can't be computed."""

    def trace(self, inputs: Mapping[str, Array]) -> tuple[list[TracedValue], Fetch]:
        """Every value on the way to the outputs, in float64, and a function that fetches one of them again."""

    def rerun(
        self,
        inputs: Mapping[str, Array],
        seed: int,
        *,
        amplitude: float = 1.0,
        move: bool = False,
    ) -> list[Array]:
        """The outputs with fresh rounding errors; `move` also moves the inputs by an ulp."""

    @property
    def draws(self) -> bool:
        """Whether the reference takes random numbers, as far as is known by now."""

    def run_again(self, inputs: Mapping[str, Array], seed: int | None = None) -> list[Array]:
        """The same run once more; with other random numbers where a seed is given and the reference draws them."""

    def with_gradients(self, inputs: Mapping[str, Array]) -> list[Array] | None:
        """The outputs in the mode of training code (still eval), or None where there is no such mode or it can't run."""

    def in_precision(self, inputs: Mapping[str, Array], dtype: str) -> list[Array] | None:
        """The outputs of the reference converted to half precision, or None."""

    def ties(
        self,
        inputs: Mapping[str, Array],
        rule: str,
        *,
        wide: bool = False,
    ) -> list[Array] | None:
        """The outputs with exact ties broken by `rule` (first or last), or None where that can't be done; `wide` asks for float64."""

    def parameter(self, name: str) -> Array | None:
        """The reference's own weight of that name, or None."""

    def decisions(self) -> Decisions:
        """Where a model of tables decides: its splits and its categories, as far as they are known."""

    def truth_findings(self) -> Sequence[Finding]:
        """What memory did to the truth."""

    def findings(self) -> Sequence[str]:
        """What was noticed about the reference while it ran, such as state kept between calls."""


def open_reference(subject: Subject, clock: Clock, file: OnnxFile | None = None) -> Reference:
    """The reference of a subject; torch is imported only for a module. `file` is what it is compared with: one that is no module answers in its precision."""
    if subject.onnx is not None:
        from onnxproof.reference.graph import GraphReference

        return GraphReference(subject.onnx, subject.kwargs or subject.args, clock)
    if subject.arrays:
        from onnxproof.reference.arrays import ArrayReference

        return ArrayReference(subject, clock, file)
    from onnxproof.reference.module import ModuleReference

    return ModuleReference(subject, clock)
