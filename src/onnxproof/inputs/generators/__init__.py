"""Cases that look for trouble: one file a generator, each a function `generate(space)` that yields named, seeded cases.

What is valid is not guessed: a case that the reference itself refuses is dropped and counted. Outsiders add a generator
by an entry point of the group `onnxproof.cases`.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from onnxproof.inputs.space import Space
from onnxproof.registry import Registry
from onnxproof.results import Case

_FIRST = ("ordinary", "data")
_LAST = ("lengths",)
Generator = Callable[[Space], Iterator[Case]]


class GeneratorFile(Protocol):
    """What the file of a generator defines."""

    def generate(self, space: Space) -> Iterator[Case]:
        """Yield cases that are drawn from the space."""


GENERATORS: Registry[GeneratorFile] = Registry(
    "generator", __name__, GeneratorFile, group="onnxproof.cases"
)


def generators() -> dict[str, Generator]:
    """Every generator by name, in the order in which they are asked."""
    names = GENERATORS.names()
    others = [name for name in names if name not in _FIRST]
    return {name: GENERATORS.load(name).generate for name in (*_FIRST, *others)}


def plan(space: Space, first: Sequence[Case] = ()) -> Iterator[Case]:
    """All cases, one at a time, some of them first; what the user's words brought to the same values is one case."""
    yield from first
    known = {case.name for case in first}
    cases = (case for case in _in_turn(space) if case.name not in known)
    if not space.rules.inputs:
        yield from cases
        return
    seen: set[int] = set()
    for case in cases:
        arrays = [(name, array.shape, array.tobytes()) for name, array in case.inputs.items()]
        content = hash(tuple(arrays))
        if content not in seen:
            seen.add(content)
            yield case


def _in_turn(space: Space) -> Iterator[Case]:
    """Ordinary cases first, then every generator in turn, so that a short budget still sees each kind."""
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
