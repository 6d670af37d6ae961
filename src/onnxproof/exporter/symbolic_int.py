"""`int(size)` keeps a size open while a module is captured: Python's own `int` asks for the number, and torch fixes the dim at it.

During a capture, the name `int` in the files of the module's classes, and in those that they take functions from, is a type that
returns a symbolic size unchanged. A guard over such a size that excludes sizes which the module accepts
(`if int(x.shape[1]) % 2 == 0:`) would give a file that is open and wrong: the capture ends at the first such guard, and the next
one runs with Python's own `int`.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any

import torch

from onnxproof.exporter.capture import (
    Capture,
    TorchFailed,
    guard_source,
    is_user_code,
    locate_symbols,
)
from onnxproof.exporter.dims import equates_symbols, format_relation, place_labels
from onnxproof.exporter.example import Example, Place, Sizes
from onnxproof.exporter.guards import format_source, holds

_MAX_CAPTURES = 4
"""Captures that may end at a guard which the module shares; each ends early. Not measured."""
_NEAR, _FAR = 16, 1024
"""How far from the example's size an excluded size is searched: one by one, then by doubling. Not measured."""


class NarrowingGuard(BaseException):
    """A guard that excludes a size of a symbol; not an Exception, since torch catches those on the way."""

    def __init__(
        self,
        guard: Any,
        environment: Any,
        symbol: Any,
        size: int,
    ) -> None:
        super().__init__(str(guard.expr))
        self.guard = guard
        self.environment = environment
        self.symbol = symbol
        self.size = size


class SizeWatch:
    """The sizes that `int` was called with, and the guards over them."""

    def __init__(self, allowed: set[str]) -> None:
        self.symbols: set[Any] = set()
        self._allowed = allowed
        self._checked = 0
        self._environment: Any = None

    def keep(self, value: torch.SymInt) -> torch.SymInt:
        """Record the size, and return it unchanged."""
        self._environment = value.node.shape_env
        hints = _hints(self._environment)
        new = {symbol for symbol in value.node.expr.free_symbols if symbol in hints} - self.symbols
        self.symbols |= new
        if new:
            self._checked = 0
        self.check()
        return value

    def check(self) -> None:
        """Raise for a new guard that excludes one of these sizes and is not yet known to be the module's own."""
        if self._environment is None:
            return
        guards = self._environment.guards
        for guard in guards[self._checked :]:
            if str(guard.expr) in self._allowed or equates_symbols(guard.expr):
                continue
            for symbol in sorted(guard.expr.free_symbols & self.symbols, key=str):
                excluded = self._find_excluded_size(guard.expr, symbol)
                if excluded:
                    raise NarrowingGuard(guard, self._environment, symbol, excluded)
        self._checked = len(guards)

    def _find_excluded_size(
        self,
        expression: Any,
        symbol: Any,
    ) -> int:
        """The size nearest to the example's that the guard excludes, or 0."""
        hints = _hints(self._environment)
        known = {other: int(hints[other]) for other in expression.free_symbols if other in hints}
        for size in _sizes_around(known[symbol]):
            if not holds(expression, {**known, symbol: size}):
                return size
        return 0


def _hints(environment: Any) -> Any:
    """The example's size for each symbol, by whichever name this torch has for it."""
    if hasattr(environment, "backed_var_to_val"):
        return environment.backed_var_to_val
    return environment.var_to_val


def capture_with_open_int(
    take: Callable[[], Capture],
    example: Example,
    sizes: Sizes,
) -> tuple[Capture, str]:
    """Capture while `int` keeps sizes open; if that fails, with Python's own `int`, and the reason.

    1. A guard that excludes a size which the module accepts: give up, with the guard as the reason.
    2. A guard that the module shares: allow it, and capture again.
    3. torch fails after `int` kept a size open: give up.
    """
    allowed: set[str] = set()
    reason = "too much is assumed about those sizes"
    for _ in range(_MAX_CAPTURES):
        watch = SizeWatch(allowed)
        try:
            with _replaced_int(_user_scopes(example.session.module), watch):
                capture = take()
            watch.check()
        except NarrowingGuard as narrowing:
            harm = _describe_harm(narrowing, example, sizes)
            if harm:  # step 1
                reason = harm
                break
            allowed.add(str(narrowing.guard.expr))  # step 2
        except TorchFailed as failed:
            if not watch.symbols:
                raise  # `int` had no part in it
            reason = f"torch can't go on with it: {type(failed.__cause__).__name__}"
            break  # step 3
        else:
            return capture, ""
    return take(), reason


def _describe_harm(
    narrowing: NarrowingGuard,
    example: Example,
    sizes: Sizes,
) -> str:
    """The guard in words if the module accepts the size that it excludes; empty if the module refuses that size too."""
    expression = narrowing.guard.expr
    places = dict(locate_symbols(narrowing.environment, list(example.tensors)))
    hints = {place: sizes.get(place, example.size(place)) for place in places.values()}
    own_place = places[narrowing.symbol]
    same_size = [place for place, hint in hints.items() if hint == hints[own_place]]
    for moved_places in ([own_place], same_size):
        moved = dict.fromkeys(moved_places, narrowing.size)
        if _excludes(expression, {**hints, **moved}, places) and example.accepts(
            {**sizes, **moved}
        ):
            break
    else:
        return ""
    labels = place_labels(places)
    where = format_source(guard_source(narrowing.guard.sloc))
    return f"the file would be right for {format_relation(expression, labels)} alone{where}; the module takes {labels[narrowing.symbol]} = {narrowing.size}, too"


def _excludes(
    expression: Any,
    sizes: Sizes,
    places: Mapping[Any, Place],
) -> bool:
    """Whether the guard does not hold at these sizes: two lengths that must agree still do if both change."""
    symbols = [symbol for symbol in places if symbol in expression.free_symbols]
    return not holds(expression, {symbol: sizes[places[symbol]] for symbol in symbols})


def _sizes_around(start: int) -> Iterator[int]:
    """Sizes from the nearest on; not 0 and 1, which are checked for every dim of a file."""
    for step in range(1, _NEAR):
        yield start + step
        if start - step > 1:
            yield start - step
    while start <= _FAR:
        start *= 2
        yield start + 1


class _SymIntIsInt(type):
    """A symbolic size counts as an integer, as it does for Python's own `int` during a capture."""

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, int | torch.SymInt)

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, int)


def _int_type(watch: SizeWatch) -> type:
    class Integer(int, metaclass=_SymIntIsInt):
        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            value = None
            if len(args) == 1 and not kwargs:
                value = args[0]
            if isinstance(value, torch.SymFloat):
                value = torch.sym_int(value)
            if isinstance(value, torch.SymInt):
                return watch.keep(value)
            return int(*args, **kwargs)

    return Integer


@contextmanager
def _replaced_int(scopes: list[dict[str, Any]], watch: SizeWatch) -> Iterator[None]:
    """The name `int` in these scopes is a type that keeps sizes open."""
    int_type = _int_type(watch)
    changed = [scope for scope in scopes if "int" not in scope]
    for scope in changed:
        scope["int"] = int_type
    try:
        yield
    finally:
        for scope in changed:
            scope.pop("int", None)


def _user_scopes(module: Any) -> list[dict[str, Any]]:
    """The globals of the files that define the module's classes, and of the files that those take functions from."""
    if not isinstance(module, torch.nn.Module):
        return []
    scopes: dict[int, dict[str, Any]] = {}
    bases = {base for layer in module.modules() for base in type(layer).__mro__}
    for base in bases:
        scope = _module_globals(sys.modules.get(base.__module__))
        if scope:
            scopes[id(scope)] = scope
    for scope in list(scopes.values()):
        for value in list(scope.values()):
            imported = _imported_globals(value)
            if imported:
                scopes[id(imported)] = imported
    return list(scopes.values())


def _imported_globals(value: Any) -> dict[str, Any] | None:
    """The globals behind a function or a module that a file imports, if they are the user's own."""
    if isinstance(value, FunctionType) and is_user_code(value.__code__.co_filename):
        return value.__globals__
    if _is_project_module(value):
        return _module_globals(value)
    return None


def _module_globals(module: Any) -> dict[str, Any] | None:
    if isinstance(module, ModuleType) and is_user_code(getattr(module, "__file__", None) or "<"):
        return vars(module)
    return None


def _is_project_module(value: Any) -> bool:
    """A file of the user's own project; a library keeps its `int`, unless a class of the module comes from it."""
    if not isinstance(value, ModuleType):
        return False
    file: str = getattr(value, "__file__", None) or "site-packages"
    return "site-packages" not in file
