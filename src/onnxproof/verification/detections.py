"""A detector's rows beside the reference's: as sets, with what the reference itself does not decide left out.

1. The truth and every re-run of the reference are put into the order of its rows, so that the noise is that of a row, not of its place.
2. The candidate's rows are matched by overlap and put into the same order.
3. A row that one side lacks is excused where the reference lacks it, or has it, in a run of its own with other rounding, or where equal scores cut the list.
4. What is still left is paired in order, or the number of rows differs: both are faults.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onnxproof.numerics import detections
from onnxproof.numerics.detection_layout import Layout, find
from onnxproof.numerics.detections import Matching, Rows
from onnxproof.numerics.measure import eps
from onnxproof.options import Policy
from onnxproof.results import Finding, Gap, Status

Array = np.ndarray[Any, Any]
SORTING = frozenset({"TopK", "NonMaxSuppression"})
"""Operators that choose and order rows; those of other libraries have NMS in their names."""
_ENOUGH = 3
"""Cases with rows that no re-run excused, after which no more re-runs are asked for others. Not measured."""
_SHOWN = 2
"""Rows that are shown of those that one side lacks."""


def open_sets(
    names: Sequence[str],
    op_types: frozenset[str],
    policy: Policy,
    answer: Callable[[], list[Array]],
) -> "DetectionSets | None":
    """The sets of a model whose file chooses rows, and whose answer to the example looks like a detector's."""
    if not any(name in SORTING or "NMS" in name for name in op_types):
        return None
    layout = find(names, answer())
    if layout is None:
        return None
    return DetectionSets(layout, names, policy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Aligned:
    """The candidate's outputs in the order of the reference's rows."""

    outputs: list[Array | None]
    excused: int = 0
    """Rows that are not compared."""
    words: str = ""
    """Which rows one side lacks, and nothing excuses it."""
    precision: float | None = None
    """The mean average precision of the candidate's rows by the reference's."""
    own_precision: float | None = None
    """The lowest of the reference's own runs with other rounding."""
    layout: Layout | None = None
    """None where the rows could not be read."""
    tied: bool = False
    """Whether equal scores alone chose all rows of an image: none of the reference's is left."""

    def is_tied(self, gap: Gap, place: int) -> bool:
        """Whether the gap of an output leaves rows out that were chosen among equals."""
        layout = self.layout
        if layout is None or not self.tied or gap.domain is not None:
            return False
        return place in layout.places and place != layout.scores.place

    def describe(self, gap: Gap, place: int) -> Gap:
        """The gap of one output without its excused rows, and with those that one side lacks."""
        layout, output = self.layout, self.outputs[place]
        if layout is None or output is None or place not in layout.places:
            return gap
        if output.shape[layout.axis]:
            each = output.size // output.shape[layout.axis]
            gap = replace(gap, compared=max(gap.compared - self.excused * each, 0))
        if self.words and gap.status is Status.SHAPE:
            gap = replace(gap, detail=f"{gap.detail}; {self.words}")
        if place != layout.boxes.place:
            return gap
        return replace(gap, detection_map=self.precision, detection_map_noise=self.own_precision)


class CaseRows:
    """The reference's rows in one case, and those of its truth and its re-runs."""

    def __init__(self, sets: "DetectionSets", outputs: list[Array], own: list[Rows]) -> None:
        self._sets = sets
        self._outputs = outputs
        self.own = own
        self.samples: list[tuple[list[Rows], list[Matching]]] = []

    def align(self, outputs: Sequence[Array]) -> list[Array]:
        """Another run of the reference in the order of this one; kept as a sample of what it decides."""
        rows = self.read(outputs)
        if rows is None:
            return list(outputs)
        matchings = self.match(rows)
        self.samples.append((rows, matchings))
        arranged = self.arrange(outputs, matchings)
        return [array for array in arranged if array is not None]

    def read(self, outputs: Sequence[Array | None]) -> list[Rows] | None:
        """The rows of an answer of as many images."""
        rows = detections.read(self._sets.layout, outputs)
        return rows if rows is not None and len(rows) == len(self.own) else None

    def match(self, rows: Sequence[Rows]) -> list[Matching]:
        """Partners image by image."""
        return [detections.match(one, two) for one, two in zip(self.own, rows, strict=True)]

    def arrange(
        self, outputs: Sequence[Array | None], matchings: Sequence[Matching]
    ) -> list[Array | None]:
        """Outputs in the order of the reference's rows."""
        return detections.arrange(self._sets.layout, self._outputs, outputs, matchings)

    def score_noise(self) -> float:
        """How far a score of the reference moves in its own runs, at least by a unit in the last place."""
        dtype = self._outputs[self._sets.layout.scores.place].dtype
        largest = max(float(np.abs(rows.scores).max(initial=0.0)) for rows in self.own)
        moved = eps(dtype) * largest
        for sample in self.samples:
            for wanted, rows, matching in zip(self.own, *sample, strict=True):
                kept = matching.partners >= 0
                apart = wanted.scores[kept] - rows.scores[matching.partners[kept]]
                moved = max(moved, float(np.abs(apart).max(initial=0.0)))
        return moved

    def lacks(self, image: int, place: int) -> bool:
        """Whether a run of the reference lacks this row of its own."""
        return any(matchings[image].partners[place] < 0 for _, matchings in self.samples)

    def has(self, image: int, row: Rows) -> bool:
        """Whether a run of the reference has this row beside those of its own."""
        return any(
            not detections.match(row, rows[image].row(place)).missing
            for rows, matchings in self.samples
            for place in matchings[image].extra
        )

    def own_precision(self) -> float | None:
        """The lowest mean average precision of its own runs."""
        precisions = [detections.mean_average_precision(self.own, rows) for rows, _ in self.samples]
        return min(precisions, default=None)


class DetectionSets:
    """The sets of one verification: how they are laid out, and what was seen of them."""

    def __init__(self, layout: Layout, names: Sequence[str], policy: Policy) -> None:
        self.layout = layout
        self._names = names
        self._limit = policy.noise_limit
        self._cases = 0
        self._moved: set[str] = set()
        self._excused: set[str] = set()
        self._disordered: dict[str, float] = {}
        self._lacking: dict[str, str] = {}
        self._precisions: list[float] = []
        self._own_precisions: list[float] = []

    def open(self, outputs: list[Array]) -> CaseRows | None:
        """The reference's rows in one case; None where its answer can't be read as rows."""
        own = detections.read(self.layout, outputs)
        return None if own is None or not own else CaseRows(self, outputs, own)

    def align(
        self,
        case: str,
        reference: CaseRows,
        outputs: Sequence[Array | None],
        ask_more: Callable[[], None],
    ) -> Aligned:
        """Steps 2 to 4; `ask_more` has the reference run again, where a row needs an excuse."""
        rows = reference.read(outputs)
        if rows is None:
            return Aligned(outputs=list(outputs))
        self._cases += 1
        matchings = reference.match(rows)
        whole = not any(matching.missing or matching.extra for matching in matchings)
        if not whole and len(self._lacking) < _ENOUGH:
            ask_more()
        left = [
            self._without_excused(reference, image, matching, rows[image])
            for image, matching in enumerate(matchings)
        ]
        words = self._lacking_words(reference, rows, left)
        if words:
            self._lacking[case] = words
        else:
            self._note_order(case, reference, matchings)
        if not whole and not words:
            self._excused.add(case)
        arranged, excused = _arranged(reference, outputs, rows, matchings, left)
        return Aligned(
            outputs=arranged,
            excused=excused,
            words=words,
            layout=self.layout,
            precision=self._precision(reference, rows),
            own_precision=reference.own_precision(),
            tied=not words and _misses_all_of_an_image(matchings),
        )

    def _precision(self, reference: CaseRows, rows: Sequence[Rows]) -> float:
        precision = detections.mean_average_precision(reference.own, rows)
        self._precisions.append(precision)
        own = reference.own_precision()
        if own is not None:
            self._own_precisions.append(own)
        return precision

    def _without_excused(
        self, reference: CaseRows, image: int, matching: Matching, rows: Rows
    ) -> tuple[list[int], list[int]]:
        """The rows that only one side has, and that nothing excuses."""
        cut = self._at_the_cut(reference, image, matching, rows)
        missing, extra = {one for one, _ in cut}, {two for _, two in cut}
        return (
            [n for n in matching.missing if n not in missing and not reference.lacks(image, n)],
            [n for n in matching.extra if n not in extra and not reference.has(image, rows.row(n))],
        )

    def _at_the_cut(
        self, reference: CaseRows, image: int, matching: Matching, rows: Rows
    ) -> list[tuple[int, int]]:
        """Rows in exchange for each other at the end of two full lists, where nearly equal scores decide which one is in."""
        own = reference.own[image]
        if len(own) != len(rows):
            return []
        kept = own.scores[matching.partners >= 0]
        if not kept.size:  # saturated scores: all lies at the cut, where the reference keeps no row
            if not all(reference.lacks(image, place) for place in matching.missing):
                return []
            kept = own.scores
        allowed = self._limit * reference.score_noise()
        end = float(kept.min(initial=np.inf)) + allowed
        return [
            (one, two)
            for one, two in zip(matching.missing, matching.extra, strict=True)
            if own.scores[one] <= end and abs(own.scores[one] - rows.scores[two]) <= allowed
        ]

    def _note_order(
        self,
        case: str,
        reference: CaseRows,
        matchings: Sequence[Matching],
    ) -> None:
        """Whether rows changed their order, and by how much in score."""
        apart = 0.0
        for own, matching in zip(reference.own, matchings, strict=True):
            if (np.diff(matching.partners[matching.partners >= 0]) < 0).any():
                self._moved.add(case)
                apart = max(apart, detections.exchanged(own, matching))
        if apart > self._limit * reference.score_noise():
            self._disordered[case] = apart

    def _lacking_words(
        self,
        reference: CaseRows,
        rows: Sequence[Rows],
        left: Sequence[tuple[list[int], list[int]]],
    ) -> str:
        missing = [
            reference.own[image].row(n) for image, (places, _) in enumerate(left) for n in places
        ]
        extra = [rows[image].row(n) for image, (_, places) in enumerate(left) for n in places]
        parts = []
        if missing:
            total = sum(map(len, reference.own))
            parts.append(f"the file lacks {len(missing)} of {total} rows ({_shown(missing)})")
        if extra:
            parts.append(f"it has {len(extra)} that the reference lacks ({_shown(extra)})")
        return "; ".join(parts)

    def findings(self) -> list[Finding]:
        """How the outputs were compared, and what became of their rows."""
        if not self._cases:
            return []
        parts = [f"compared as rows of a set in {self._cases} cases"]
        if self._moved:
            parts.append(f"rows changed places in {len(self._moved)}")
        if self._excused:
            parts.append(f"in {len(self._excused)} the reference itself does not decide about some")
        if self._precisions:
            parts.append(self._precision_words())
        outputs = ", ".join(f"`{self._names[part.place]}`" for part in self._distinct_parts())
        findings = [Finding(code="detections", what=f"{outputs}: {'; '.join(parts)}")]
        if self._lacking:
            case, words = next(iter(self._lacking.items()))
            what = f"{words}: case `{case}`, and in all {len(self._lacking)} of {self._cases} cases"
            findings.append(Finding(code="detections-lost", what=what))
        if self._disordered:
            case = max(self._disordered, key=self._disordered.__getitem__)
            findings.append(
                Finding(
                    code="detections-order",
                    what=f"the rows are in another order: case `{case}` exchanges two whose scores "
                    f"differ by {self._disordered[case]:.2g}, which is no tie",
                    help="sort by score in both, or don't rely on the order",
                    doubts=True,
                )
            )
        return findings

    def _precision_words(self) -> str:
        words = f"mAP of the file by the reference's rows {min(self._precisions):.3f} at least"
        if self._own_precisions:
            words += f", of the reference with other rounding {min(self._own_precisions):.3f}"
        return words

    def _distinct_parts(self) -> list[Any]:
        return list({part.place: part for part in self.layout.parts}.values())


def _misses_all_of_an_image(matchings: Sequence[Matching]) -> bool:
    """Whether the candidate has no partner for any of the rows of an image that it lacks some of."""
    lacking = [matching for matching in matchings if matching.missing]
    return any(not (matching.partners >= 0).any() for matching in lacking)


def _arranged(
    reference: CaseRows,
    outputs: Sequence[Array | None],
    rows: Sequence[Rows],
    matchings: Sequence[Matching],
    left: Sequence[tuple[list[int], list[int]]],
) -> tuple[list[Array | None], int]:
    """Step 4: the outputs that are compared, and how many rows of them are not."""
    if any(len(missing) != len(extra) for missing, extra in left):
        left = [(list(matching.missing), list(matching.extra)) for matching in matchings]
    if any(len(missing) != len(extra) for missing, extra in left):
        return list(outputs), 0  # the number of rows differs
    paired = [
        detections.pair_rest(matching, own, other, *rest)
        for matching, own, other, rest in zip(matchings, reference.own, rows, left, strict=True)
    ]
    return reference.arrange(outputs, paired), sum(len(matching.missing) for matching in paired)


def _shown(rows: Sequence[Rows]) -> str:
    """The first of them: class, score, box."""
    words = []
    for row in rows[:_SHOWN]:
        box = ", ".join(f"{value:.3g}" for value in row.boxes[0])
        words.append(f"class {row.classes[0]:g}, score {row.scores[0]:.3g}, box [{box}]")
    if len(rows) > _SHOWN:
        words.append("...")
    return "; ".join(words)
