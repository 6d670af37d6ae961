"""Mistakes with ids of tokens: each as the tensor that the model's own preprocessing would compute with it."""

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from onnxproof.preprocessing.mistake import Mistake, TensorPair

Array = np.ndarray[Any, Any]
Rows = list[list[int]]
_MIN_IDS = 4
"""Ids that must agree: fewer do by chance. Not measured."""


def _without_accents(text: str) -> str:
    letters = unicodedata.normalize("NFD", text)
    return "".join(letter for letter in letters if not unicodedata.combining(letter))


_SPELLINGS: dict[str, Callable[[str], str]] = {
    "is made lower case": str.lower,
    "is stripped of blanks at its ends": str.strip,
    "is brought to the normal form NFKC": lambda text: unicodedata.normalize("NFKC", text),
    "is brought to the normal form NFC": lambda text: unicodedata.normalize("NFC", text),
    "loses its accents": _without_accents,
}
_MARKS = {
    "the first id": ([0], slice(1, None)),
    "the last id": ([-1], slice(None, -1)),
    "the first and the last id": ([0, -1], slice(1, -1)),
}
"""Where marks of the beginning and the end are, and a row without them."""


class Padding(NamedTuple):
    """The id that fills rows up, and at which end."""

    token: int
    side: str


def mistakes(pair: TensorPair) -> Iterator[Mistake]:
    """For integers in one row, or in a row for each text."""
    yield from _spellings(pair)
    if not _has_ids(pair.own) or not _has_ids(pair.deployed):
        return
    if pair.own.ndim != pair.deployed.ndim:
        return
    own = pair.own.astype(np.int64)
    deployed = pair.deployed.astype(np.int64)
    if own.shape == deployed.shape and own.max() > 1 and own.size >= _MIN_IDS:
        offset = int(np.median(deployed - own))
        direction = "higher" if offset > 0 else "lower"
        yield Mistake(
            description=f"every id is {abs(offset)} {direction}",
            result=own + offset,
        )
    own = np.atleast_2d(own)
    deployed = np.atleast_2d(deployed)
    if len(own) == len(deployed):
        yield from _row_mistakes(own, deployed)


def _has_ids(array: Array) -> bool:
    return array.dtype.kind in "iu" and array.ndim in (1, 2) and array.size > 0


def _spellings(pair: TensorPair) -> Iterator[Mistake]:
    """The raw text spelled differently before one of the two preprocessings takes it."""
    if len(pair.raw) != 1 or not isinstance(pair.raw[0], str):
        return
    text = pair.raw[0]
    for change, function in _SPELLINGS.items():
        changed = function(text)
        if changed == text:
            continue
        yield Mistake(
            description=f"the text {change} by the deployment, and not by the model's own",
            result=pair.run_own(changed),
        )
        yield Mistake(
            description=f"the text {change} by the model's own, and not by the deployment",
            result=pair.run_deployed(changed),
            target=pair.own,
        )


def _row_mistakes(own: Array, deployed: Array) -> Iterator[Mistake]:
    """Padding first; with the padding removed: marks, truncation, vocabulary."""
    own_padding = _find_padding(own)
    deployed_padding = _find_padding(deployed) or own_padding
    own_rows = [_remove_padding(row, own_padding) for row in own.tolist()]
    deployed_rows = [_remove_padding(row, deployed_padding) for row in deployed.tolist()]
    if own_rows == deployed_rows:
        yield from _padding_mistakes(own, deployed, own_padding, deployed_padding)
        return
    yield from _mark_mistakes("the deployment lacks", own_rows, deployed_rows)
    yield from _mark_mistakes("the deployment adds", deployed_rows, own_rows)
    yield from _truncations(own_rows, deployed_rows)
    yield from _truncated_sides(own_rows, deployed_rows)
    if own.shape == deployed.shape:
        yield from _vocabulary_mistakes(own, deployed)


def _mark_mistakes(
    verb: str,
    marked: Rows,
    unmarked: Rows,
) -> Iterator[Mistake]:
    """The same ids with a mark of the beginning or the end on one side only."""
    if not all(len(row) > 1 for row in marked):
        return
    for name, (places, rest) in _MARKS.items():
        marks = sorted({row[place] for row in marked for place in places})
        if len(marks) <= 2:
            ids = ", ".join(map(str, marks))
            yield Mistake(
                description=f"{verb} {name} ({ids}): a mark of the beginning or the end",
                result=_as_array([row[rest] for row in marked]),
                target=_as_array(unmarked),
            )


def _padding_mistakes(
    own: Array,
    deployed: Array,
    own_padding: Padding | None,
    deployed_padding: Padding | None,
) -> Iterator[Mistake]:
    if own_padding and deployed_padding and own_padding != deployed_padding:
        changes = []
        if own_padding.token != deployed_padding.token:
            changes.append(
                f"padding with {deployed_padding.token} in the place of {own_padding.token}"
            )
        if own_padding.side != deployed_padding.side:
            changes.append(
                f"padding at the {deployed_padding.side} in the place of the {own_padding.side}"
            )
        yield Mistake(description=" and ".join(changes), result=deployed)
    elif own.shape != deployed.shape:
        yield Mistake(
            description=f"padded to {deployed.shape[1]} in the place of {own.shape[1]}",
            result=deployed,
        )


def _truncations(own: Rows, deployed: Rows) -> Iterator[Mistake]:
    """One is the beginning of the other."""
    for words, short, long in (("cut off", deployed, own), ("not cut off", own, deployed)):
        pairs = list(zip(short, long, strict=True))
        if all(_MIN_IDS <= len(part) <= len(full) for part, full in pairs):
            longest = max(len(part) for part in short)
            yield Mistake(
                description=f"{words} after {longest} ids",
                result=_as_array([full[: len(part)] for part, full in pairs]),
                target=_as_array(short),
            )


def _truncated_sides(own: Rows, deployed: Rows) -> Iterator[Mistake]:
    """The end of the one is the beginning of the other."""
    for description, left, right in (
        ("the beginning of a long text is cut off, and not its end", own, deployed),
        ("the end of a long text is cut off, and not its beginning", deployed, own),
    ):
        ends: Rows = []
        beginnings: Rows = []
        for left_row, right_row in zip(left, right, strict=True):
            overlap = _overlap(left_row, right_row)
            if left_row != right_row and overlap < max(_MIN_IDS, len(left_row) // 4):
                break
            ends.append(left_row[-overlap:])
            beginnings.append(right_row[:overlap])
        else:
            yield Mistake(
                description=description,
                result=_as_array(ends),
                target=_as_array(beginnings),
            )


def _vocabulary_mistakes(own: Array, deployed: Array) -> Iterator[Mistake]:
    """One id for another, always the same."""
    replaced_by: dict[int, int] = {}
    for own_id, deployed_id in zip(own.flat, deployed.flat, strict=True):
        if replaced_by.setdefault(int(own_id), int(deployed_id)) != int(deployed_id):
            return
    changed = {before: after for before, after in replaced_by.items() if before != after}
    if 0 < len(changed) <= len(replaced_by) // 4:
        first_four = list(changed.items())[:4]
        examples = ", ".join(f"{before} becomes {after}" for before, after in first_four)
        yield Mistake(
            description=f"{len(changed)} of {len(replaced_by)} ids stand for others, always the same ({examples}): another vocabulary, or letters that are written otherwise",
            result=deployed,
            proven=False,
        )


def _overlap(first: list[int], second: list[int]) -> int:
    """The length of the longest end of one that begins the other."""
    for length in range(min(len(first), len(second)), 0, -1):
        if first[-length:] == second[:length]:
            return length
    return 0


def _find_padding(rows: Array) -> Padding | None:
    """The id that is repeated most at the same end of rows; a row of one id alone says nothing."""
    repeats: Counter[Padding] = Counter()
    for row in rows.tolist():
        for side, ordered in (("end", row[::-1]), ("beginning", row)):
            run = _leading_run(ordered)
            if 1 < run < len(row):
                repeats[Padding(ordered[0], side)] += run
    if not repeats:
        return None
    return repeats.most_common(1)[0][0]


def _leading_run(ids: list[int]) -> int:
    """How often the first id is repeated at the beginning."""
    for place, token in enumerate(ids):
        if token != ids[0]:
            return place
    return len(ids)


def _remove_padding(row: list[int], padding: Padding | None) -> list[int]:
    ids = list(row)
    if padding is not None:
        place = -1 if padding.side == "end" else 0
        while ids and ids[place] == padding.token:
            ids.pop(place)
    return ids


def _as_array(rows: Rows) -> Array:
    """The number of rows, their lengths, then their ids, in one array: rows of any lengths can be compared."""
    lengths = [len(row) for row in rows]
    ids = [token for row in rows for token in row]
    return np.array([len(rows), *lengths, *ids], np.int64)
