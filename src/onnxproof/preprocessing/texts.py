"""What goes wrong with ids of tokens: each as what the model's own preprocessing would make with it."""

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from onnxproof.preprocessing.mistake import Both, Slip

Array = np.ndarray[Any, Any]
_LEAST = 4
"""Ids that must agree: fewer do by chance."""
_WORDS: dict[str, Callable[[str], str]] = {
    "is made lower case": str.lower,
    "is stripped of blanks at its ends": str.strip,
    "is brought to the normal form NFKC": lambda text: unicodedata.normalize("NFKC", text),
    "is brought to the normal form NFC": lambda text: unicodedata.normalize("NFC", text),
    "loses its accents": lambda text: "".join(
        c for c in unicodedata.normalize("NFD", text) if not unicodedata.combining(c)
    ),
}


def slips(both: Both) -> Iterator[Slip]:
    """For whole numbers in one row, or in a row for each text."""
    yield from _written(both)
    want, got = both.want, both.got
    if (
        want.dtype.kind not in "iu"
        or got.dtype.kind not in "iu"
        or want.ndim not in (1, 2)
        or want.ndim != got.ndim
        or not want.size
        or not got.size
    ):
        return
    want, got = want.astype(np.int64), got.astype(np.int64)
    if want.shape == got.shape and want.max() > 1 and want.size >= _LEAST:
        offset = int(np.median(got - want))
        yield Slip(
            what=f"every id is {abs(offset)} {'higher' if offset > 0 else 'lower'}",
            made=want + offset,
        )
    rows, others = np.atleast_2d(want), np.atleast_2d(got)
    if len(rows) == len(others):
        yield from _of_rows(rows, others)


def _written(both: Both) -> Iterator[Slip]:
    """The raw text written otherwise before one of the two takes it."""
    text = both.raw[0] if len(both.raw) == 1 and isinstance(both.raw[0], str) else None
    if text is None:
        return
    for words, change in _WORDS.items():
        changed = change(text)
        if changed != text:
            yield Slip(
                what=f"the text {words} by the deployment, and not by the model's own",
                made=both.own(changed),
            )
            yield Slip(
                what=f"the text {words} by the model's own, and not by the deployment",
                made=both.theirs(changed),
                target=both.want,
            )


def _of_rows(want: Array, got: Array) -> Iterator[Slip]:
    """Padding taken off both, then what is left."""
    own, theirs = _padding(want), _padding(got) or _padding(want)
    a, b = ([_bare(row, pad) for row in rows] for rows, pad in ((want, own), (got, theirs)))
    if a == b:
        yield from _of_padding(want, got, own, theirs)
        return
    for words, one, two in (("the deployment lacks", a, b), ("the deployment adds", b, a)):
        for what, cut in (
            ("the first id", slice(1, None)),
            ("the last id", slice(None, -1)),
            ("the first and the last id", slice(1, -1)),
        ):
            ids = sorted(
                {
                    row[place]
                    for row in one
                    if row
                    for place in ([0] if "first" in what else []) + ([-1] if "last" in what else [])
                }
            )
            if len(ids) <= 2 and all(len(row) > 1 for row in one):
                yield Slip(
                    what=f"{words} {what} ({', '.join(map(str, ids))}): a mark of the beginning or the end",
                    made=_as_array([row[cut] for row in one]),
                    target=_as_array(two),
                )
    yield from _of_truncation(a, b)
    if want.shape == got.shape:
        yield from _of_vocabulary(want, got)


def _of_padding(
    want: Array, got: Array, own: tuple[int, str] | None, theirs: tuple[int, str] | None
) -> Iterator[Slip]:
    if own is not None and theirs is not None and own != theirs:
        words = (
            [f"padding with {theirs[0]} in the place of {own[0]}"] if own[0] != theirs[0] else []
        )
        words += (
            [f"padding at the {theirs[1]} in the place of the {own[1]}"]
            if own[1] != theirs[1]
            else []
        )
        yield Slip(what=" and ".join(words), made=got)
    elif want.shape != got.shape:
        yield Slip(what=f"padded to {got.shape[1]} in the place of {want.shape[1]}", made=got)


def _of_truncation(want: list[list[int]], got: list[list[int]]) -> Iterator[Slip]:
    """What the one has at its end, the other has at its beginning; or one is the beginning of the other."""
    for words, short, long in (("cut off", got, want), ("not cut off", want, got)):
        if all(_LEAST <= len(s) <= len(full) for s, full in zip(short, long, strict=True)):
            yield Slip(
                what=f"{words} after {max(map(len, short))} ids",
                made=_as_array([full[: len(s)] for s, full in zip(short, long, strict=True)]),
                target=_as_array(short),
            )
    for words, left, right in (
        ("the beginning of a long text is cut off, and not its end", want, got),
        ("the end of a long text is cut off, and not its beginning", got, want),
    ):
        overlaps = [_overlap(one, two) for one, two in zip(left, right, strict=True)]
        if all(
            one == two or shared >= max(_LEAST, len(one) // 4)
            for shared, one, two in zip(overlaps, left, right, strict=True)
        ):
            yield Slip(
                what=words,
                made=_as_array([one[-shared:] for shared, one in zip(overlaps, left, strict=True)]),
                target=_as_array(
                    [two[:shared] for shared, two in zip(overlaps, right, strict=True)]
                ),
            )


def _of_vocabulary(want: Array, got: Array) -> Iterator[Slip]:
    """One id for another, always the same."""
    known: dict[int, int] = {}
    same = all(
        known.setdefault(int(w), int(g)) == int(g) for w, g in zip(want.flat, got.flat, strict=True)
    )
    changed = {w: g for w, g in known.items() if w != g}
    if same and 0 < len(changed) <= len(known) // 4:
        shown = ", ".join(f"{w} becomes {g}" for w, g in list(changed.items())[:4])
        yield Slip(
            what=f"{len(changed)} of {len(known)} ids stand for others, always the same ({shown}): another vocabulary, or letters that are written otherwise",
            made=got,
            sure=False,
        )


def _overlap(one: list[int], two: list[int]) -> int:
    """The longest end of one that begins the other."""
    return next((n for n in range(min(len(one), len(two)), 0, -1) if one[-n:] == two[:n]), 0)


def _padding(rows: Array) -> tuple[int, str] | None:
    """The id that fills rows up, and at which end: what ends (or begins) some rows more than once."""
    found: Counter[tuple[int, str]] = Counter()
    for row in rows.tolist():
        for side, ordered in (("end", row[::-1]), ("beginning", row)):
            run = next((n for n, v in enumerate(ordered) if v != ordered[0]), len(row))
            if run < len(row) and run > 1:
                found[ordered[0], side] += run
    return found.most_common(1)[0][0] if found else None


def _bare(row: Array, pad: tuple[int, str] | None) -> list[int]:
    ids = [int(v) for v in row]
    if pad is not None:
        place = -1 if pad[1] == "end" else 0
        while ids and ids[place] == pad[0]:
            ids.pop(place)
    return ids


def _as_array(rows: list[list[int]]) -> Array:
    """Rows one after the other, with their lengths."""
    return np.array(
        [len(rows), *(len(row) for row in rows), *(v for row in rows for v in row)], np.int64
    )
