"""The cases that a user asked for by name: taken from the plan, made again after a search, or made at a size of their own."""

import difflib
from collections.abc import Collection, Iterable, Iterator, Sequence

from onnxproof.inputs.search import origin, rebuild
from onnxproof.inputs.space import Space
from onnxproof.results import Case, Finding

_NEAR = 3
"""Names that are offered in the place of an unknown one."""
_ALIKE = 0.5
"""How alike a name must be to be offered, as `difflib` measures it. Not measured."""


class ChosenCases:
    """Finds cases by name, and remembers which names no case has."""

    def __init__(self, names: Sequence[str], seed: int) -> None:
        self._seed = seed
        self._wanted: dict[str, list[str]] = {}
        for name in names:
            self._wanted.setdefault(origin(name), []).append(name)
        self._known: list[str] = []
        self._unknown: list[str] = []

    def among(self, planned: Iterable[Case], space: Space) -> Iterator[Case]:
        """The chosen cases; `batch=128` is made where the plan has no such size."""
        missing = dict(self._wanted)
        for case in planned:
            self._known.append(case.name)
            for name in missing.pop(case.name, ()):
                yield rebuild(case, name, self._seed)
        for start, names in missing.items():
            sized = _at_size(start, space)
            if sized is None:
                self._unknown += names
                continue
            for name in names:
                yield rebuild(sized, name, self._seed)

    def findings(self, compared: Collection[str]) -> list[Finding]:
        """A finding for each name that no case has: nothing is proven by it, and beside other cases the run fails."""
        return [
            Finding(
                code="no-such-case",
                what=f"there is no case `{name}`",
                help=self._advice(name),
                voids=not compared,
                fails=bool(compared),
            )
            for name in self._unknown
        ]

    def _advice(self, name: str) -> str:
        names = list(dict.fromkeys(self._known))
        near = difflib.get_close_matches(name, names, n=_NEAR, cutoff=_ALIKE)
        if not near:
            return f"none of {len(names)} names is like it; the first are {_quoted(names[:_NEAR])}"
        return f"the nearest of {len(names)} cases are {_quoted(near)}"


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _at_size(name: str, space: Space) -> Case | None:
    """Ordinary values with one open dim at the size that the name says; None where it says none, or one that can't be."""
    dim, is_size, size = name.partition("=")
    if not is_size or not size.isdecimal():
        return None
    if dim not in [free.name for free in space.free_dims]:
        return None
    sizes = space.sizes(**{dim: int(size)})
    if int(size) < 1 or not space.fits(sizes):
        return None
    return space.case(name, "shapes", name, sizes)
