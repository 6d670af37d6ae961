"""The cases on which a cause is judged: the witness, others that show the fault, and some that don't.

Those of the run come first. Where they are too few, further ones are made: the witness mixed with ordinary values, its
elements in another order, other scales and sizes, and fresh draws.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from onnxproof.diagnosis import limits
from onnxproof.diagnosis.locate import Scene
from onnxproof.diagnosis.locate.scene import has_finite, rounding_distances
from onnxproof.inputs.space import Space, as_dtype, is_float
from onnxproof.numerics.measure import is_float as has_floats
from onnxproof.results import Case
from onnxproof.system.deadline import Deadline

Array = np.ndarray[Any, Any]
Inputs = Mapping[str, Array]
_FEWEST_ROWS = 4
"""Rows of a batch from which others can be drawn. Not measured."""
Run = Callable[[Inputs], list[Array | None] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialCase:
    """One case with both answers to it."""

    scene: Scene
    outputs: list[Array | None] | None
    """The candidate's; None where it refuses the case."""
    before: float
    """The relative error of the candidate."""
    improvement: float = limits.FIXED_IMPROVEMENT
    """How many times smaller than before an error must be to be gone."""

    @property
    def inputs(self) -> Inputs:
        """What both models are given."""
        return self.scene.case.inputs

    @property
    def limit(self) -> float:
        """The relative error up to which an answer is right on this case."""
        return limits.answer_limit(self.scene.noise)

    @property
    def fails(self) -> bool:
        """Whether the candidate is wrong on it."""
        return not self.before <= self.limit

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes of the open dims."""
        return {
            dim: np.shape(self.inputs[info.name])[place]
            for info in self.scene.signature.inputs
            for place, dim in enumerate(info.dims)
            if isinstance(dim, str)
        }

    @property
    def has_no_numbers(self) -> bool:
        """Whether the candidate answers with NaN and infinity alone: any model that does so would agree with it."""
        return self.outputs is not None and not any(has_finite(array) for array in self.outputs)

    def is_fixed(self, error: float) -> bool:
        """Whether the error is gone, not only smaller than before; never where rounding explains it."""
        if not self.before > self.scene.noise:
            return False
        return error <= self.limit and error < self.before / self.improvement


def same_scene(scene: Scene, case: Case, least_noise: float = limits.LEAST_NOISE) -> Scene | None:
    """The scene of another case; None where the reference refuses it, or answers with nothing."""
    try:
        answers = scene.reference.run(case.inputs)
        truth = scene.reference.truth(case.inputs) or answers
    except Exception:  # whatever the user's module raises: it does not take this input
        return None
    if len(answers) != len(scene.truth) or not any(answer.size for answer in answers):
        return None
    pairs = list(zip(answers, truth, strict=True))
    steady = tuple(has_floats(answer) or np.array_equal(answer, true) for answer, true in pairs)
    distances = rounding_distances(scene.reference, case.inputs, answers, truth)
    counting = [d for d, counts in zip(distances, steady, strict=True) if counts]
    noise = max((d for d in counting if np.isfinite(d)), default=0.0)
    return replace(
        scene,
        case=case,
        truth=list(truth),
        steady=steady,
        noise=max(noise, least_noise),
        gap=None,
    )


@dataclass(slots=True, kw_only=True)
class TrialCases:
    """The cases of one diagnosis; each is answered once, when a cause first asks for it."""

    witness: Scene
    run: Run
    """The candidate on other inputs; None where it refuses them."""
    failing: Sequence[Case] = ()
    """Further cases of the run that show the fault."""
    passing: Sequence[Case] = ()
    """Cases of the run that don't."""
    space: Space | None = None
    """The inputs that may be drawn, where that is known."""
    deadline: Deadline = field(default_factory=Deadline.never)
    least_noise: float = limits.LEAST_NOISE
    """The noise of a case is no less than this."""
    improvement: float = limits.FIXED_IMPROVEMENT
    """As for each case."""
    data: Inputs | None = None
    """Where only values like these count, as what is made up lies beyond the ranges of a quantized graph: further cases are rows of them, or plain draws."""
    _failing: list[TrialCase] | None = None
    _passing: list[TrialCase] | None = None
    _made: int = 0

    @property
    def can_prove(self) -> bool:
        """Whether there are enough cases to prove anything."""
        least = limits.OTHER_CASES if self.that_pass() else limits.OTHER_CASES_WHERE_NONE_PASSES
        return len(self.others_that_fail()) >= least

    def others_that_fail(self) -> list[TrialCase]:
        """Cases beside the witness on which the candidate is wrong."""
        self._answer()
        return self._failing or []

    def that_pass(self) -> list[TrialCase]:
        """Cases on which the candidate is right."""
        self._answer()
        return self._passing or []

    def _answer(self) -> None:
        """Answer the cases of the run, then make others while one of the two lists is short."""
        if self._failing is not None:
            return
        self._failing = []
        self._passing = []
        agreeing = {case.name for case in self.passing}
        for case in (*self.failing, *self.passing):
            if not self._is_known(case):
                self._add(case, agrees=case.name in agreeing)
        fresh = (case for case in self._further_cases() if not self._is_known(case))
        for case in itertools.islice(fresh, limits.MOST_MADE_CASES):
            if self._are_enough or self.deadline.passed:
                return
            self._made += 1
            self._add(case)
        for case in self._like_the_passing_one():
            if not self._is_known(case):
                self._made += 1
                self._add(case)

    @property
    def _are_enough(self) -> bool:
        failing = [case for case in self._failing or [] if not case.has_no_numbers]
        return min(len(failing), len(self._passing or [])) >= limits.OTHER_CASES

    def _is_known(self, case: Case) -> bool:
        """Whether the witness or an answered case has the same inputs: the same case twice is no further evidence."""
        answered = [*(self._failing or []), *(self._passing or [])]
        known = [self.witness.case.inputs, *(trial.inputs for trial in answered)]
        return any(_same_inputs(case.inputs, inputs) for inputs in known)

    def _add(self, case: Case, *, agrees: bool = False) -> None:
        """Answer a case by both models, and sort it in; an enough of one kind takes no more.

        One that verification found to agree shows no fault, however large its error beside an output of almost nothing: it is left out then.
        """
        assert self._failing is not None and self._passing is not None
        if self.space is not None:
            case = self.space.fitted(case)
            if self.space.refusal(case):
                return
        scene = None if self.deadline.passed else same_scene(self.witness, case, self.least_noise)
        if scene is None:
            return
        outputs = self.run(case.inputs)
        before = scene.error(outputs)
        answered = TrialCase(
            scene=scene, outputs=outputs, before=before, improvement=self.improvement
        )
        if agrees and answered.fails:
            return
        chosen = self._failing if answered.fails else self._passing
        if len(chosen) < limits.MOST_CASES_OF_A_KIND:
            chosen.append(answered)

    def _further_cases(self) -> Iterator[Case]:
        """Variations of the witness, fresh draws and other sizes in turn."""
        makers = [self._variations(), self._draws()]
        if self.data is not None and _rows(self.data) >= _FEWEST_ROWS:
            makers = [self._rows_of(self.data)]
        elif self.data is not None:
            makers = [self._draws()]
        while makers:
            for maker in list(makers):
                case = next(maker, None)
                if case is None:
                    makers.remove(maker)
                else:
                    yield case

    def _like_the_passing_one(self) -> Iterator[Case]:
        """Where a single case passes (all zeros, often): the same in another order, moved a little, and with its rows twice."""
        if len(self._passing or []) != 1:
            return
        (passing,) = self._passing or []
        case = passing.scene.case
        for word in ("permuted", "moved"):
            change = partial(_CHANGES[word], rng=np.random.default_rng(0))
            yield _varied(case, word, change, case.inputs)
        leading = [info.dims[0] for info in self.witness.signature.inputs if info.dims]
        for dim in dict.fromkeys(dim for dim in leading if isinstance(dim, str)):
            yield self._doubled(case, dim)

    def _doubled(self, case: Case, dim: str) -> Case:
        """A case with everything twice along one dim."""
        inputs = {name: np.asarray(array) for name, array in case.inputs.items()}
        for info in self.witness.signature.inputs:
            for axis, name in enumerate(info.dims):
                if name == dim:
                    inputs[info.name] = np.concatenate([inputs[info.name]] * 2, axis)
        sizes = {**case.sizes, dim: 2 * case.sizes.get(dim, 0)}
        return replace(case, name=f"{case.name}, twice along {dim}", inputs=inputs, sizes=sizes)

    def _variations(self) -> Iterator[Case]:
        """The witness: mixed with ordinary values, in another order, moved a little, and at other scales."""
        for round_ in range(limits.MOST_MADE_CASES):
            ordinary = self._ordinary(round_)
            for word, change in _CHANGES.items():
                rng = np.random.default_rng([round_, len(word)])
                changed = partial(change, rng=rng)
                yield _varied(self.witness.case, f"{word} {round_}", changed, ordinary)

    def _rows_of(self, data: Inputs) -> Iterator[Case]:
        """Rows of the data drawn with repetition: other cases of the same kind of values."""
        count = _rows(data)
        for round_ in range(limits.MOST_MADE_CASES):
            chosen = np.random.default_rng([round_, 18]).integers(0, count, count)
            inputs = {
                name: np.asarray(array)[chosen] if np.ndim(array) else np.asarray(array)
                for name, array in data.items()
            }
            yield replace(self.witness.case, name=f"rows {round_}", inputs=inputs)

    def _ordinary(self, round_: int) -> Inputs:
        """Ordinary values in the shapes of the witness."""
        case = self.witness.case
        if self.space is not None and case.sizes:
            try:
                drawn = self.space.values(f"trial-{round_}", case.sizes)
                return {
                    name: drawn[name]
                    if drawn[name].shape == np.shape(array) and name not in self.space.deciding
                    else np.asarray(array)
                    for name, array in case.inputs.items()
                }
            except (KeyError, ValueError):  # sizes that the space does not know
                pass
        example = self.witness.reference.example()
        rng = np.random.default_rng([round_, 17])
        return {
            name: _like(np.asarray(example.get(name, array)), np.asarray(array), rng)
            for name, array in case.inputs.items()
        }

    def _draws(self) -> Iterator[Case]:
        """The example, as it is, in another order and moved a little; then ordinary values at the witness's sizes, at the example's, and at others.

        What was frozen of the example is often the same for its elements in another order (a sum, a maximum, a size).
        """
        example = self.witness.reference.example()
        given = Case(name="example", group="ordinary", about="the example inputs", inputs=example)
        yield given
        for word in ("permuted", "moved"):
            change = partial(_CHANGES[word], rng=np.random.default_rng(0))
            yield _varied(given, word, change, example)
        for round_ in range(limits.MOST_MADE_CASES):
            yield replace(
                self.witness.case, name=f"drawn {round_}", inputs=self._ordinary(round_ + 100)
            )
            if self.space is None:
                continue
            for words, sizes in self._other_sizes(round_):
                yield self.space.case(f"drawn {round_} {words}", "ordinary", "drawn", sizes)

    def _other_sizes(self, round_: int) -> Iterator[tuple[str, dict[str, int]]]:
        assert self.space is not None
        yield "at the example's sizes", self.space.sizes()
        for dim in self.space.free_dims:
            sizes = self.space.sizes(**{dim.name: dim.example + 1 + round_})
            if self.space.fits(sizes):
                yield f"with {dim.name}={sizes[dim.name]}", sizes


def _varied(
    case: Case, words: str, change: Callable[[Array, Array], Array], ordinary: Inputs
) -> Case:
    """A case with each of its inputs changed."""
    inputs = {
        name: change(np.asarray(array), np.asarray(ordinary[name]))
        for name, array in case.inputs.items()
    }
    return replace(case, name=f"{case.name}, {words}", inputs=inputs, ordinary=False)


def _same_inputs(some: Inputs, others: Inputs) -> bool:
    """Whether two sets of inputs hold the same bytes."""
    return set(some) == set(others) and all(
        np.shape(array) == np.shape(others[name])
        and np.asarray(array).tobytes() == np.asarray(others[name]).tobytes()
        for name, array in some.items()
    )


def _rows(inputs: Inputs) -> int:
    """The rows of a batch; 0 where its inputs have different numbers of them."""
    rows = {np.shape(array)[0] for array in inputs.values() if np.ndim(array)}
    return rows.pop() if len(rows) == 1 else 0


def _mix(array: Array, ordinary: Array, rng: np.random.Generator) -> Array:
    """About half of the elements are ordinary ones."""
    return np.where(rng.random(array.shape) < 0.5, array, ordinary).astype(array.dtype)


def _permute(array: Array, ordinary: Array, rng: np.random.Generator) -> Array:
    """The same elements in other places."""
    return rng.permuted(array.reshape(-1)).reshape(array.shape)


def _move(array: Array, ordinary: Array, rng: np.random.Generator) -> Array:
    """Each float a few percent larger or smaller."""
    if not is_float(array.dtype):
        return array
    factors = 1 + 0.05 * rng.standard_normal(array.shape)
    return as_dtype(array.astype(np.float64) * factors, array.dtype)


def _scale(array: Array, ordinary: Array, rng: np.random.Generator) -> Array:
    """All floats times a power of two between 1/8 and 8."""
    if not is_float(array.dtype):
        return array
    return as_dtype(array.astype(np.float64) * 2.0 ** rng.integers(-3, 4), array.dtype)


_CHANGES = {"mixed": _mix, "permuted": _permute, "moved": _move, "scaled": _scale}


def _like(example: Array, array: Array, rng: np.random.Generator) -> Array:
    """As many elements as the array has, drawn from the example's own."""
    if not example.size:
        return array
    drawn = rng.choice(example.reshape(-1), array.shape)
    wide = example.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    if is_float(array.dtype) and finite.size > 1:
        drawn = drawn.astype(np.float64) + 0.1 * np.std(finite) * rng.standard_normal(array.shape)
    return as_dtype(drawn, array.dtype)
