"""Is the reference to be believed, and the truth? Both are asked before their difference is taken for rounding.

`noise = rms(reference - truth)` is rounding only if the reference answers the same question the same way each time, and if the truth is
the same function in float64. A module that draws random numbers, or whose code takes another way in float64, makes a "noise" in which any
answer passes. So the reference is asked again, with its random numbers and with others; and where it is far from the truth, re-runs with
fresh rounding tell how far rounding alone can move it.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from onnxproof.numerics.measure import as_real, eps, is_float
from onnxproof.reference.protocol import Oracle, ulp_moved
from onnxproof.results import Case, Finding, NoiseKind

Array = np.ndarray[Any, Any]
_ALIKE = 64.0
"""Units in the last place, at the output's own size, by which two runs may differ: threads add up in another order."""
_ASKED = 2
"""Plain cases on which the reference is asked again whatever its noise; further ones only where the noise is large."""
_LARGE, _LARGEST = 256.0, 0.05
"""Reference and truth farther apart than this many units in the last place (at most the second number, of the output's size) are looked into."""
_LARGE_OF_GRAPH, _SURE_OF_GRAPH, _SMALL = 1e-3, 0.05, 1e-4
"""A graph's re-runs know less of its rounding: only a larger distance is looked into there (shares of the output's size, and an absolute least), and
the second where nothing moves it, as where its inputs are integers. A chaotic recurrent net on ids is at 9e-4."""
_FAR = 8.0
"""Times the spread of re-runs beyond which rounding does not explain the distance. Healthy models reach 1.5 (25 of the numerically hardest of
`bench/clean`, every case that is looked into)."""
_FLIPPED = 0.05
"""Share of integers that differ from the truth from which on it is looked into."""
_LOUD, _FAR_OF_LOUD = (4.0, 16.0), 2.0
"""Louder re-runs, which find decisions that flip, and the same limit for them. Healthy models reach 0.42."""
_ENOUGH = 4
"""Times that the truth of one output is examined in one group of cases."""
_NATURAL = frozenset({"data", "shapes", "masks", "ids", "distinct", "lengths"})
"""Groups of plain values: on extreme ones float32 overflows or cancels where float64 does not, and that is nothing to doubt."""
_MODES = frozenset({"ordinary", "masks"})
"""Groups in which the reference is asked in its other mode; not on the example, whose masks often hide nothing."""
_INSTEAD = "the noise comes from re-runs of the reference with fresh rounding instead; look for code that depends on the dtype, or report an operator that is evaluated wrongly"
_SEED, _DRAWS = 7_041, 8
"""Of the random numbers that the reference is asked with, and how many such are tried where it draws some: a dropout of a small layer often agrees."""


_PLENTY = 8
"""Passes that must still fit into the budget before a question is asked that most references answer well: the cases come first."""


class Doubts:
    """What was found out about one reference while its cases ran."""

    def __init__(
        self,
        oracle: Oracle,
        names: Sequence[str],
        affords: Callable[[int], bool] = lambda passes: True,
    ) -> None:
        self._oracle, self._names, self._affords = oracle, names, affords
        self._asked: Counter[str] = Counter()
        """How often the reference was asked again, in all and in each group."""
        self._examined: Counter[tuple[str, int]] = Counter()
        self._modes_asked: Counter[str] = Counter()
        self.random: dict[str, Finding] = {}
        """By output: that the reference answers otherwise when it is asked the same again."""
        self._modes: dict[str, Finding] = {}
        self._wrong: dict[str, Finding] = {}

    def findings(self) -> list[Finding]:
        """Everything that was found, in the order of its weight."""
        return [*self.random.values(), *self._wrong.values(), *self._modes.values()]

    def look(
        self, case: Case, reference: Sequence[Array], truth: Sequence[Array | None] | None
    ) -> bool:
        """Ask about one case; False when its truth is not believed, and from then on there is none."""
        if case.domain is not None:
            return True
        if truth is not None and len(truth) != len(reference):
            self._wrong[""] = Finding(
                code="truth-not-believed",
                what=f"in float64 the reference gives {len(truth)} outputs, and {len(reference)} otherwise",
                help=_INSTEAD,
            )
            self._oracle.kind = NoiseKind.PERTURBED
            return False
        far = [
            place
            for place, r in enumerate(reference)
            if truth is not None and self._large(r, truth[place])
        ]
        unknown = any(self._names[place] not in self.random for place in far)
        plenty = self._affords(_PLENTY)
        wanted = not self._asked[""] or (plenty and self._asked[""] < _ASKED)
        if wanted or (unknown and self._asked[case.group] < _ENOUGH):
            self._asked.update(("", case.group))
            self._ask_again(case, reference)
        if plenty:
            self._ask_mode(case, reference)
        if truth is None or not (case.ordinary or case.group in _NATURAL):
            return True
        doubted = [
            place
            for place in far
            if self._names[place] not in self.random
            and not self._explained(case, place, reference, truth)
        ]
        for place in doubted:
            self._wrong[self._names[place]] = self._not_believed(case, place, reference, truth)
        if doubted:
            self._oracle.kind = NoiseKind.PERTURBED
        return not doubted

    def _large(self, reference: Array, truth: Array | None) -> bool:
        if truth is None or truth.shape != reference.shape or not reference.size:
            return False
        reference, truth = as_real(reference), as_real(truth)
        if not is_float(reference):
            return _apart(reference, truth) > _FLIPPED
        if _gone(reference, truth) > _FLIPPED:
            return True
        if self._oracle.kind is NoiseKind.GRAPH:
            return _apart(reference, truth) > _SMALL + _LARGE_OF_GRAPH * _size(truth)
        return _apart(reference, truth) > min(_LARGE * eps(reference.dtype), _LARGEST) * _size(
            truth
        )

    def _ask_again(self, case: Case, reference: Sequence[Array]) -> None:
        """The same question with other random numbers (more often where it is known to draw some: a few may agree by chance); where that differs, with the same ones."""
        seen = self._apart_with(
            case, reference, *(_SEED + draw for draw in range(_DRAWS if self._oracle.draws else 1))
        )
        always = self._apart_with(case, reference, None) if seen else {}
        for name, other in seen.items():
            words = (
                "answers otherwise when it is asked the same again"
                if name in always
                else "draws random numbers"
            )
            self.random[name] = _random(
                name, case, words, reference[self._names.index(name)], other
            )

    def _apart_with(
        self, case: Case, reference: Sequence[Array], *seeds: int | None
    ) -> dict[str, Array | None]:
        """The outputs, not known as random yet, that differ with one of these seeds; None for one that is not there then."""
        found: dict[str, Array | None] = {}
        for seed in seeds:
            try:
                answers = self._oracle.again(case.inputs, seed)
            except Exception:  # the user's module, which took this very input a moment ago
                answers = []
            for place, name in enumerate(self._names):
                other = answers[place] if len(answers) == len(reference) else None
                if (
                    name not in self.random
                    and name not in found
                    and not _alike(reference[place], other)
                ):
                    found[name] = other
        return found

    def _ask_mode(self, case: Case, reference: Sequence[Array]) -> None:
        """Once in each of these groups: does the reference give other numbers with gradients than without?"""
        if case.name == "example" or case.group not in _MODES or self._modes_asked[case.group]:
            return
        self._modes_asked[case.group] += 1
        answers = self._oracle.with_gradients(case.inputs)
        if answers is None or len(answers) != len(reference):
            return
        for place, name in enumerate(self._names):
            if name in self.random or self._rounded_otherwise(case, place, reference, answers):
                continue
            what = f"output `{name}` is another one with gradients than under `no_grad`, where torch takes a fused path: {_shown(reference[place], answers[place])} (case `{case.name}`)"
            self._modes.setdefault(
                name,
                Finding(
                    code="reference-modes",
                    what=what,
                    help="the file is compared with the module as it is served: eval, `no_grad`; an export may follow the other path",
                ),
            )

    def _rounded_otherwise(
        self, case: Case, place: int, reference: Sequence[Array], answers: Sequence[Array]
    ) -> bool:
        """True where rounding explains that two modes differ."""
        one, other = reference[place], answers[place]
        if one.shape != other.shape:
            return False
        return (
            _alike(one, other)
            or not self._large(one, other)
            or self._explained(case, place, reference, answers, asked="modes")
        )

    def _explained(
        self,
        case: Case,
        place: int,
        reference: Sequence[Array],
        truth: Sequence[Array | None],
        asked: str = "",
    ) -> bool:
        """Whether rounding alone moves the reference about as far as the truth is: asked softly, then loudly."""
        key = (asked or case.group, place)
        target = truth[place]
        if target is None or self._examined[key] >= _ENOUGH:
            return True
        self._examined[key] += 1
        if is_float(as_real(reference[place])) and _gone(reference[place], target) > _FLIPPED:
            return False
        far = _apart(reference[place], target)
        samples: list[Array] = []
        for amplitude, index in ((1.0, 0), (1.0, 1), *((loud, 2) for loud in _LOUD)):
            answers = self._rerun(case, index, amplitude)
            if len(answers) != len(reference) or answers[place].shape != reference[place].shape:
                continue
            samples.append(answers[place])
            times = _FAR if amplitude == 1.0 else _FAR_OF_LOUD
            if any(far <= times * _apart(one, samples[-1]) for one in samples[:-1]):
                return True
        if len(samples) < 2:
            return True
        unmoved = self._oracle.kind is NoiseKind.GRAPH and all(
            _apart(samples[0], sample) == 0.0 for sample in samples[1:]
        )
        return unmoved and (case.exact or far <= _SURE_OF_GRAPH * _size(target))

    def _rerun(self, case: Case, index: int, amplitude: float) -> list[Array]:
        """Fresh rounding; where that can't be, inputs moved by a unit in the last place."""
        seed = _SEED + index + int(amplitude)
        try:
            return self._oracle.rerun(
                case.inputs,
                seed,
                amplitude=amplitude,
                move=not case.exact and (index > 0 or self._oracle.kind is NoiseKind.GRAPH),
            )
        except Exception:  # some operations bear no watch
            try:
                return self._oracle.run(ulp_moved(case.inputs, seed))
            except Exception:  # nor any other input
                return []

    def _not_believed(
        self, case: Case, place: int, reference: Sequence[Array], truth: Sequence[Array | None]
    ) -> Finding:
        target = truth[place]
        assert target is not None
        what = (
            f"output `{self._names[place]}`: the reference and its float64 evaluation give different answers, far more than rounding explains: "
            f"{_shown(reference[place], target)} (case `{case.name}`)"
        )
        return Finding(code="truth-not-believed", what=what, help=_INSTEAD)


def _random(name: str, case: Case, words: str, reference: Array, other: Array | None) -> Finding:
    return Finding(
        code="nondeterministic-reference",
        what=f"the reference {words}: output `{name}` {_shown(reference, other)} (case `{case.name}`)",
        voids=True,
        help="no file can be proven to say what is said otherwise each time: pass the random numbers (or the time, or the state) in as an input",
    )


def _alike(one: Array, other: Array | None) -> bool:
    """Equal up to the order in which threads add up; integers exactly."""
    if other is None or one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.tobytes() == other.tobytes():
        return True
    one, other = as_real(one), as_real(other)
    return (
        is_float(one)
        and _same_finite(one, other)
        and _apart(one, other) <= _ALIKE * eps(one.dtype) * _size(one)
    )


def _gone(reference: Array, truth: Array) -> float:
    """The share of the elements that are numbers in the reference, and none in the truth."""
    return (
        float((np.isfinite(_wide(reference)) & ~np.isfinite(_wide(truth))).mean())
        if reference.size
        else 0.0
    )


def _same_finite(one: Array, other: Array) -> bool:
    return bool((np.isfinite(_wide(one)) == np.isfinite(_wide(other))).all())


def _wide(array: Array) -> Array:
    return as_real(array).astype(np.float64)


def _apart(one: Array, other: Array) -> float:
    """The rms of the difference where both are finite; of integers and booleans the share that differs."""
    if not is_float(one) and one.dtype.kind != "c":
        return float((one != other).mean()) if one.size else 0.0
    with np.errstate(all="ignore"):
        off = _wide(one) - _wide(other)
        return _rms(off)


def _size(array: Array) -> float:
    return _rms(_wide(array))


def _rms(wide: Array) -> float:
    finite = wide[np.isfinite(wide)]
    with np.errstate(over="ignore"):
        return math.sqrt(float(np.mean(np.square(finite)))) if finite.size else 0.0


def _shown(one: Array, other: Array | None) -> str:
    if other is None or one.shape != other.shape:
        return "has another shape then, or none"
    if not is_float(one) and one.dtype.kind != "c":
        return f"differs in {_apart(one, other):.0%} of its elements"
    gone = _gone(one, other)
    if gone > _FLIPPED:
        return f"{gone:.0%} of it is not finite in the second"
    size = _size(one)
    share = f", {_apart(one, other) / size:.2g} of its own size" if size else ""
    return f"differs by {_apart(one, other):.3g} (rms){share}"
