"""Is the reference to be believed, and the truth? Both are checked before their difference is taken for rounding.

`noise = rms(reference - truth)` is rounding only if the reference answers the same question the same way each time, and if the truth is
the same function in float64. A module that draws random numbers, or whose code takes another way in float64, makes a "noise" in which any
answer passes. So the reference is asked again, with its random numbers and with others; and where it is far from the truth, re-runs with
fresh rounding tell how far rounding alone can move it.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from onnxproof.numerics.measure import as_real, eps, is_float, smallest
from onnxproof.reference.differences import (
    FLIPPED,
    alike,
    describe_difference,
    distance,
    lost_share,
    size,
)
from onnxproof.reference.protocol import Reference
from onnxproof.reference.rounding_check import ENOUGH, NotExamined, RoundingCheck
from onnxproof.results import Case, Finding, NoiseKind

Array = np.ndarray[Any, Any]
_ASKED = 2
"""Plain cases on which the reference is asked again whatever its noise; further ones only where the noise is large."""
_LARGE_ULPS = 256.0
"""Reference and truth farther apart than this many units in the last place are examined. Not measured."""
_LARGEST_SHARE = 0.05
"""The same as a share of the output's size, for dtypes in which that many units are more. Not measured."""
_LARGE_OF_GRAPH = 1e-3
"""A graph's re-runs know less of its rounding: only a larger share of the output's size is examined there. A chaotic recurrent net on ids is at 9e-4."""
_SMALL_OF_GRAPH = 1e-4
"""The distance that is never examined in a graph. Not measured."""
_NATURAL = frozenset({"data", "shapes", "masks", "ids", "distinct", "lengths"})
"""Groups of plain values: on extreme ones float32 overflows or cancels where float64 does not, and that is nothing to doubt."""
_MODES = frozenset({"ordinary", "masks"})
"""Groups in which the reference is asked in its other mode; not on the example, whose masks often hide nothing."""
_INSTEAD = "the noise comes from re-runs of the reference with fresh rounding instead; look for code that depends on the dtype, or report an operator that is evaluated wrongly"
_SEED = 7_041
"""Of the random numbers that the reference is run with once more."""
_DRAWS = 8
"""How many such runs are made where it draws random numbers: a dropout of a small layer often agrees. Not measured."""
_PLENTY = 8
"""Passes that must still fit into the budget before a check is made that most references pass: the cases come first. Not measured."""


class Doubts:
    """What was noticed about one reference while its cases ran."""

    def __init__(
        self,
        reference: Reference,
        names: Sequence[str],
        affords: Callable[[int, float], bool] = lambda passes, each_s: True,
    ) -> None:
        self._reference = reference
        self._names = names
        self._affords = affords
        self._asked: Counter[str] = Counter()
        """How often the reference was asked again, in all and in each group."""
        self._rounding = RoundingCheck(reference, affords)
        self._modes_asked: Counter[str] = Counter()
        self.random: dict[str, Finding] = {}
        """By output: that the reference answers otherwise when it is asked the same again."""
        self._modes: dict[str, Finding] = {}
        self._wrong: dict[str, Finding] = {}

    def findings(self) -> list[Finding]:
        """All findings, in the order of their weight."""
        return [*self.random.values(), *self._wrong.values(), *self._modes.values()]

    def check(
        self,
        case: Case,
        reference: Sequence[Array],
        truth: Sequence[Array | None] | None,
        pass_s: float = 0.0,
    ) -> bool:
        """Check one case, on which a pass took so many seconds; False when its truth is not believed, and from then on there is none.

        1. A truth with another number of outputs is rejected.
        2. The reference runs once more, with other random numbers: on the first cases, and wherever it is far from the truth.
        3. The reference runs with gradients, where the budget allows.
        4. Where it is far from the truth, and rounding does not explain it, the truth is rejected.

        Raises:
            NotExamined: there is no time for the fourth, and other cases were examined.
        """
        self._rounding.pass_s = pass_s
        if case.domain is not None:
            return True
        if truth is not None and len(truth) != len(reference):  # 1
            self._wrong[""] = Finding(
                code="truth-not-believed",
                what=f"in float64 the reference gives {len(truth)} outputs, and {len(reference)} otherwise",
                help=_INSTEAD,
            )
            self._reference.kind = NoiseKind.PERTURBED
            return False
        far = self._far_outputs(reference, truth)
        plenty = self._affords(_PLENTY, 0.0)
        if self._should_ask_again(case, far, plenty=plenty):  # 2
            self._asked.update(("", case.group))
            self._ask_again(case, reference)
        if plenty:  # 3
            self._ask_mode(case, reference)
        if truth is None or not (case.ordinary or case.group in _NATURAL):
            return True
        return self._believes(case, far, reference, truth)  # 4

    def _far_outputs(
        self,
        reference: Sequence[Array],
        truth: Sequence[Array | None] | None,
    ) -> list[int]:
        if truth is None:
            return []
        return [place for place, r in enumerate(reference) if self._large(r, truth[place])]

    def _should_ask_again(
        self,
        case: Case,
        far: Sequence[int],
        *,
        plenty: bool,
    ) -> bool:
        if not self._asked[""] or (plenty and self._asked[""] < _ASKED):
            return True
        unknown = any(self._names[place] not in self.random for place in far)
        return unknown and self._asked[case.group] < ENOUGH

    def _believes(
        self,
        case: Case,
        far: Sequence[int],
        reference: Sequence[Array],
        truth: Sequence[Array | None],
    ) -> bool:
        """Whether rounding explains every output that is far from the truth, or randomness does."""
        unexplained = [
            place
            for place in far
            if self._names[place] not in self.random
            and not self._is_rounding(case, place, reference, truth[place])
        ]
        for place in unexplained:
            self._wrong[self._names[place]] = self._truth_finding(case, place, reference, truth)
        if unexplained:
            self._reference.kind = NoiseKind.PERTURBED
        return not unexplained

    def _large(self, reference: Array, truth: Array | None) -> bool:
        if truth is None or truth.shape != reference.shape or not reference.size:
            return False
        reference, truth = as_real(reference), as_real(truth)
        gap = distance(reference, truth)
        if not is_float(reference):
            return gap > FLIPPED
        if lost_share(reference, truth) > FLIPPED:
            return True
        if self._reference.kind is NoiseKind.GRAPH:
            return gap > _SMALL_OF_GRAPH + _LARGE_OF_GRAPH * size(truth)
        share = min(_LARGE_ULPS * eps(reference.dtype), _LARGEST_SHARE)
        return gap > max(share * size(truth), smallest(reference.dtype))

    def _ask_again(self, case: Case, reference: Sequence[Array]) -> None:
        """The same run with other random numbers (more often where it is known to draw some: a few may agree by chance); where that differs, with the same ones."""
        runs = _DRAWS if self._reference.draws else 1
        seeds = [_SEED + draw for draw in range(runs)]
        differing = self._outputs_that_differ(case, reference, seeds)
        if not differing:
            return
        always = self._outputs_that_differ(case, reference, [None])
        for name, other in differing.items():
            words = "draws random numbers"
            if name in always:
                words = "answers otherwise when it is asked the same again"
            self.random[name] = _random(
                name,
                case,
                words,
                reference[self._names.index(name)],
                other,
            )

    def _outputs_that_differ(
        self,
        case: Case,
        reference: Sequence[Array],
        seeds: Sequence[int | None],
    ) -> dict[str, Array | None]:
        """The outputs, not known as random yet, that differ with one of these seeds; None for one that is not there then."""
        differing: dict[str, Array | None] = {}
        for seed in seeds:
            outputs: Sequence[Array | None] = self._run_again(case, seed)
            if len(outputs) != len(reference):
                outputs = [None] * len(self._names)
            for name, one, other in zip(self._names, reference, outputs, strict=False):
                if name not in self.random and name not in differing and not alike(one, other):
                    differing[name] = other
        return differing

    def _run_again(self, case: Case, seed: int | None) -> list[Array]:
        try:
            return self._reference.run_again(case.inputs, seed)
        except Exception:  # the user's module, which took this very input a moment ago
            return []

    def _ask_mode(self, case: Case, reference: Sequence[Array]) -> None:
        """Once in each of these groups: does the reference give other numbers with gradients than without?"""
        if case.name == "example" or case.group not in _MODES or self._modes_asked[case.group]:
            return
        self._modes_asked[case.group] += 1
        answers = self._reference.with_gradients(case.inputs)
        if answers is None or len(answers) != len(reference):
            return
        for place, name in enumerate(self._names):
            if name in self.random or self._rounded_otherwise(case, place, reference, answers):
                continue
            what = f"output `{name}` is another one with gradients than under `no_grad`, where torch takes a fused path: {describe_difference(reference[place], answers[place])} (case `{case.name}`)"
            self._modes.setdefault(
                name,
                Finding(
                    code="reference-modes",
                    what=what,
                    help="the file is compared with the module as it is served: eval, `no_grad`; an export may follow the other path",
                ),
            )

    def _rounded_otherwise(
        self,
        case: Case,
        place: int,
        reference: Sequence[Array],
        answers: Sequence[Array],
    ) -> bool:
        """True where rounding explains that two modes differ."""
        one, other = reference[place], answers[place]
        if one.shape != other.shape:
            return False
        return (
            alike(one, other)
            or not self._large(one, other)
            or self._is_rounding_between_modes(case, place, reference, other)
        )

    def _is_rounding(
        self,
        case: Case,
        place: int,
        reference: Sequence[Array],
        truth: Array | None,
    ) -> bool:
        if truth is None:
            return True
        try:
            return self._rounding.explains(case, place, reference, truth, case.group)
        except NotExamined as why:
            words = "no time was left to tell rounding from a wrong truth in output"
            raise NotExamined(f"{words} `{self._names[place]}`") from why

    def _is_rounding_between_modes(
        self, case: Case, place: int, reference: Sequence[Array], other: Array
    ) -> bool:
        try:
            return self._rounding.explains(case, place, reference, other, "modes")
        except NotExamined:  # the cases come first
            return True

    def _truth_finding(
        self,
        case: Case,
        place: int,
        reference: Sequence[Array],
        truth: Sequence[Array | None],
    ) -> Finding:
        target = truth[place]
        assert target is not None
        what = (
            f"output `{self._names[place]}`: the reference and its float64 evaluation give different answers, far more than rounding explains: "
            f"{describe_difference(reference[place], target)} (case `{case.name}`)"
        )
        return Finding(code="truth-not-believed", what=what, help=_INSTEAD)


def _random(
    name: str,
    case: Case,
    words: str,
    reference: Array,
    other: Array | None,
) -> Finding:
    return Finding(
        code="nondeterministic-reference",
        what=f"the reference {words}: output `{name}` {describe_difference(reference, other)} (case `{case.name}`)",
        voids=True,
        help="no file can be proven to say what is said otherwise each time: pass the random numbers (or the time, or the state) in as an input",
    )
