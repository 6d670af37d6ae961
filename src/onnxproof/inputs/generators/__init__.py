"""Cases that look for trouble: one file a generator, each a function `generate(space)` that yields named, seeded cases.

What is valid is not guessed: a case that the reference itself refuses is dropped and counted. Outsiders add a generator
by an entry point of the group `onnxproof.cases`.
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterator

from onnxproof import registry
from onnxproof.inputs.space import Space
from onnxproof.results import Case

ENTRY_POINTS = "onnxproof.cases"
_FIRST = ("ordinary", "data")
_LAST = ("lengths",)
Generator = Callable[[Space], Iterator[Case]]


def generators() -> dict[str, Generator]:
    """Every generator by name, in the order in which they are asked."""
    names = [info.name for info in pkgutil.iter_modules(__path__) if not info.name.startswith("_")]
    others = sorted(name for name in names if name not in _FIRST)
    by_name: dict[str, Generator] = {}
    for name in (*_FIRST, *others):
        by_name[name] = importlib.import_module(f"{__name__}.{name}").generate
    for point in registry.points(ENTRY_POINTS):
        by_name[point.name] = point.load()
    return by_name


def plan(space: Space) -> Iterator[Case]:
    """All cases, one at a time: ordinary ones first, then every generator in turn, so that a short budget still sees each kind."""
    in_turn = generators()
    for name in _FIRST:
        yield from in_turn.pop(name)(space)
    last = [in_turn.pop(name) for name in _LAST]
    unfinished = [generate(space) for generate in in_turn.values()]
    while unfinished:
        for cases in list(unfinished):
            case = next(cases, None)
            if case is None:
                unfinished.remove(cases)
            else:
                yield case
    for generate in last:
        yield from generate(space)
