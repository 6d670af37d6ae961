"""The reference is a PyTorch module."""

import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from onnxproof.inputs.decisions import Decisions
from onnxproof.inputs.rules import Rules
from onnxproof.reference.compared_constants import ComparedConstants
from onnxproof.reference.float64 import TruthSession, open_in_precision, run_with_jitter
from onnxproof.reference.leaf import Leaf, drop_missing, leaves_of
from onnxproof.reference.memory import is_out_of_memory, memory_findings, out_of_memory
from onnxproof.reference.perturbation import move_by_ulp
from onnxproof.reference.rounding import Jitter
from onnxproof.reference.rounding_errors import RoundingErrors
from onnxproof.reference.subject import Subject
from onnxproof.reference.ties import BreakTies, FollowChoices
from onnxproof.reference.torch_session import TorchSession, bind, to_numpy
from onnxproof.reference.traced_value import Fetch, TracedValue
from onnxproof.results import Finding, NoiseKind
from onnxproof.runtimes.session.execution import Clock
from onnxproof.system import guard

Array = np.ndarray[Any, Any]
_LARGE = 1 << 30
"""Bytes of weights beyond which a pass with gradients, which keeps every value between, is not tried. Not measured."""
_ALL_GB = 1e6
"""The user's own module may take whatever the machine has; more than that is refused like any other input that it refuses."""


class ModuleReference:
    """Runs the module in its own precision, in float64, and with its rounding blurred."""

    def __init__(self, subject: Subject, clock: Clock) -> None:
        self._subject = subject
        self._clock = clock
        self._session = TorchSession(subject.module, subject.args, subject.kwargs)
        self._truth: TruthSession | None = None
        self._half: dict[str, TorchSession | None] = {}
        self._rerun_inputs: Mapping[str, Array] = {}
        self._errors = RoundingErrors()
        """What a re-run on these inputs has shown of the rounding, for further ones."""
        self._worked = False
        self._ran = False
        self._compared = ComparedConstants()
        self._truth_findings: list[Finding] = []
        self._out_of_memory = False
        self.kind = NoiseKind.DOUBLE
        self.rules = Rules()
        self.tree = bind(subject.module, subject.args, subject.kwargs)

    @property
    def session(self) -> TorchSession:
        """The module in its own precision."""
        return self._session

    def float64_session(self) -> TruthSession:
        """The module in float64, opened once: for the truth, and for locating and explaining."""
        if self._truth is None:
            self._truth = TruthSession(
                self._subject.module,
                self._subject.args,
                self._subject.kwargs,
                self._session.written,
            )
            self._truth_findings += memory_findings(self._subject.module, self._truth)
        return self._truth

    def example(self) -> dict[str, Array]:
        """The example inputs as arrays that the module may not spoil."""
        return {name: np.array(to_numpy(tensor)) for name, tensor in self._session.example.items()}

    def leaves(self, inputs: Mapping[str, Array]) -> tuple[list[Leaf], list[Leaf]]:
        """Inputs and outputs, by the names of `forward` and of what it returns."""
        outputs = self.run(inputs)  # `output_names` are known after the run
        named_outputs = zip(self._session.output_names, outputs, strict=True)
        return leaves_of(inputs.items()), leaves_of(named_outputs)

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        """The module as it is."""
        self.rules.check(inputs)
        watched = self._compared if not self._ran else nullcontext()
        self._ran = True
        with self._clock.forward("torch"), guard.memory(_ALL_GB), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with watched:
                return drop_missing(self._session.run(inputs))

    def truth(self, inputs: Mapping[str, Array]) -> list[Array] | None:
        """The module in float64; None once neither conversion nor promotion works."""
        if self.kind is NoiseKind.PERTURBED:
            return None
        try:
            session = self.float64_session()
            with self._clock.forward("torch64"), guard.memory(_ALL_GB), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                outputs = drop_missing(session.run(inputs))
        except Exception as why:
            # The user's own code in another precision may raise anything; then re-runs serve.
            # A failure after successes is this case's own: its noise is estimated by re-runs.
            if is_out_of_memory(why) and not self._out_of_memory:
                self._out_of_memory = True
                self._truth_findings.append(out_of_memory(worked=self._worked))
            if not self._worked:
                self.kind = NoiseKind.PERTURBED
            return None
        self.kind = session.kind
        self._worked = True
        return outputs

    def trace(self, inputs: Mapping[str, Array]) -> tuple[list[TracedValue], Fetch]:
        """Every value that the module computes in float64."""
        from onnxproof.reference import trace

        return trace.trace_with_fetch(self.float64_session(), inputs)

    def rerun(
        self,
        inputs: Mapping[str, Array],
        seed: int,
        *,
        amplitude: float = 1.0,
        move: bool = False,
    ) -> list[Array]:
        """The module with every operation rounded anew."""
        with self._clock.forward("torch-rerun"), guard.memory(_ALL_GB), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if self._rerun_inputs is not inputs:
                self._rerun_inputs, self._errors = inputs, RoundingErrors()
            jitter = Jitter(seed, amplitude, errors=self._errors, moved=move)
            if move:
                inputs = move_by_ulp(inputs, seed)
            return drop_missing(run_with_jitter(self._session, inputs, jitter))

    @property
    def draws(self) -> bool:
        """Whether a pass took random numbers from torch."""
        return self._session.drew

    def run_again(self, inputs: Mapping[str, Array], seed: int | None = None) -> list[Array]:
        """The module once more, with the same random numbers of torch or with others."""
        with self._session.with_settings(seed=seed):
            return self.run(inputs)

    def with_gradients(self, inputs: Mapping[str, Array]) -> list[Array] | None:
        """The module without `no_grad`; None where it writes into what gradients need, or is too large to keep what they need."""
        parameters: Any = getattr(self._session.module, "parameters", list)()  # a function has none
        if sum(parameter.nbytes for parameter in parameters) > _LARGE:
            return None
        try:
            with self._session.with_settings(gradients=True):
                return self.run(inputs)
        except Exception:  # the user's own code in a mode that nobody asked for
            return None

    def in_precision(self, inputs: Mapping[str, Array], dtype: str) -> list[Array] | None:
        """The module in half precision: what that precision must cost."""
        if dtype not in self._half:
            self._half[dtype] = open_in_precision(
                self._subject.module,
                self._subject.args,
                self._subject.kwargs,
                dtype,
            )
        session = self._half[dtype]
        if session is None:
            return None
        from onnxproof.inputs.space import as_dtype, is_float

        narrow = dict(inputs)
        for name, array in inputs.items():
            if is_float(array.dtype):
                narrow[name] = as_dtype(array, np.dtype(dtype))
        try:
            with self._clock.forward("torch-half"):
                return drop_missing(session.run(narrow))
        except (RuntimeError, TypeError, NotImplementedError):
            self._half[dtype] = None
            return None

    def ties(
        self,
        inputs: Mapping[str, Array],
        rule: str,
        *,
        wide: bool = False,
    ) -> list[Array] | None:
        """The module with every tie in a sort, top-k or arg-max broken by one rule; `wide`: in float64, with what float32 chose."""
        if wide and self.kind is NoiseKind.PERTURBED:
            return None
        try:
            with BreakTies(rule) as tie_breaker, self._clock.forward("torch-rerun"):
                outputs = drop_missing(self._session.run(inputs))
            if wide and tie_breaker.seen:
                followed = FollowChoices(tie_breaker.choices)
                with followed, self._clock.forward("torch-rerun"):
                    outputs = drop_missing(self.float64_session().run(inputs))
        except (RuntimeError, TypeError, NotImplementedError):
            return None
        return outputs if tie_breaker.seen else None

    def parameter(self, name: str) -> Array | None:
        """A parameter or buffer by the name that exporters keep."""
        try:
            return to_numpy(self._session.module.get_parameter(name))
        except AttributeError:
            return None

    def decisions(self) -> Decisions:
        """What the first run compared values with: the file may have lost it."""
        return Decisions(constants=self._compared.numbers)

    def truth_findings(self) -> Sequence[Finding]:
        """What memory did to the truth."""
        return self._truth_findings

    def findings(self) -> Sequence[str]:
        """State that a forward pass changed."""
        return sorted(self._session.changed_state)
