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
    """Every generator by name, the most telling first."""
    names = [info.name for info in pkgutil.iter_modules(__path__) if not info.name.startswith("_")]
    names.sort(key=lambda name: (_FIRST.index(name) if name in _FIRST else len(_FIRST), name))
    found: dict[str, Generator] = {
        name: importlib.import_module(f"{__name__}.{name}").generate for name in names
    }
    for point in registry.points(ENTRY_POINTS):
        found[point.name] = point.load()
    return found


def plan(space: Space) -> Iterator[Case]:
    """All cases, one at a time: ordinary ones first, then every generator in turn, so that a short budget still sees each kind."""
    every = generators()
    for name in _FIRST:
        yield from every.pop(name)(space)
    last = [every.pop(name) for name in _LAST]
    waiting = [generate(space) for generate in every.values()]
    while waiting:
        for generator in list(waiting):
            case = next(generator, None)
            if case is None:
                waiting.remove(generator)
            else:
                yield case
    for generate in last:
        yield from generate(space)
