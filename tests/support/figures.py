"""What a page shows of an output beside what was printed: the words must be the same, the figures nearly, and times may be any.

The figures in the pages are those of one machine. On another the rounding differs, so a figure may be off by `FACTOR`; a page that was not
written anew after a change is off by much more.
"""

import itertools
import re
from collections.abc import Iterator
from contextlib import contextmanager

FACTOR = 5.0
"""How far a figure may be from the page's. Not measured on other processors: rounding differs there, and with it every multiple of the noise."""
_NUMBER = re.compile(r"[-+]?\d[\d,.]*(?:e[-+]?\d+)?%?")
_CASE = re.compile(r"case `[^`]*`|--case '[^']*'|only=\('[^']*',\)")
_VERSION = re.compile(r"\b\d+\.\d+\.\d+\b")
_TIME = re.compile(r"\d[\d,.]* ?m?s\b(?: \(\d+% in forward passes\))?|\d+ µs|[\d.]+ times as fast")
_ROW = re.compile(r"^(\w+) .*\b(faithful|drift|diverged|vacuous)( \*)?\s*$")
_other_figures_accepted = False


@contextmanager
def accepting_other_figures() -> Iterator[None]:
    """While the pages are written anew."""
    global _other_figures_accepted
    _other_figures_accepted = True
    try:
        yield
    finally:
        _other_figures_accepted = False


class FiguresDiffer(AssertionError):
    """A page shows other figures, or other words, than those that are printed."""


def plain(line: str) -> str:
    """A line without figures, times, blanks, and the name of the worst case, which differs between machines."""
    if row := _ROW.match(line):
        return f"{row[1]} {row[2]}"
    return " ".join(_NUMBER.sub("0", _without_names(line)).split())


def updated(command: str, expected: str, said: str) -> str:
    """The shown lines as they were printed; every one of them is there, in that order.

    Raises:
        FiguresDiffer: a line was not printed, or its figures are far from the page's.
    """
    lines = said.splitlines()
    place = 0
    shown: list[str] = []
    for is_row, group in itertools.groupby(expected.splitlines(), key=_is_row):
        wanted = list(group)
        if is_row:
            place = _rows(command, wanted, lines, place, shown)
            continue
        for line in wanted:
            if line.strip() in ("", "..."):
                shown.append(line)
                continue
            place = _find(command, line, lines, place)
            shown.append(_as_printed(line, lines[place - 1]))
            _check_figures(command, line, shown[-1])
    return "".join(f"{line}\n" for line in shown)


def _is_row(line: str) -> bool:
    return _ROW.match(line) is not None


def _rows(command: str, wanted: list[str], lines: list[str], place: int, shown: list[str]) -> int:
    """The rows of a table, which stands by the worst case: which group is the worst differs between machines."""
    while place < len(lines) and not _is_row(lines[place]):
        place += 1
    printed = list(itertools.takewhile(_is_row, lines[place:]))
    by_group = {plain(line): line for line in printed}
    for line in wanted:
        if plain(line) not in by_group:
            raise FiguresDiffer(f"`{command}` has no row\n  {line}\nin\n" + "\n".join(lines))
    kept = {plain(line) for line in wanted}
    shown += [line.rstrip() for line in printed if plain(line) in kept]
    return place + len(printed)


def _find(command: str, line: str, lines: list[str], place: int) -> int:
    """The place behind the next line that says the same."""
    begins = plain(line.removesuffix("..."))
    for index in range(place, len(lines)):
        other = plain(lines[index])
        if other == begins or (line.endswith("...") and other.startswith(begins)):
            return index + 1
    raise FiguresDiffer(f"`{command}` does not say\n  {line}\nin\n" + "\n".join(lines))


def _as_printed(line: str, printed: str) -> str:
    """The printed line, cut where the page cuts it."""
    if not line.endswith("..."):
        return printed.rstrip()
    begins = plain(line.removesuffix("..."))
    for end in range(len(printed), 0, -1):
        if plain(printed[:end]) == begins:
            return f"{printed[:end].rstrip()}{_blank_before_dots(line)}..."
    return line


def _blank_before_dots(line: str) -> str:
    return " " if line.endswith(" ...") else ""


def _check_figures(command: str, line: str, printed: str) -> None:
    """Each figure of the page is near the one that was printed."""
    if _other_figures_accepted:
        return
    for shown, real in zip(_figures(line), _figures(printed), strict=True):
        low, high = sorted((abs(shown), abs(real)))
        if high > FACTOR * low and high - low > 1e-9:
            raise FiguresDiffer(
                f"`{command}` prints other figures than the page; run `make docs-figures`\n  page: {line}\n  real: {printed}"
            )


def _figures(line: str) -> list[float]:
    found = _NUMBER.findall(_without_names(line))
    return [float(text.rstrip("%.,").replace(",", "")) for text in found]


def _without_names(line: str) -> str:
    """A line without what is no figure: names of cases, versions and times."""
    return _TIME.sub("time", _VERSION.sub("version", _CASE.sub("case", line)))
