"""`int(size)` keeps a size open while a module is captured: Python's own `int` asks for the number, and torch fixes the dim at it.

For the length of a capture, the name `int` in the files of the module's classes, and in those that they take functions from, means a type which
hands a size on as it is. An assumption over such a size that leaves out sizes which the module takes (`if int(x.shape[1]) % 2 == 0:`) would make a
file that is open and wrong: the capture ends at the first of them, and `int` has its usual meaning in the next.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any

import torch

from onnxproof.exporter.capture import Captured, TorchFailed, is_users, places_of, source_at
from onnxproof.exporter.dims import relation
from onnxproof.exporter.example import Example, Place, Sizes
from onnxproof.exporter.guards import holds

_TRIES = 4
"""Captures that may end at an assumption which the module shares; each ends early."""
_NEAR, _FAR = 16, 1024
"""How far from the example's size a size is looked for that an assumption leaves out: one by one, then by doubling."""


class Narrowed(BaseException):
    """An assumption that leaves out a size of a symbol; not an Exception, since torch catches those on the way."""

    def __init__(self, guard: Any, environment: Any, symbol: Any, size: int) -> None:
        super().__init__(str(guard.expr))
        self.guard, self.environment, self.symbol, self.size = guard, environment, symbol, size


class Watch:
    """The sizes that `int` was asked for, and what is assumed about them."""

    def __init__(self, allowed: set[str]) -> None:
        self.symbols: set[Any] = set()
        self._allowed, self._seen = allowed, 0
        self._environment: Any = None

    def keep(self, value: torch.SymInt) -> torch.SymInt:
        """The size as it is."""
        self._environment = value.node.shape_env
        new = {
            symbol for symbol in value.node.expr.free_symbols if symbol in _hints(self._environment)
        } - self.symbols
        self.symbols |= new
        self._seen = 0 if new else self._seen
        self.look()
        return value

    def look(self) -> None:
        """Raise for an assumption that leaves out one of these sizes and is not yet known to be the module's own."""
        if self._environment is None:
            return
        guards, hints = self._environment.guards, _hints(self._environment)
        for guard in guards[self._seen :]:
            if str(guard.expr) in self._allowed or _names_one_size(guard.expr):
                continue
            for symbol in sorted(guard.expr.free_symbols & self.symbols, key=str):
                known = {
                    other: int(hints[other]) for other in guard.expr.free_symbols if other in hints
                }
                if outside := next(
                    (
                        size
                        for size in _around(known[symbol])
                        if not holds(guard.expr, {**known, symbol: size})
                    ),
                    0,
                ):
                    raise Narrowed(guard, self._environment, symbol, outside)
        self._seen = len(guards)


def _names_one_size(expression: Any) -> bool:
    """Two dims that are one size: assumed whether or not `int` was asked, and nothing to stop for."""
    return getattr(expression, "rel_op", "") == "==" and bool(
        expression.lhs.is_Symbol and expression.rhs.is_Symbol
    )


def _hints(environment: Any) -> Any:
    """The example's size for each symbol, whatever this torch calls that."""
    return (
        environment.backed_var_to_val
        if hasattr(environment, "backed_var_to_val")
        else environment.var_to_val
    )


def keeping_sizes(
    take: Callable[[], Captured], example: Example, sizes: Sizes
) -> tuple[Captured, str]:
    """What `take` captures while `int` keeps sizes open, else while it does not, with the reason."""
    allowed: set[str] = set()
    reason = "too much is assumed about those sizes"
    for _ in range(_TRIES):
        watch = Watch(allowed)
        try:
            with _meaning(_scopes(example.session.module), watch):
                captured = take()
            watch.look()
        except Narrowed as why:
            if harm := _harm(why, example, sizes):
                reason = harm
                break
            allowed.add(str(why.guard.expr))
        except TorchFailed as failed:
            if not watch.symbols:
                raise  # `int` had no part in it
            reason = f"torch can't go on with it: {type(failed.__cause__).__name__}"
            break
        else:
            return captured, ""
    return take(), reason


def _harm(why: Narrowed, example: Example, sizes: Sizes) -> str:
    """The assumption in words where the module takes the size that it leaves out; nothing where they are of one mind."""
    places = dict(places_of(why.environment, list(example.tensors)))
    hints = {place: sizes.get(place, example.size(place)) for place in places.values()}
    mine = places[why.symbol]
    alone, together = (
        {mine: why.size},
        {place: why.size for place, hint in hints.items() if hint == hints[mine]},
    )
    if not any(
        _leaves_out(why.guard.expr, {**hints, **moved}, places)
        and example.accepts({**sizes, **moved})
        for moved in (alone, together)
    ):
        return ""
    labels = {symbol: f"{place[0]}[{place[1]}]" for symbol, place in places.items()}
    source = source_at(why.guard.sloc)
    where = f" at {source.file.rpartition('/')[2]}:{source.line}: `{source.text}`" if source else ""
    return f"the file would be right for {relation(why.guard.expr, labels)} alone{where}; the module takes {labels[why.symbol]} = {why.size}, too"


def _leaves_out(expression: Any, sizes: Sizes, places: Mapping[Any, Place]) -> bool:
    """Whether these sizes are outside: two lengths that must agree still do when both move."""
    return not holds(
        expression,
        {
            symbol: sizes[place]
            for symbol, place in places.items()
            if symbol in expression.free_symbols
        },
    )


def _around(start: int) -> Iterator[int]:
    """Sizes from the nearest on; 0 and 1 are another story, which every dim of a file is asked about."""
    for step in range(1, _NEAR):
        yield start + step
        if start - step > 1:
            yield start - step
    while start <= _FAR:
        start *= 2
        yield start + 1


class _Like(type):
    """A size counts as an integer, as it does for Python's own `int` by then."""

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, int | torch.SymInt)

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, int)


def _integer(watch: Watch) -> type:
    class Integer(int, metaclass=_Like):
        def __new__(cls, *given: Any, **named: Any) -> Any:
            value = given[0] if len(given) == 1 and not named else None
            if isinstance(value, torch.SymFloat):
                value = torch.sym_int(value)
            return watch.keep(value) if isinstance(value, torch.SymInt) else int(*given, **named)

    return Integer


@contextmanager
def _meaning(scopes: list[dict[str, Any]], watch: Watch) -> Iterator[None]:
    meant = _integer(watch)
    free = [scope for scope in scopes if "int" not in scope]
    for scope in free:
        scope["int"] = meant
    try:
        yield
    finally:
        for scope in free:
            scope.pop("int", None)


def _scopes(module: Any) -> list[dict[str, Any]]:
    """The globals of the files that the module's classes are written in, and of the files that those take functions from."""
    if not isinstance(module, torch.nn.Module):
        return []
    bases = {base for layer in module.modules() for base in type(layer).__mro__}
    found = {
        id(scope): scope for base in bases if (scope := _globals(sys.modules.get(base.__module__)))
    }
    for scope in list(found.values()):
        for value in list(scope.values()):
            near = (
                value.__globals__
                if isinstance(value, FunctionType) and is_users(value.__code__.co_filename)
                else _globals(value)
                if _theirs(value)
                else None
            )
            if near:
                found[id(near)] = near
    return list(found.values())


def _globals(module: Any) -> dict[str, Any] | None:
    return (
        vars(module)
        if isinstance(module, ModuleType) and is_users(getattr(module, "__file__", None) or "<")
        else None
    )


def _theirs(value: Any) -> bool:
    """A file of the user's own project; a library keeps its `int`, unless a class of the module comes from it."""
    return isinstance(value, ModuleType) and "site-packages" not in (
        getattr(value, "__file__", None) or "site-packages"
    )
