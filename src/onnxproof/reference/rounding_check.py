"""Does rounding explain how far an answer is from another one? Re-runs with fresh rounding tell how far it moves the reference."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from onnxproof.numerics.measure import as_real, is_float
from onnxproof.reference.differences import FLIPPED, distance, lost_share, size
from onnxproof.reference.perturbation import move_by_ulp
from onnxproof.reference.protocol import Reference
from onnxproof.results import Case, NoiseKind

Array = np.ndarray[Any, Any]
ENOUGH = 4
"""Times that one output is examined in one group of cases. Not measured."""
_UNMOVED_OF_GRAPH = 0.05
"""The share of the output's size from which on the truth of a graph is rejected where nothing moves it, as where its inputs are integers. Not measured."""
_FAR = 8.0
"""Times the spread of re-runs beyond which rounding does not explain the distance. Healthy models reach 1.5 (25 of the numerically hardest of
`bench/clean`, every case that is examined)."""
_LOUD = (4.0, 16.0)
"""Amplitudes of louder re-runs, which find decisions that flip. Not measured."""
_FAR_OF_LOUD = 2.0
"""Times the spread of the louder re-runs beyond which rounding does not explain the distance. Healthy models reach 0.42."""
_AMPLITUDES = ((0, 1.0), (1, 1.0), *((2, loud) for loud in _LOUD))
"""The re-runs that tell how far rounding moves the reference: an index, by which their seeds differ, and the amplitude."""
_LEAST_SAMPLES = 2
"""Re-runs without which nothing can be said of rounding."""
_SEED = 7_041


class NotExamined(Exception):
    """An answer is farther away than in any case that was examined, and no time is left for the re-runs that would tell why."""


class RoundingCheck:
    """Remembers by output what re-runs have shown to be rounding, so that as much need not be shown again."""

    def __init__(self, reference: Reference, affords: Callable[[int, float], bool]) -> None:
        self._reference = reference
        self._affords = affords
        """Whether so many re-runs of at least so many seconds each still fit into the budget."""
        self._examined: Counter[tuple[str, int]] = Counter()
        self._explained: dict[int, float] = {}
        """By output: the largest distance, as a share of its size, that was rounding."""
        self.pass_s = 0.0
        """Seconds of a pass on the case that is examined."""
        self._rerun_s = self._rerun_pass_s = 0.0
        """Seconds of all re-runs so far, and of plain passes on the same cases."""

    def explains(
        self,
        case: Case,
        place: int,
        outputs: Sequence[Array],
        target: Array,
        group: str,
    ) -> bool:
        """Whether rounding alone moves one output of the reference about as far as the target is.

        1. Numbers that are not finite in the target are not rounding.
        2. No farther than rounding moved it in another case, and once looked at in this group: believed.
        3. Re-runs with fresh rounding, then louder ones: any two that are about as far apart explain it.
        4. A graph that no re-run moves is believed up to a larger distance.

        Raises:
            NotExamined: there is no time for the third, and other cases were examined.
        """
        key, output = (group, place), outputs[place]
        if self._examined[key] >= ENOUGH:
            return True
        if is_float(as_real(output)) and lost_share(output, target) > FLIPPED:  # 1
            return False
        gap = distance(output, target)
        share = _share(gap, target)
        explained = self._explained.get(place, 0.0)
        if self._examined[key] and share <= explained:  # 2
            return True
        if explained and not self._affords_samples():
            raise NotExamined
        self._examined[key] += 1
        samples = self._samples_unless_near(case, place, outputs, gap)  # 3
        if samples is None:
            self._explained[place] = max(share, explained)
            return True
        if len(samples) < _LEAST_SAMPLES:
            return True
        believed = case.exact or gap <= _UNMOVED_OF_GRAPH * size(target)
        return believed and self._unmoved(samples)  # 4

    def _samples_unless_near(
        self, case: Case, place: int, outputs: Sequence[Array], gap: float
    ) -> list[Array] | None:
        """The output in every re-run; None once two of them are about as far apart as the gap."""
        samples: list[Array] = []
        for sample, limit in self._rerun_samples(case, place, outputs):
            spread = max((distance(one, sample) for one in samples), default=-1.0)
            if gap <= limit * spread:
                return None
            samples.append(sample)
        return samples

    def _affords_samples(self) -> bool:
        """Whether the re-runs fit into the budget if they take as many passes as those before did."""
        passes = max(self._rerun_s / self._rerun_pass_s, 1.0) if self._rerun_pass_s else 1.0
        return self._affords(_LEAST_SAMPLES, passes * self.pass_s)

    def _rerun_samples(
        self,
        case: Case,
        place: int,
        outputs: Sequence[Array],
    ) -> Iterator[tuple[Array, float]]:
        """One output of every re-run that has the same shapes, with the limit for its distance from others."""
        for index, amplitude in _AMPLITUDES:
            again = self._rerun(case, index, amplitude)
            if len(again) != len(outputs) or again[place].shape != outputs[place].shape:
                continue
            if amplitude == 1.0:
                yield again[place], _FAR
            else:
                yield again[place], _FAR_OF_LOUD

    def _unmoved(self, samples: Sequence[Array]) -> bool:
        """Whether no re-run of a graph differs from the first."""
        if self._reference.kind is not NoiseKind.GRAPH:
            return False
        return all(distance(samples[0], sample) == 0.0 for sample in samples[1:])

    def _rerun(self, case: Case, index: int, amplitude: float) -> list[Array]:
        """Fresh rounding; where that can't be, inputs moved by a unit in the last place."""
        seed = _SEED + index + int(amplitude)
        begun = time.perf_counter()
        try:
            return self._reference.rerun(
                case.inputs,
                seed,
                amplitude=amplitude,
                move=not case.exact and (index > 0 or self._reference.kind is NoiseKind.GRAPH),
            )
        except Exception:  # some operations can't run under a dispatch mode
            pass
        finally:
            self._rerun_s += time.perf_counter() - begun
            self._rerun_pass_s += self.pass_s
        try:
            return self._reference.run(move_by_ulp(case.inputs, seed))
        except Exception:  # nor any other input
            return []


def _share(gap: float, target: Array) -> float:
    """A distance as a share of the output's size; of integers it is one already."""
    if not is_float(as_real(target)):
        return gap
    return gap / (size(target) or 1.0)
