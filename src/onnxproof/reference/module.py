"""The oracle of a PyTorch module."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnxproof.reference.float64 import TruthSession, in_precision, jittered
from onnxproof.reference.pairing import Leaf
from onnxproof.reference.protocol import ulp_moved
from onnxproof.reference.subject import Subject
from onnxproof.reference.ties import BreakTies
from onnxproof.reference.torch_session import TorchSession, bind, to_numpy
from onnxproof.results import NoiseKind
from onnxproof.runtimes.session.execution import Clock
from onnxproof.system import guard

Array = np.ndarray[Any, Any]
_LARGE = 1 << 30
"""Bytes of weights beyond which a pass with gradients, which keeps every value between, is not tried."""
_ALL_GB = 1e6
"""The user's own module may take whatever the machine has; more than that is refused like any other input that it refuses."""


class ModuleOracle:
    """Runs the module in its own precision, in float64, and with its rounding blurred."""

    def __init__(self, subject: Subject, clock: Clock) -> None:
        self._subject, self._clock = subject, clock
        self._session = TorchSession(subject.module, subject.args, subject.kwargs)
        self._truth: TruthSession | None = None
        self._half: dict[str, TorchSession | None] = {}
        self._worked = False
        self.kind = NoiseKind.DOUBLE
        self.tree = bind(subject.module, subject.args, subject.kwargs)

    @property
    def session(self) -> TorchSession:
        """The module in its own precision, for whoever locates and explains."""
        return self._session

    def wide(self) -> TruthSession:
        """The module in float64, made once: for the truth, and for whoever locates and explains."""
        if self._truth is None:
            self._truth = TruthSession(
                self._subject.module,
                self._subject.args,
                self._subject.kwargs,
                self._session.written,
            )
        return self._truth

    def example(self) -> dict[str, Array]:
        """The example inputs as arrays that the module may not spoil."""
        return {name: np.array(to_numpy(tensor)) for name, tensor in self._session.example.items()}

    def leaves(self, inputs: Mapping[str, Array]) -> tuple[list[Leaf], list[Leaf]]:
        """Inputs and outputs, by the names of `forward` and of what it returns."""
        outputs = self.run(inputs)
        ins = [Leaf(name=n, dtype=str(a.dtype), shape=a.shape) for n, a in inputs.items()]
        outs = [
            Leaf(name=n, dtype=str(a.dtype), shape=a.shape)
            for n, a in zip(self._session.output_names, outputs, strict=True)
        ]
        return ins, outs

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        """The module as it is."""
        with self._clock.forward("torch"), guard.memory(_ALL_GB), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _known(self._session.run(inputs))

    def truth(self, inputs: Mapping[str, Array]) -> list[Array] | None:
        """The module in float64; None once neither conversion nor promotion works."""
        if self.kind is NoiseKind.PERTURBED:
            return None
        try:
            wide = self.wide()
            with self._clock.forward("torch64"), guard.memory(_ALL_GB), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                answer = _known(wide.run(inputs))
            self.kind, self._worked = wide.kind, True
            return answer
        except (
            Exception
        ):  # the user's own code in another precision may raise anything; then re-runs serve
            if (
                not self._worked
            ):  # a failure after successes is this case's own: it is estimated by re-runs
                self.kind = NoiseKind.PERTURBED
            return None

    def rerun(
        self, inputs: Mapping[str, Array], seed: int, *, amplitude: float = 1.0, move: bool = False
    ) -> list[Array]:
        """The module with every operation rounded anew."""
        with self._clock.forward("torch-rerun"), guard.memory(_ALL_GB), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _known(
                jittered(
                    self._session, ulp_moved(inputs, seed) if move else inputs, seed, amplitude
                )
            )

    @property
    def draws(self) -> bool:
        """Whether a pass took random numbers from torch."""
        return self._session.drew

    def again(self, inputs: Mapping[str, Array], seed: int | None = None) -> list[Array]:
        """The module once more, with the same random numbers of torch or with others."""
        with self._session.otherwise(seed=seed):
            return self.run(inputs)

    def with_gradients(self, inputs: Mapping[str, Array]) -> list[Array] | None:
        """The module without `no_grad`; None where it writes into what gradients need, or is too large to keep what they need."""
        if (
            sum(
                parameter.nbytes
                for parameter in getattr(self._session.module, "parameters", list)()
            )
            > _LARGE
        ):
            return None
        try:
            with self._session.otherwise(gradients=True):
                return self.run(inputs)
        except Exception:  # the user's own code in a mode that nobody asked for
            return None

    def in_precision(self, inputs: Mapping[str, Array], dtype: str) -> list[Array] | None:
        """The module in half precision: what that precision must cost."""
        if dtype not in self._half:
            self._half[dtype] = in_precision(
                self._subject.module, self._subject.args, self._subject.kwargs, dtype
            )
        session = self._half[dtype]
        if session is None:
            return None
        from onnxproof.inputs.space import as_dtype, is_float

        narrow = {
            n: as_dtype(a, np.dtype(dtype)) if is_float(a.dtype) else a for n, a in inputs.items()
        }
        try:
            with self._clock.forward("torch-half"):
                return _known(session.run(narrow))
        except (RuntimeError, TypeError, NotImplementedError):
            self._half[dtype] = None
            return None

    def ties(
        self, inputs: Mapping[str, Array], rule: str, *, wide: bool = False
    ) -> list[Array] | None:
        """The module with every tie in a sort, top-k or arg-max broken by one rule."""
        if wide and self.kind is NoiseKind.PERTURBED:
            return None
        try:
            session = self.wide() if wide else self._session
            with BreakTies(rule) as watch, self._clock.forward("torch-rerun"):
                answer = _known(session.run(inputs))
            return answer if watch.seen else None
        except (RuntimeError, TypeError, NotImplementedError):
            return None

    def parameter(self, name: str) -> Array | None:
        """A parameter or buffer by the name that exporters keep."""
        try:
            return to_numpy(self._session.module.get_parameter(name))
        except AttributeError:
            return None

    def findings(self) -> Sequence[str]:
        """State that a forward pass changed."""
        return sorted(self._session._keeper.changed)


def _known(outputs: Sequence[Array | None]) -> list[Array]:
    return [output for output in outputs if output is not None]
