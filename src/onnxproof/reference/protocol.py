"""What the answer should be: a reference with its truth, its re-runs, and its ways of breaking ties."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from onnxproof.reference.pairing import Leaf
from onnxproof.reference.subject import Subject
from onnxproof.results import NoiseKind
from onnxproof.runtimes.session.execution import Clock

Array = np.ndarray[Any, Any]


class Oracle(Protocol):
    """The side that is right by definition. Every method takes arrays by input name and answers in output order."""

    kind: NoiseKind
    """How the truth is had; it may become humbler after a failed try."""
    tree: Any
    """The example as nested containers by parameter name, for reading `dynamic_shapes`; None for a graph."""

    def example(self) -> dict[str, Array]:
        """The example inputs."""

    def leaves(self, inputs: Mapping[str, Array]) -> tuple[list[Leaf], list[Leaf]]:
        """Inputs and outputs as they are for these inputs."""

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        """The reference in its own precision."""

    def truth(self, inputs: Mapping[str, Array]) -> list[Array] | None:
        """The same in float64, or None where that can't be had."""

    def rerun(
        self, inputs: Mapping[str, Array], seed: int, *, amplitude: float = 1.0, move: bool = False
    ) -> list[Array]:
        """A re-run with fresh rounding errors; `move` also moves the inputs by an ulp."""

    @property
    def draws(self) -> bool:
        """Whether the reference takes random numbers, as far as is known by now."""

    def again(self, inputs: Mapping[str, Array], seed: int | None = None) -> list[Array]:
        """The same question once more; with other random numbers where a seed is given and the reference draws them."""

    def with_gradients(self, inputs: Mapping[str, Array]) -> list[Array] | None:
        """The answer in the mode of training code (still eval), or None where there is no such mode or it can't run."""

    def in_precision(self, inputs: Mapping[str, Array], dtype: str) -> list[Array] | None:
        """The reference converted to half precision, or None."""

    def ties(
        self, inputs: Mapping[str, Array], rule: str, *, wide: bool = False
    ) -> list[Array] | None:
        """The reference with exact ties broken by `rule` (first or last), or None where it can't be; `wide` asks for it in float64."""

    def parameter(self, name: str) -> Array | None:
        """The reference's own weight of that name, or None."""

    def findings(self) -> Sequence[str]:
        """What was noticed about the reference while it ran, such as state kept between calls."""


def open_oracle(subject: Subject, clock: Clock) -> Oracle:
    """The oracle of a subject; torch is imported only for a module."""
    if subject.onnx is not None:
        from onnxproof.reference.graph import GraphOracle

        return GraphOracle(subject.onnx, subject.kwargs or subject.args, clock)
    from onnxproof.reference.module import ModuleOracle

    return ModuleOracle(subject, clock)


def ulp_moved(inputs: Mapping[str, Array], seed: int) -> dict[str, Array]:
    """Every float moved by one step of its own dtype, up or down at random; zeros and what is not finite stay."""
    from onnxproof.numerics.measure import eps, is_float

    rng = np.random.default_rng(seed)
    moved: dict[str, Array] = {}
    for name, array in inputs.items():
        if is_float(array):
            step = rng.choice([-1.0, 1.0], array.shape) * eps(array.dtype)
            with np.errstate(all="ignore"):
                moved[name] = np.where(
                    np.isfinite(array.astype(np.float64)),
                    array.astype(np.float64) * (1 + step),
                    array.astype(np.float64),
                ).astype(array.dtype)
        else:
            moved[name] = array
    return moved
