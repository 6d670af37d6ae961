"""One case on every backend: run, measure, and, before anything raises an alarm, measure the noise again.

A gap that looks too large is confirmed first. The reference is re-run with every operation rounded anew, and those
runs tell which part of the gap any honest float32 implementation could show. What survives is then asked whether it
lives only in a domain where runtimes differ by nature: exact ties, NaN, infinities, empty tensors, what a mask hides.
"""

import math
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from onnxproof.errors import BackendError, Refused
from onnxproof.numerics.measure import (
    GapLabel,
    Noise,
    is_float,
    largest,
    measure,
    noise_of,
    noise_of_reruns,
    pool,
)
from onnxproof.options import Policy
from onnxproof.reference.doubt import Doubts
from onnxproof.reference.protocol import Oracle
from onnxproof.results import Case, Domain, Gap, NoiseKind, Note, Signature, Status, Verdict, Void
from onnxproof.results.judging import beyond_noise, judge_gap, within_tolerance
from onnxproof.runtimes.session.execution import Candidate
from onnxproof.verification.masked import Masks, agree_when_opened
from onnxproof.verification.notes import note_of, show
from onnxproof.verification.quantized import Fidelity, Simulated
from onnxproof.verification.void_outputs import Answers

Array = np.ndarray[Any, Any]
RERUNS = 4
_PLAIN = 20.0
"""Times the limit from which on one re-run is enough to confirm a gap: chosen far above the limit, to be replaced by what healthy models reach before any
re-run (`python -m bench.first_measure`)."""
_DOUBT = 0.4
"""Share of the limits from which on the noise is measured again: one comparison alone is a rough estimate."""
_ENOUGH = 3
"""Confirmed ordinary cases of one output after which the others are believed: the verdict stands."""
_LOUD = (4.0, 4.0, 8.0, 8.0, 8.0, 16.0)
LOUDER = len(_LOUD)
"""Amplitudes of the re-runs which ask whether a decision flips: noise that grows faster than they do says that one did."""
_ROUGH = (NoiseKind.GRAPH, NoiseKind.PERTURBED)
"""Estimates whose re-runs don't know how each operation rounds: there an output's usual size sets the floor."""
_FAR_BELOW = 1e-9
"""Elsewhere only what is this far below an output's usual size is nothing: denormal inputs, for one."""
_FAR = 1.05
"""How far beyond the largest number of a dtype rounding can no longer decide whether a value is finite."""
_OF_HALF = 0.5
"""What counts of the bias of a half file: its norms are folded into weights that are rounded to half once more."""
_HALF_AT_MOST = 0.05
"""Of an output's size: what half precision may cost a module. Where a sum overflows in half, the module in half has lost its answer, and a file that keeps
that sum in float32 has not: its own loss is no noise. Twelve times this is 0.6 of the output."""
_ROUNDING = 0.5
"""Of an answer's scale: farther apart than this, float32 and float64 with ties broken by one rule took different ways, and the difference is no noise."""


ORDERING = frozenset(
    {"ArgMax", "ArgMin", "TopK", "Unique", "NonMaxSuppression", "If", "Loop", "Scan"}
)
DISCRETE = ORDERING | frozenset(
    {
        "Round",
        "Floor",
        "Ceil",
        "Greater",
        "GreaterOrEqual",
        "Less",
        "LessOrEqual",
        "Equal",
        "Where",
        "Cast",
        "Sign",
        "NonZero",
        "Mod",
        "QuantizeLinear",
        "DynamicQuantizeLinear",
        "Resize",
        "GridSample",
        "Gather",
        "GatherND",
        "GatherElements",
        "HardSigmoid",
        "Atan",
        "Div",
        "ThresholdedRelu",
        "OneHot",
        "CumSum",
        "Sqrt",
    }
)
"""Operators at which an answer may jump: only where there is one can a decision have flipped."""


class ReferenceRefused(Exception):
    """The reference itself does not take this case."""


class Unconfirmed(Exception):
    """A case differs beyond noise, and no time is left for the re-runs that would confirm it."""


class NoMemory(ReferenceRefused):
    """The machine has too little memory at the moment for a case of a file that answered others: that says nothing about the file."""


@dataclass(slots=True)
class Outcome:
    """What one case gave."""

    gaps: list[Gap] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)


class Scales:
    """The usual size of each output, from ordinary cases: an error far below it is nothing."""

    def __init__(self) -> None:
        self._seen: dict[str, list[float]] = defaultdict(list)

    def add(self, gap: Gap) -> None:
        """Remember the scale of an ordinary case."""
        if len(self._seen[gap.output]) < 16 and gap.compared:
            self._seen[gap.output].append(gap.scale)

    def of(self, output: str) -> float:
        """The median so far."""
        return statistics.median(self._seen[output]) if self._seen[output] else 0.0


class Trial:
    """Runs cases one by one; holds no tensor between two of them."""

    def __init__(
        self,
        oracle: Oracle,
        candidates: Sequence[Candidate],
        signature: Signature,
        policy: Policy,
        *,
        half: str | None = None,
        seed: int = 0,
        op_types: frozenset[str] = DISCRETE,
        fidelity: Fidelity | None = None,
        affords: Callable[[int, float], bool] = lambda reruns, each_s: True,
        masks: Masks | None = None,
    ) -> None:
        self._oracle, self._candidates, self._signature, self._policy = (
            oracle,
            candidates,
            signature,
            policy,
        )
        self._decides, self._orders = bool(op_types & DISCRETE), bool(op_types & ORDERING)
        self._half, self._seed, self._fidelity, self._affords, self._masks = (
            half,
            seed,
            fidelity,
            affords,
            masks,
        )
        self._scales = Scales()
        self._confirmed: Counter[tuple[str, str, Verdict]] = Counter()
        names = [output.name for output in signature.outputs]
        self.doubts, self.answers = (
            Doubts(oracle, names, lambda passes: affords(passes, 0.0)),
            Answers(names),
        )
        self.plain: set[str] = set()
        """The cases of ordinary values."""

    def run(self, case: Case) -> Outcome:
        """Compare all outputs on all backends."""
        base = self._base(case)
        outcome = Outcome()
        self.answers.add(case, base.reference)
        if case.ordinary:
            self.plain.add(case.name)
        for candidate in self._candidates:
            gaps = self._compare(case, candidate, base, outcome.notes)
            gaps = [
                replace(gap, void=Void.RANDOM) if gap.output in self.doubts.random else gap
                for gap in gaps
            ]
            outcome.gaps += gaps
            if case.ordinary:
                for gap in gaps:
                    self._scales.add(gap)
        return outcome

    def bias(self, case: Case, graph: Candidate) -> dict[str, float]:
        """How far the graph's own arithmetic, evaluated in float64, is from the truth: by output, in units of the noise."""
        base = self._base(case)
        base.confirm()
        found = graph.run(case.inputs)
        gaps = [
            self._measure(case, graph.backend, base, place, output)
            for place, output in enumerate(found)
            if base.truth[place] is not None
        ]
        wide = {
            o.name for o in self._signature.outputs if o.dtype == "float64"
        }  # no truth is wider than these
        share = 1.0 if self._half is None else _OF_HALF
        return {
            gap.output: share * gap.noise_ratio
            for gap in gaps
            if gap.compared
            and gap.noise_kind in (NoiseKind.DOUBLE, NoiseKind.PROMOTED)
            and gap.output not in wide
        }

    def _base(self, case: Case) -> "_Base":
        start = time.perf_counter()
        try:
            reference = self._oracle.run(case.inputs)
        except Exception as why:  # whatever the user's module raises: it does not take this input
            raise ReferenceRefused(f"{type(why).__name__}: {why}") from why
        if len(reference) != len(self._signature.outputs):
            raise ReferenceRefused(
                f"the reference returns {len(reference)} outputs here and {len(self._signature.outputs)} for the example"
            )
        seconds = time.perf_counter() - start
        truth: Sequence[Array | None] | None = self._oracle.truth(case.inputs)
        if not self.doubts.look(case, reference, truth):
            truth = None
        base = self._estimated(
            _Base(self._oracle, case, reference, truth or [None] * len(reference), self._seed)
        )
        base.seconds = seconds
        base.simulated = self._fidelity.simulate(case) if self._fidelity is not None else None
        return base

    def _estimated(self, base: "_Base") -> "_Base":
        base.estimate()
        if self._half is not None and any(
            str(r.dtype) != self._half for r in base.reference if is_float(r)
        ):
            base.add(self._oracle.in_precision(base.case.inputs, self._half), most=_HALF_AT_MOST)
        return base

    def _compare(
        self, case: Case, candidate: Candidate, base: "_Base", notes: list[Note]
    ) -> list[Gap]:
        try:
            found = candidate.run(
                case.inputs, apart=any(array.size == 0 for array in case.inputs.values())
            )
        except BackendError as why:
            if isinstance(why, Refused) and why.code == "out-of-memory" and candidate.answered:
                raise NoMemory(
                    f"`{candidate.backend}` would need more memory than there is at the moment"
                ) from why
            domain = case.domain
            gaps = [
                Gap(
                    case=case.name,
                    group=case.group,
                    backend=candidate.backend,
                    output=o.name,
                    status=Status.REFUSED,
                    detail=why.what,
                    domain=domain,
                )
                for o in self._signature.outputs
            ]
            if domain is not None:
                notes += [
                    Note(
                        domain=domain,
                        case=case.name,
                        backend=candidate.backend,
                        output=gap.output,
                        what="the candidate refuses it",
                        reference=show(r, r),
                        candidate=why.what,
                    )
                    for gap, r in zip(gaps, base.reference, strict=True)
                ]
            return gaps
        gaps = []
        for place, output in enumerate(found):
            gap = self._measure(case, candidate.backend, base, place, output)
            if self._suspicious(gap, share=_DOUBT) and not self._known_already(gap, case):
                if not self._confirmable(gap, base):
                    gaps.append(gap)
                    continue
                base.confirm()
                gap = replace(
                    self._measure(case, candidate.backend, base, place, output), confirmed=True
                )
                if self._suspicious(gap):
                    gap = self._classify(gap, case, base, candidate, place, output)
                    gap = self._beside_masks(gap, case, base, candidate, place, output) or gap
                if case.ordinary:
                    self._confirmed[gap.backend, gap.output, judge_gap(gap, self._policy)] += 1
            gaps.append(gap)
            if output is not None and (gap.domain is not None or gap.odd):
                notes.append(note_of(gap, base.reference[place], output))
        return gaps

    @property
    def most_reruns(self) -> int:
        """How many runs of the reference it may take to confirm one case."""
        return RERUNS + (LOUDER if self._decides else 0)

    def _confirmable(self, gap: Gap, base: "_Base") -> bool:
        """Whether the re-runs fit into the budget. Where they don't: False for a gap that needs none, and `Unconfirmed` for one that would be an alarm.

        A gap that is plainly no rounding is confirmed by one re-run, however little time there is: there must be an answer to a wrong file.
        """
        needed = self.most_reruns - (RERUNS if base.confirmed else 0)
        if self._affords(needed, base.seconds):
            return True
        if self._plainly_wrong(gap):
            base.confirm(1)
            return True
        if self._suspicious(gap) and gap.status not in (Status.SHAPE, Status.MISSING):
            raise Unconfirmed(
                f"output `{gap.output}` differs beyond noise, and there was no time to confirm it"
            )
        return False

    def _plainly_wrong(self, gap: Gap) -> bool:
        """Far beyond noise and beyond the tolerance, in a model that decides nothing: there no flipped decision explains it."""
        far = gap.noise_ratio > _PLAIN * self._policy.noise_limit
        return (
            far
            and not self._decides
            and gap.domain is None
            and not within_tolerance(gap, self._policy)
        )

    def _measure(
        self,
        case: Case,
        backend: str,
        base: "_Base",
        place: int,
        output: Array | None,
        **other: Any,
    ) -> Gap:
        name = self._signature.outputs[place].name
        if base.simulated is not None and output is not None and not other:
            return self._measure_quantized(case, backend, base, base.simulated, place, output)
        arguments: dict[str, Any] = {
            "reference": base.reference[place],
            "truth": base.truth[place],
            "noise": base.noise(place),
        } | other
        return measure(
            GapLabel(case=case.name, group=case.group, backend=backend, output=name),
            candidate=output,
            floor_scale=self._scales.of(name) * (1.0 if base.kind in _ROUGH else _FAR_BELOW),
            atol=self._policy.atol,
            rtol=self._policy.rtol,
            **arguments,
        )

    def _measure_quantized(
        self,
        case: Case,
        backend: str,
        base: "_Base",
        simulated: Simulated,
        place: int,
        output: Array,
    ) -> Gap:
        """The runtime against the simulated graph, in units of what quantization costs; and the quality of the answer."""
        assert self._fidelity is not None
        name, reference, said = (
            self._signature.outputs[place].name,
            base.reference[place],
            simulated.outputs[place],
        )
        truth = base.truth[place]
        truth = reference if truth is None else truth
        if said is None or said.shape != truth.shape:
            said = output
        noise = self._fidelity.noise(name, said, truth, ordinary=case.ordinary)
        gap = measure(
            GapLabel(case=case.name, group=case.group, backend=backend, output=name),
            reference=reference,
            truth=said,
            candidate=output,
            noise=noise,
            atol=self._policy.atol,
            rtol=self._policy.rtol,
        )
        return self._fidelity.weigh(gap, case, output, truth, simulated)

    def _suspicious(self, gap: Gap, share: float = 1.0) -> bool:
        policy = replace(
            self._policy,
            noise_limit=self._policy.noise_limit * share,
            worst_limit=self._policy.worst_limit * share,
            runtime_limit=self._policy.runtime_limit * share,
        )
        return (
            gap.status in (Status.SHAPE, Status.MISSING)
            or gap.lost > 0
            or beyond_noise(gap, policy)
        )

    def _known_already(self, gap: Gap, case: Case) -> bool:
        """True where a few ordinary cases, confirmed, said what this one would say: re-runs cost more than all other passes together."""
        plain = case.domain is None and not gap.lost and gap.status is Status.COMPARED
        worse = [
            verdict
            for verdict in (Verdict.DRIFT, Verdict.DIVERGED)
            if self._confirmed[gap.backend, gap.output, verdict] >= _ENOUGH
        ]
        return plain and (
            Verdict.DIVERGED in worse or (bool(worse) and within_tolerance(gap, self._policy))
        )

    def _classify(
        self,
        gap: Gap,
        case: Case,
        base: "_Base",
        candidate: Candidate,
        place: int,
        output: Array | None,
    ) -> Gap:
        """Say in which odd domain the difference lives, if in one; otherwise leave it to count."""
        if case.domain is Domain.EMPTY or (
            gap.status is Status.SHAPE and base.reference[place].size == 0
        ):
            return replace(gap, domain=Domain.EMPTY)
        if (gap.lost or self._half is not None) and base.undecided_infinities(
            place
        ):  # a half file is not to be blamed where half itself ends
            return replace(gap, domain=Domain.INF)
        if case.domain is not None and not (
            gap.lost and case.domain is Domain.NAN and base.all_finite()
        ):
            return replace(gap, domain=self._domain_beside_nonfinite(gap, case, candidate, place))
        if output is None or gap.status is Status.SHAPE:
            return gap
        if self._decides and not gap.lost and base.flips(place):
            calmer = self._measure(case, gap.backend, base, place, output)
            if not self._suspicious(calmer):
                return replace(calmer, confirmed=True)
        for rule in ("first", "last") if self._orders else ():
            if self._agrees_with_ties_broken(case, gap.backend, base, place, output, rule):
                return replace(gap, domain=Domain.TIES)
        return gap

    def _domain_beside_nonfinite(
        self, gap: Gap, case: Case, candidate: Candidate, place: int
    ) -> Domain | None:
        """The domain of a difference on inputs that are not finite; None where it is a fault.

        Where finite numbers differ, the case is tried with nothing but finite inputs: what is still there is no matter of NaN or infinity.
        """
        if gap.lost or gap.status is not Status.COMPARED or not beyond_noise(gap, self._policy):
            return case.domain
        finite = replace(
            case,
            inputs={name: _without_nonfinite(array) for name, array in case.inputs.items()},
            domain=None,
        )
        try:
            again = self._compare(finite, candidate, self._base(finite), [])[place]
        except ReferenceRefused:
            return case.domain
        if (
            again.domain is None
            and again.status is Status.COMPARED
            and judge_gap(again, self._policy) in (Verdict.DRIFT, Verdict.DIVERGED)
        ):
            return None
        return again.domain or case.domain

    def _agrees_with_ties_broken(
        self, case: Case, backend: str, base: "_Base", place: int, output: Array, rule: str
    ) -> bool:
        """Whether the candidate says what the reference says with its ties broken by a rule, by the noise of that very answer: another expert has another noise."""
        broken = self._oracle.ties(case.inputs, rule)
        if broken is None or broken[place].shape != output.shape:
            return False
        noise, truth = base.noise(place), None
        wide = self._oracle.ties(case.inputs, rule, wide=True)
        if wide is not None and is_float(output) and wide[place].shape == output.shape:
            own = noise_of(broken[place], wide[place], base.kind)
            scale = float(np.sqrt(np.mean(np.square(wide[place])))) if output.size else 0.0
            if (
                noise.rms < own.rms <= _ROUNDING * scale
            ):  # beyond it, float64 took another way at a tie
                noise, truth = own, wide[place]
        tied = self._measure(
            case, backend, base, place, output, reference=broken[place], truth=truth, noise=noise
        )
        return not self._suspicious(tied)

    def _beside_masks(
        self,
        gap: Gap,
        case: Case,
        base: "_Base",
        candidate: Candidate,
        place: int,
        output: Array | None,
    ) -> Gap | None:
        """The gap of what no mask hides, where the two differ only in what one hides and agree once it is opened; else None."""
        finite = (
            output is not None
            and gap.domain is None
            and gap.status is not Status.SHAPE
            and not gap.lost
        )
        if (
            self._masks is None
            or not finite
            or base.simulated is not None
            or not self._masks.hidden(case.inputs)
        ):
            return None
        hidden = self._masks.excused(case.inputs, case.sizes, base.reference[place].shape)
        rest = self._rest(case, candidate.backend, base, place, output, ~hidden)
        if not hidden.any() or (rest.compared and self._suspicious(rest)):
            return None

        def agree(inputs: Mapping[str, Array]) -> bool:
            return self._agree(replace(case, inputs=inputs), candidate, place)

        return (
            replace(rest, domain=Domain.MASKED)
            if agree_when_opened(self._masks, case.inputs, agree)
            else None
        )

    def _agree(self, case: Case, candidate: Candidate, place: int) -> bool:
        """Whether the two agree on a case: everywhere, or but for the very places that a mask hides."""
        try:
            base, output = self._base(case), candidate.run(case.inputs)[place]
        except (ReferenceRefused, BackendError):
            return False
        kept = [np.ones(base.reference[place].shape, bool)]
        if self._masks is not None:
            kept.append(~self._masks.excused(case.inputs, case.sizes, kept[0].shape))
        tried = (
            self._rest(case, candidate.backend, base, place, output, keep)
            for keep in kept
            if keep.any()
        )
        return any(gap.compared and not self._suspicious(gap) for gap in tried)

    def _rest(
        self, case: Case, backend: str, base: "_Base", place: int, output: Array | None, keep: Array
    ) -> Gap:
        """The gap of some values of an output alone, by their own noise."""
        if output is None or output.shape != keep.shape:
            return self._measure(case, backend, base, place, output)
        part = self._estimated(base.only(place, keep))
        gap = self._measure(case, backend, part, place, output[keep])
        if self._suspicious(gap, share=_DOUBT):
            part.confirm()
            gap = replace(self._measure(case, backend, part, place, output[keep]), confirmed=True)
        if self._suspicious(gap) and self._decides and not gap.lost and part.flips(place):
            gap = replace(self._measure(case, backend, part, place, output[keep]), confirmed=True)
        worst = (
            np.unravel_index(np.flatnonzero(keep)[gap.worst[0]], keep.shape) if gap.worst else None
        )
        return replace(gap, worst=tuple(int(i) for i in worst) if worst is not None else None)


class _Base:
    """The reference's side of one case: its answer, the truth, and how well its noise is known so far."""

    def __init__(
        self,
        oracle: Oracle,
        case: Case,
        reference: list[Array],
        truth: Sequence[Array | None],
        seed: int,
        only: tuple[int, Array] | None = None,
    ) -> None:
        self._oracle, self.case, self._seed = oracle, case, seed
        self._only = only
        """The output of which some values alone are looked at, and which; None looks at all."""
        self.kind = oracle.kind
        self.reference, self.truth = reference, list(truth)
        self._noises: list[list[Noise]] = [[] for _ in reference]
        self._lost = [False] * len(reference)
        self._reruns = 0
        self._elsewhere: set[int] = set()
        """Outputs without a truth whose re-runs agree on another answer than the reference: they took another path, and flip nothing."""
        self.seconds = 0.0
        """How long the reference took for it."""
        self.simulated: Simulated | None = None
        """What a quantized candidate's graph says by itself."""

    def only(self, place: int, keep: Array) -> "_Base":
        """The same for some values of one output alone; its noise is not estimated yet."""
        reference, truth = list(self.reference), list(self.truth)
        known = truth[place]
        reference[place], truth[place] = (
            reference[place][keep],
            known[keep] if known is not None else None,
        )
        return _Base(self._oracle, self.case, reference, truth, self._seed, only=(place, keep))

    def _kept(self, outputs: Sequence[Array]) -> list[Array]:
        """The outputs of another run, those values alone that are looked at."""
        kept = list(outputs)
        if self._only is not None:
            place, keep = self._only
            if kept[place].shape == keep.shape:
                kept[place] = kept[place][keep]
        return kept

    def estimate(self) -> None:
        """Reference against truth; where there is no truth, re-runs against the reference."""
        for place, (r, t) in enumerate(zip(self.reference, self.truth, strict=True)):
            if t is not None and t.shape == r.shape:
                self.truth[place] = t = _within(t, r)
                self._noises[place].append(noise_of(r, t, self._oracle.kind))
            else:
                self.truth[place] = None
        if any(t is None for t in self.truth):
            self.confirm()

    def add(
        self, outputs: Sequence[Array] | None, kind: NoiseKind | None = None, most: float = math.inf
    ) -> None:
        """Take another run of the reference as a sample of its noise, of which no more than this share of the output's size counts."""
        for place, output in enumerate(self._kept(outputs) if outputs else ()):
            target = self.truth[place] if self.truth[place] is not None else self.reference[place]
            if target is not None and output.shape == target.shape:
                found = noise_of(
                    output,
                    target,
                    kind
                    or (
                        self._oracle.kind if self.truth[place] is not None else NoiseKind.PERTURBED
                    ),
                )
                self._noises[place].append(_limited(found, target, most))
                if is_float(output) and output.shape == self.reference[place].shape:
                    here = np.isfinite(self.reference[place].astype(np.float64))
                    self._lost[place] |= bool(
                        (here & ~np.isfinite(output.astype(np.float64))).any()
                    )

    def noise(self, place: int) -> Noise:
        """The noise of one output, from every sample so far."""
        return pool(self._noises[place])

    def confirm(self, count: int = RERUNS) -> None:
        """Re-run the reference with fresh rounding; once a case is enough."""
        if self._reruns:
            return
        unknown = [
            place
            for place, truth in enumerate(self.truth)
            if truth is None and is_float(self.reference[place])
        ]
        kept: list[dict[int, Array]] = []
        for outputs in self._samples(count, amplitude=1.0):
            self.add(outputs)
            kept.append({place: outputs[place] for place in unknown})
        for place in unknown:
            steady = noise_of_reruns(
                self._noises[place], [sample[place] for sample in kept], self.reference[place]
            )
            self._elsewhere |= {place} if steady != self._noises[place] else set()
            self._noises[place] = steady

    @property
    def confirmed(self) -> bool:
        """Whether the re-runs were made."""
        return self._reruns > 0

    def flips(self, place: int) -> bool:
        """Ask louder and louder re-runs whether a decision inside the model flips; their noise counts only if one does."""
        if place in self._elsewhere:
            return False
        quiet = self.noise(place)
        target = self.truth[place] if self.truth[place] is not None else self.reference[place]
        assert target is not None
        found = False
        for amplitude in _LOUD:
            for outputs in map(self._kept, self._samples(1, amplitude=amplitude)):
                if outputs[place].shape == target.shape:
                    noise = noise_of(outputs[place], target, quiet.kind)
                    if noise.rms > 4 * amplitude * quiet.rms or noise.flips > 0:
                        self._noises[place].append(noise)
                        found = True
        return found

    def all_finite(self) -> bool:
        """True when the reference absorbed whatever was odd about the input: then the candidate must too."""
        return all(_is_finite(r) for r in self.reference)

    def undecided_infinities(self, place: int) -> bool:
        """True when a re-run, or the truth, is not finite where the reference happens to be."""
        truth, reference = self.truth[place], self.reference[place]
        if truth is not None and is_float(reference):
            beyond = np.isfinite(reference.astype(np.float64)) & ~np.isfinite(
                truth.astype(reference.dtype).astype(np.float64)
            )
            if beyond.any():
                return True
        return self._lost[place]

    def _samples(self, count: int, *, amplitude: float) -> Iterator[list[Array]]:
        for index in range(count):
            self._reruns += 1
            move = not self.case.exact and self.case.domain is None and index % 2 == 1
            try:
                outputs = self._oracle.rerun(
                    self.case.inputs, self._seed + self._reruns, amplitude=amplitude, move=move
                )
            except Exception:  # noqa: S112 - a re-run that the module refuses is one sample less, and the count shows it
                continue
            if len(outputs) == len(self.reference):
                yield outputs


def _within(truth: Array, reference: Array) -> Array:
    """The truth, but the reference's own word where it stays finite and the truth is far beyond what its dtype holds: the module sees to that (`nan_to_num`, a clamp)."""
    if not is_float(reference):
        return truth
    with np.errstate(invalid="ignore", over="ignore"):
        far = np.abs(truth) > _FAR * largest(reference.dtype)
    far &= (
        np.isfinite(truth) & np.isfinite(reference.astype(np.float64, copy=False))
        if far.any()
        else far
    )
    return np.where(far, reference, truth) if far.any() else truth


def _limited(noise: Noise, target: Array, most: float) -> Noise:
    if most == math.inf or not is_float(target):
        return noise
    finite = target[np.isfinite(target)].astype(np.float64)
    limit = most * float(np.sqrt(np.mean(np.square(finite)))) if finite.size else math.inf
    return replace(noise, rms=min(noise.rms, limit), worst=min(noise.worst, 4 * limit))


def _is_finite(array: Array) -> bool:
    if array.dtype.kind == "c":
        return bool(np.isfinite(array).all())
    return not is_float(array) or bool(np.isfinite(array.astype(np.float64)).all())


def _without_nonfinite(array: Array) -> Array:
    """The array with the mean of its finite values wherever there is none."""
    if not is_float(array):
        return array
    wide = array.astype(np.float64)
    finite = np.isfinite(wide)
    return np.where(finite, wide, wide[finite].mean() if finite.any() else 0.0).astype(array.dtype)
