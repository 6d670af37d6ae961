"""Trust nothing: a few runs that show whether a runtime answers the question it was asked, each time, and however many threads it has.

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
Answer = Sequence[Array | None]
_WIDE = 1 << 40
_OPENING_S = 0.5
"""Seconds of the share that must be left before a process is started for a second session: it takes about as long."""
_HELD_TWICE = 1 << 26
_BEFOREHAND = frozenset({"reference", "torch", "torch64"})
"""These define what is right, and are too slow to be asked twice."""


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
    """Examine each backend within its share of the time; one that dies on the way is told of by its candidate. `sizes` are inputs that may not grow."""
    found: dict[tuple[str, str], Finding] = {}
    questions = _Questions(reference, signature, policy, sizes)
    for place, candidate in enumerate(candidates):
        share = deadline.within(deadline.left / (len(candidates) - place))
        if parse(candidate.backend)[0] not in _BEFOREHAND:
            with suppress(OnnxproofError):
                for finding in _Examination(
                    candidate, questions, path, signature, policy, share, quantized=quantized
                ).findings():
                    found[finding.code, finding.what.partition(" by up to ")[0]] = (
                        finding  # that two sessions show it is no news
                    )
    return list(found.values())


class _Questions:
    """Two different inputs and what the reference makes of them; what it refuses is not asked."""

    def __init__(
        self, reference: Reference, signature: Signature, policy: Policy, sizes: Collection[str]
    ) -> None:
        self._reference = reference
        self.first = reference.example()
        self.second = {name: _changed(array) for name, array in self.first.items()}
        self.answers = [self._asked(self.first), self._asked(self.second)]
        self.noise = self._noise(self.second, self.answers[1])
        self.poisoned = (
            {name: _poisoned(array) for name, array in self.first.items()}
            if Domain.NAN in policy.domains
            else {}
        )
        self.wide = {
            name: array + _WIDE if array.dtype == np.int64 and name not in sizes else array
            for name, array in self.first.items()
        }
        self.empty = (
            {name: array[:0] if array.ndim else array for name, array in self.first.items()}
            if Domain.EMPTY in policy.domains
            else {}
        )
        self.varies = any(isinstance(dim, str) for info in signature.inputs for dim in info.dims)

    @cached_property
    def takes_empty(self) -> bool:
        """Whether the reference takes an empty batch."""
        return self.varies and bool(self.empty) and self._asked(self.empty) is not None

    @cached_property
    def poisoned_answer(self) -> list[Array] | None:
        """What the reference makes of NaN."""
        return self._asked(self.poisoned) if self.poisoned else None

    @cached_property
    def wide_answer(self) -> list[Array] | None:
        """What the reference makes of integers beyond 32 bits."""
        return (
            self._asked(self.wide)
            if any(array.dtype == np.int64 for array in self.first.values())
            else None
        )

    def _asked(self, inputs: Mapping[str, Array]) -> list[Array] | None:
        try:
            return self._reference.run(inputs)
        except Exception:  # the user's module: any refusal is an answer here
            return None

    def _noise(self, inputs: Mapping[str, Array], answer: list[Array] | None) -> list[float]:
        if answer is None:
            return []
        truth = self._reference.truth(inputs)
        if truth is None or len(truth) != len(
            answer
        ):  # in float64 the module may go another way: the cases tell that
            truth = answer
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
        self._candidate, self._ask, self._path, self._policy = candidate, questions, path, policy
        self._names = [output.name for output in signature.outputs]
        self._deadline = deadline
        self._cost, self._quantized = [0.0] * len(self._names), quantized

    def findings(self) -> Iterator[Finding]:
        """Question by question, until the time is over."""
        if None in self._ask.answers:
            return
        first = self._candidate.run(self._ask.first)
        second = self._candidate.run(self._ask.second)
        self._cost = self._quantization_cost(second)
        for step in (self._again(first), self._nan(), self._integers(), self._fresh(first, second)):
            with suppress(
                OnnxproofError
            ):  # a question that it refuses, or dies of: its candidate tells that
                yield from step

    def _quantization_cost(self, second: Answer) -> list[float]:
        """How far a quantized file is from the reference anyway: its kernels may round in other groups, such as one for each thread."""
        wanted = self._ask.answers[1]
        if wanted is None or not self._quantized:
            return self._cost
        return [
            0.0 if found is None else pair(reference, found).rms
            for reference, found in zip(wanted, second, strict=True)
        ]

    def _fresh(self, first: Answer, second: Answer) -> Iterator[Finding]:
        """The second question to a session that never heard the first, with another number of threads; then what an empty batch does to it."""
        ask = self._other() if not self._deadline.passed else None
        fresh = ask(self._ask.second) if ask is not None else None
        yield from self._stale(first, second, fresh)
        if ask is not None and fresh is not None:
            yield from self._compared(
                second, fresh, "threads", "answers otherwise with another number of threads"
            )
            yield from self._after_empty(first, ask)

    def _other(self) -> Callable[[Mapping[str, Array]], Answer] | None:
        """The session that empty tensors get; where every dim is fixed there are none, and a second one will do, if the model is small enough for that."""
        if not self._ask.varies and _weight(self._path) > _HELD_TWICE:
            return None
        if self._deadline.left < _OPENING_S:
            return None
        start = time.perf_counter()
        self._candidate.open_other(isolate=True if self._ask.varies else current().isolate)
        self._deadline = Deadline(
            self._deadline.until + time.perf_counter() - start
        )  # a slow start leaves no question out
        return lambda inputs: self._candidate.run(inputs, isolated=True)

    def _after_empty(
        self, first: Answer, ask: Callable[[Mapping[str, Array]], Answer]
    ) -> Iterator[Finding]:
        """Whether a session still answers a new question, once it was given an empty batch."""
        if self._deadline.passed or not self._ask.takes_empty:
            return
        with suppress(OnnxproofError):  # it may refuse an empty batch: the cases tell that
            ask(self._ask.empty)
        try:
            found = self._compared(
                first,
                ask(self._ask.first),
                "wrong-after-empty",
                "answers otherwise once it was given an empty batch",
            )
            yield from (
                replace(finding, counts=finding.counts and self._policy.strict_domains)
                for finding in found
            )
        except OnnxproofError as why:
            yield self._finding(
                "wrong-after-empty",
                f"refuses what it took before, once it was given an empty batch: {why.what}",
                counts=self._policy.strict_domains,
            )

    def _stale(self, first: Answer, second: Answer, fresh: Answer | None) -> Iterator[Finding]:
        """The same bits for two questions to which the reference gives two answers."""
        for place, name in enumerate(self._names):
            wanted = [answer[place] for answer in self._ask.answers if answer is not None]
            if wanted[0].shape != wanted[1].shape:
                continue
            if not self._beyond(place, *wanted) or not _same(first[place], second[place]):
                continue
            old = fresh is not None and self._beyond(place, fresh[place], second[place])
            what = "its answer to the input before" if old else "one answer to different inputs"
            yield self._finding(
                "stale-output" if old else "constant-output",
                f"gives {what}: output `{name}` did not change by a bit",
                counts=old,
            )

    def _again(self, first: Answer) -> Iterator[Finding]:
        if self._deadline.passed:
            return
        yield from self._compared(
            first,
            self._candidate.run(self._ask.first),
            "nondeterminism",
            "answers otherwise when it is asked the same again",
        )

    def _compared(self, one: Answer, other: Answer, code: str, words: str) -> Iterator[Finding]:
        """A difference of rounding is nothing (threads sum in another order); beyond noise and tolerance it counts."""
        for place, name in enumerate(self._names):
            a, b = one[place], other[place]
            if a is None or b is None or _same(a, b):
                continue
            if a.shape != b.shape or not is_float(a):
                yield self._finding(code, f"{words}: output `{name}` differs", counts=False)
                continue
            if self._beyond(place, a, b) and not pair(a, b).rms <= self._cost[place]:
                yield self._finding(
                    code, f"{words}: output `{name}` by up to {pair(a, b).max_abs:.3g}", counts=True
                )

    def _beyond(self, place: int, a: Array | None, b: Array | None) -> bool:
        """Farther apart than two honest answers to one question may be: beyond the noise of this output, and beyond the tolerance."""
        if a is None or b is None or a.shape != b.shape or not is_float(a):
            return not _same(a, b)
        gap = pair(a, b)
        noise = max(self._ask.noise[place], float(np.finfo(np.float32).eps) * gap.scale)
        return gap.rms > 2 * self._policy.noise_limit * noise and not judging.agrees(
            gap, self._policy
        )

    def _nan(self) -> Iterator[Finding]:
        if self._deadline.passed or self._ask.poisoned_answer is None:
            return
        for name, wanted, found in zip(
            self._names,
            self._ask.poisoned_answer,
            self._candidate.run(self._ask.poisoned),
            strict=True,
        ):
            if (
                found is not None
                and is_float(wanted)
                and found.shape == wanted.shape
                and is_float(found)
            ):
                lost = int((np.isnan(wanted) & ~np.isnan(found)).sum())
                if lost:
                    yield self._finding(
                        "nan-dropped",
                        f"makes {lost} numbers of what is NaN in the reference: output `{name}`",
                        counts=self._policy.strict_domains,
                    )

    def _integers(self) -> Iterator[Finding]:
        if self._deadline.passed or self._ask.wide_answer is None:
            return
        for name, wanted, found in zip(
            self._names, self._ask.wide_answer, self._candidate.run(self._ask.wide), strict=True
        ):
            if (
                found is None
                or wanted.dtype.kind not in "iu"
                or found.shape != wanted.shape
                or np.array_equal(found, wanted)
            ):
                continue
            if np.array_equal(found.astype(np.int64), wanted.astype(np.int32).astype(np.int64)):
                yield self._finding(
                    "int64-truncated",
                    f"cuts 64-bit integers to 32 bits: output `{name}`",
                    counts=True,
                )

    def _finding(self, code: str, what: str, *, counts: bool) -> Finding:
        return Finding(code=code, what=f"`{self._candidate.backend}` {what}", counts=counts)


def _weight(path: Path) -> int:
    """Bytes of the file and of the weights beside it."""
    beside = onnx_file.external_files(onnx_file.read(path).model)
    return sum(file.stat().st_size for file in (path, *(path.parent / name for name in beside)))


def _changed(array: Array) -> Array:
    """Another input of the same kind: floats moved, integers and masks in another order."""
    if is_float(array):
        moved = np.random.default_rng(11).standard_normal(array.shape) * 0.5
        return (array.astype(np.float64) * 0.7 + moved).astype(array.dtype)
    return np.ascontiguousarray(array.reshape(-1)[::-1].reshape(array.shape))


def _poisoned(array: Array) -> Array:
    if not is_float(array) or not array.size:
        return array
    poisoned = array.copy()
    poisoned.reshape(-1)[0] = np.nan
    return poisoned


def _same(a: Array | None, b: Array | None) -> bool:
    return (
        a is not None
        and b is not None
        and a.shape == b.shape
        and a.size > 0
        and a.tobytes() == b.tobytes()
    )
