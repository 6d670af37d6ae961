"""A few runs that show whether a runtime answers the question it was asked, each time, and however many threads it has.

The cases find wrong answers. These runs name the ways in which a runtime itself goes wrong: it gives an old answer
again, ignores its input, answers otherwise the second time or with another number of threads, goes wrong after an empty
batch, loses NaN, or cuts integers to 32 bits. (That it writes into its inputs, or returns another number of outputs, is seen in every run; other
places in the batch are cases of the group `distinct`.)
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from onnxproof.errors import OnnxproofError
from onnxproof.numerics.measure import is_float, pair
from onnxproof.onnxmodel import onnx_file
from onnxproof.options import Policy
from onnxproof.reference.protocol import Reference
from onnxproof.results import Domain, Finding, Signature, judging
from onnxproof.runtimes import current, parse
from onnxproof.runtimes.session.execution import Candidate
from onnxproof.system.deadline import Deadline

Array = np.ndarray[Any, Any]
Inputs = Mapping[str, Array]
Answer = Sequence[Array | None]
_WIDE = 1 << 40
"""Added to integers: a number that 32 bits don't hold."""
_OPENING_S = 0.5
"""Seconds of the share that must be left before a process is started for a second session: it takes about as long."""
_HELD_TWICE = 1 << 26
"""Bytes of a model that is opened a second time where no dim varies (not measured)."""
_REFERENCES = frozenset({"reference", "torch", "torch64"})
"""These backends define what is right, and are too slow to be asked twice."""


def examine(
    candidates: Sequence[Candidate],
    reference: Reference,
    path: Path,
    signature: Signature,
    policy: Policy,
    *,
    deadline: Deadline,
    sizes: Collection[str] = (),
    quantized: bool = False,
) -> list[Finding]:
    """Examine each backend within its share of the time; that of one that dies on the way, its candidate reports. `sizes` are inputs that may not grow."""
    findings: dict[tuple[str, str], Finding] = {}
    questions = _Questions(reference, signature, policy, sizes)
    for place, candidate in enumerate(candidates):
        share = deadline.within(deadline.left / (len(candidates) - place))
        if parse(candidate.backend)[0] in _REFERENCES:
            continue
        examination = _Examination(
            candidate, questions, path, signature, policy, share, quantized=quantized
        )
        with suppress(OnnxproofError):
            for finding in examination.findings():
                words = finding.what.partition(" by up to ")[0]
                findings[finding.code, words] = finding  # two sessions may show the same
    return list(findings.values())


class _Questions:
    """Two different inputs and what the reference answers to them; what it refuses is not asked."""

    def __init__(
        self,
        reference: Reference,
        signature: Signature,
        policy: Policy,
        sizes: Collection[str],
    ) -> None:
        self._reference = reference
        self.first = reference.example()
        self.second = {name: _changed(array) for name, array in self.first.items()}
        self.answers = [self._ask(self.first), self._ask(self.second)]
        self.noise = self._noise(self.second, self.answers[1])
        self.with_nan: dict[str, Array] = {}
        if Domain.NAN in policy.domains:
            self.with_nan = {name: _with_nan(array) for name, array in self.first.items()}
        self.wide = dict(self.first)
        for name, array in self.first.items():
            if array.dtype == np.int64 and name not in sizes:
                self.wide[name] = array + _WIDE
        self.empty: dict[str, Array] = {}
        if Domain.EMPTY in policy.domains:
            self.empty = {name: _without_rows(array) for name, array in self.first.items()}
        self.varies = any(isinstance(dim, str) for info in signature.inputs for dim in info.dims)
        """Whether any dim is open."""

    @cached_property
    def takes_empty(self) -> bool:
        """Whether the reference takes an empty batch."""
        return self.varies and bool(self.empty) and self._ask(self.empty) is not None

    @cached_property
    def nan_answer(self) -> list[Array] | None:
        """What the reference answers to NaN."""
        if not self.with_nan:
            return None
        return self._ask(self.with_nan)

    @cached_property
    def wide_answer(self) -> list[Array] | None:
        """What the reference answers to integers beyond 32 bits."""
        if not any(array.dtype == np.int64 for array in self.first.values()):
            return None
        return self._ask(self.wide)

    def _ask(self, inputs: Inputs) -> list[Array] | None:
        try:
            return self._reference.run(inputs)
        except Exception:  # the user's module: any refusal is an answer here
            return None

    def _noise(
        self,
        inputs: Inputs,
        answer: list[Array] | None,
    ) -> list[float]:
        if answer is None:
            return []
        truth = self._reference.truth(inputs)
        if truth is None or len(truth) != len(answer):
            truth = answer  # in float64 the module may take another path: the cases show that
        return [pair(a, t).rms for a, t in zip(answer, truth, strict=True)]


class _Examination:
    """One backend under questions."""

    def __init__(
        self,
        candidate: Candidate,
        questions: _Questions,
        path: Path,
        signature: Signature,
        policy: Policy,
        deadline: Deadline,
        *,
        quantized: bool,
    ) -> None:
        self._candidate = candidate
        self._questions = questions
        self._path = path
        self._policy = policy
        self._names = [output.name for output in signature.outputs]
        self._deadline = deadline
        self._quantized = quantized
        self._cost = [0.0] * len(self._names)
        """By output: how far a quantized file is from the reference anyway."""

    def findings(self) -> Iterator[Finding]:
        """Question by question, until the time is over."""
        if None in self._questions.answers:
            return
        first = self._candidate.run(self._questions.first)
        second = self._candidate.run(self._questions.second)
        self._cost = self._quantization_cost(second)
        checks = (
            self._check_repeat(first),
            self._check_nan(),
            self._check_integers(),
            self._check_fresh_session(first, second),
        )
        for check in checks:
            # a question that it refuses, or dies of: its candidate reports that
            with suppress(OnnxproofError):
                yield from check

    def _quantization_cost(self, second: Answer) -> list[float]:
        """How far a quantized file is from the reference anyway: its kernels may round in other groups, such as one for each thread."""
        wanted = self._questions.answers[1]
        if wanted is None or not self._quantized:
            return self._cost
        costs = []
        for reference, output in zip(wanted, second, strict=True):
            cost = 0.0
            if output is not None:
                cost = pair(reference, output).rms
            costs.append(cost)
        return costs

    def _check_fresh_session(
        self,
        first: Answer,
        second: Answer,
    ) -> Iterator[Finding]:
        """The second question to a session that was never asked the first, with another number of threads; then what an empty batch does to it."""
        ask = self._open_other()
        if ask is None:
            yield from self._check_stale(first, second, None)
            return
        fresh = ask(self._questions.second)
        yield from self._check_stale(first, second, fresh)
        yield from self._compare(
            second, fresh, "threads", "answers otherwise with another number of threads"
        )
        yield from self._check_after_empty(first, ask)

    def _open_other(self) -> Callable[[Inputs], Answer] | None:
        """The session that empty tensors get; where every dim is fixed there are none, and a second one will do, if the model is small enough for that."""
        if self._deadline.passed:
            return None
        if not self._questions.varies and onnx_file.file_bytes(self._path) > _HELD_TWICE:
            return None
        if self._deadline.left < _OPENING_S:
            return None
        isolate = current().isolate
        if self._questions.varies:
            isolate = True
        start = time.perf_counter()
        self._candidate.open_other(isolate=isolate)
        opening_s = time.perf_counter() - start
        self._deadline = Deadline(self._deadline.until + opening_s)  # a slow start skips no check
        return lambda inputs: self._candidate.run(inputs, isolated=True)

    def _check_after_empty(
        self, first: Answer, ask: Callable[[Inputs], Answer]
    ) -> Iterator[Finding]:
        """Whether a session still answers a new question, once it was given an empty batch."""
        if self._deadline.passed or not self._questions.takes_empty:
            return
        with suppress(OnnxproofError):  # it may refuse an empty batch: the cases show that
            ask(self._questions.empty)
        try:
            answer = ask(self._questions.first)
            words = "answers otherwise once it was given an empty batch"
            for finding in self._compare(first, answer, "wrong-after-empty", words):
                counts = finding.counts and self._policy.strict_domains
                yield replace(finding, counts=counts)
        except OnnxproofError as why:
            yield self._finding(
                "wrong-after-empty",
                f"refuses what it took before, once it was given an empty batch: {why.what}",
                counts=self._policy.strict_domains,
            )

    def _check_stale(
        self, first: Answer, second: Answer, fresh: Answer | None
    ) -> Iterator[Finding]:
        """The same bits for two questions to which the reference gives two answers."""
        for place, name in enumerate(self._names):
            wanted = [answer[place] for answer in self._questions.answers if answer is not None]
            if wanted[0].shape != wanted[1].shape:
                continue
            if not self._beyond(place, *wanted) or not _same(first[place], second[place]):
                continue
            code = "constant-output"
            what = "one answer to different inputs"
            stale = fresh is not None and self._beyond(place, fresh[place], second[place])
            if stale:
                code = "stale-output"
                what = "its answer to the input before"
            yield self._finding(
                code, f"gives {what}: output `{name}` did not change by a bit", counts=stale
            )

    def _check_repeat(self, first: Answer) -> Iterator[Finding]:
        if self._deadline.passed:
            return
        again = self._candidate.run(self._questions.first)
        words = "answers otherwise when it is asked the same again"
        yield from self._compare(first, again, "nondeterminism", words)

    def _compare(
        self,
        one: Answer,
        other: Answer,
        code: str,
        words: str,
    ) -> Iterator[Finding]:
        """A difference of rounding is nothing (threads sum in another order); beyond noise and tolerance it counts."""
        for place, name in enumerate(self._names):
            a = one[place]
            b = other[place]
            if a is None or b is None or _same(a, b):
                continue
            if a.shape != b.shape or not is_float(a):
                yield self._finding(code, f"{words}: output `{name}` differs", counts=False)
                continue
            gap = pair(a, b)
            if self._beyond(place, a, b) and not gap.rms <= self._cost[place]:
                what = f"{words}: output `{name}` by up to {gap.max_abs:.3g}"
                yield self._finding(code, what, counts=True)

    def _beyond(
        self,
        place: int,
        a: Array | None,
        b: Array | None,
    ) -> bool:
        """Whether two answers differ by more than correct ones to one question may: beyond the noise of this output, and beyond the tolerance."""
        if a is None or b is None or a.shape != b.shape or not is_float(a):
            return not _same(a, b)
        gap = pair(a, b)
        least_noise = float(np.finfo(np.float32).eps) * gap.scale
        noise = max(self._questions.noise[place], least_noise)
        return gap.rms > 2 * self._policy.noise_limit * noise and not judging.agrees(
            gap, self._policy
        )

    def _check_nan(self) -> Iterator[Finding]:
        if self._deadline.passed:
            return
        wanted_outputs = self._questions.nan_answer
        if wanted_outputs is None:
            return
        outputs = self._candidate.run(self._questions.with_nan)
        for name, wanted, output in zip(self._names, wanted_outputs, outputs, strict=True):
            if output is None or output.shape != wanted.shape:
                continue
            if not is_float(wanted) or not is_float(output):
                continue
            lost = int((np.isnan(wanted) & ~np.isnan(output)).sum())
            if lost:
                yield self._finding(
                    "nan-dropped",
                    f"makes {lost} numbers of what is NaN in the reference: output `{name}`",
                    counts=self._policy.strict_domains,
                )

    def _check_integers(self) -> Iterator[Finding]:
        if self._deadline.passed:
            return
        wanted_outputs = self._questions.wide_answer
        if wanted_outputs is None:
            return
        outputs = self._candidate.run(self._questions.wide)
        for name, wanted, output in zip(self._names, wanted_outputs, outputs, strict=True):
            if output is None or output.shape != wanted.shape:
                continue
            if wanted.dtype.kind not in "iu" or np.array_equal(output, wanted):
                continue
            truncated = wanted.astype(np.int32).astype(np.int64)
            if np.array_equal(output.astype(np.int64), truncated):
                yield self._finding(
                    "int64-truncated",
                    f"cuts 64-bit integers to 32 bits: output `{name}`",
                    counts=True,
                )

    def _finding(
        self,
        code: str,
        what: str,
        *,
        counts: bool,
    ) -> Finding:
        return Finding(code=code, what=f"`{self._candidate.backend}` {what}", counts=counts)


def _changed(array: Array) -> Array:
    """Another input of the same kind: floats moved, integers and masks in another order."""
    if is_float(array):
        moved = np.random.default_rng(11).standard_normal(array.shape) * 0.5
        return (array.astype(np.float64) * 0.7 + moved).astype(array.dtype)
    return np.ascontiguousarray(array.reshape(-1)[::-1].reshape(array.shape))


def _with_nan(array: Array) -> Array:
    """The array with its first element NaN; integers as they are."""
    if not is_float(array) or not array.size:
        return array
    changed = array.copy()
    changed.reshape(-1)[0] = np.nan
    return changed


def _without_rows(array: Array) -> Array:
    if not array.ndim:
        return array
    return array[:0]


def _same(a: Array | None, b: Array | None) -> bool:
    """Whether two outputs that are not empty have the same bits."""
    if a is None or b is None or a.shape != b.shape:
        return False
    return a.size > 0 and a.tobytes() == b.tobytes()
