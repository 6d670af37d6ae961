"""Module to exported program: every dim open unless it was asked to be fixed, and what torch assumed about sizes."""

import importlib
import re
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from onnxproof.exporter.example import Example, Place, Sizes
from onnxproof.results import Source

_SOURCE = re.compile(r"L\['(?P<name>\w+)'\](?P<path>.*)\.size\(\)\[(?P<axis>\d+)\]$")
_NO_LIMIT = 1 << 40
"""Upper ends from here on mean that there is none: torch writes its largest integer."""
_HERE = __file__.rpartition("/exporter/")[0]
_NOT_THE_USERS = (torch.__path__[0], sysconfig.get_path("stdlib"), _HERE, "<")


class TorchFailed(Exception):
    """torch could not capture or translate the module; its exception is the cause. Our own errors are not wrapped in this."""

    def __init__(
        self,
        why: BaseException,
        program: Any = None,
    ) -> None:
        super().__init__(str(why))
        self.program = program
        """The captured program, if translating it failed."""


@contextmanager
def torch_failures(program: Any = None) -> Iterator[None]:
    """Whatever is raised inside becomes a TorchFailed."""
    try:
        yield
    except Exception as why:  # torch raises dozens of classes here
        raise TorchFailed(why, program) from why


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumption:
    """A guard as torch keeps it: an expression over symbols of dims, and the user's line behind it."""

    expression: Any
    source: Source | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """An exported program, the dims behind its symbols, and what was assumed."""

    program: Any
    symbols: Mapping[Any, Place]
    """The dim for which each symbol was created."""
    final: Mapping[Place, Any]
    """What each open dim became: a symbol, an expression of symbols, or a number."""
    assumptions: tuple[Assumption, ...]
    ranges: Mapping[Any, tuple[int, int | None]]
    sizes: Sizes
    """Sizes at which the example was enlarged for the capture."""
    hints: Mapping[Any, int] = field(default_factory=dict)
    tied: Mapping[Any, Any] = field(default_factory=dict)
    """Symbols that are only bounded by others, and are set to that bound: a mask as long as past and new tokens together."""
    int_reason: str = ""
    """Why `int(size)` was allowed to fix a size that could have stayed open."""


def capture_program(
    module: Any,
    example: Example,
    *,
    open_dims: Mapping[Place, tuple[int | None, int | None]],
    sizes: Sizes,
    strict: bool = False,
) -> Capture:
    """Run torch.export with those dims open; torch narrows or fixes those that the module can't keep open, and says why."""
    args, kwargs = example.arguments(sizes)
    shapes = _dynamic_shapes(module, args, kwargs, example, open_dims)
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(_user_lines())
        stack.enter_context(torch.fx.experimental._config.patch(backed_size_oblivious=True))  # type: ignore[attr-defined]
        for patch in _rnn_patches():
            stack.enter_context(patch)
        stack.enter_context(torch_failures())
        program = torch.export.export(module, args, kwargs, dynamic_shapes=shapes, strict=strict)
    return tie_bounded_sizes(_read(program, example, sizes))


def _dynamic_shapes(
    module: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    example: Example,
    open_dims: Mapping[Place, tuple[int | None, int | None]],
) -> Any:
    collection = torch.export.ShapesCollection()
    tensors = dict(zip(example.tensors, _tensors(args, kwargs, example), strict=True))
    for name, tensor in tensors.items():
        dims: dict[int, Any] = dict.fromkeys(range(tensor.dim()), torch.export.Dim.STATIC)
        open_axes = [axis for axis in dims if (name, axis) in open_dims]
        for axis in open_axes:
            dims[axis] = _auto_dim(open_dims[name, axis])
        if open_axes:
            collection[tensor] = dims
    return collection.dynamic_shapes(module, args, kwargs)


def _tensors(
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    example: Example,
) -> list[torch.Tensor]:
    """The tensors of these arguments in the order of the example's leaves."""
    from onnxproof.reference import tree
    from onnxproof.reference.torch_session import bind

    named = bind(example.session.module, args, kwargs)
    return [leaf for _, leaf in tree.flatten(named) if isinstance(leaf, torch.Tensor)]


def _auto_dim(limits: tuple[int | None, int | None]) -> Any:
    """AUTO, within the user's limits if there are any."""
    low, high = limits
    if low is None and high is None:
        return torch.export.Dim.AUTO
    return torch.export.Dim.AUTO(min=low or 0, max=high)


def _rnn_patches() -> Iterator[Any]:
    """Loops instead of unrolled steps for LSTM and GRU, as torch.onnx itself captures them (if this torch can do that)."""
    try:
        patches = importlib.import_module("torch.export._patches")
    except ImportError:
        return
    for name in ("register_lstm_while_loop_decomposition", "register_gru_while_loop_decomposition"):
        if hasattr(patches, name):
            yield getattr(patches, name)()


@contextmanager
def _user_lines() -> Iterator[None]:
    """Keep the user's line with each guard: torch keeps only its own innermost frame."""
    from torch._guards import SLoc
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    original = getattr(ShapeEnv, "_get_sloc", None)
    if original is None:  # another torch: guards are still read, without their lines
        yield
        return

    def with_line(self: Any, framework_loc: str | None = None) -> Any:
        location = original(self, framework_loc)
        # torch's own user line would be our caller's if the module has none
        return SLoc(location.framework_loc, _user_line())

    setattr(ShapeEnv, "_get_sloc", with_line)  # noqa: B010 - a method, for the length of one capture
    try:
        yield
    finally:
        setattr(ShapeEnv, "_get_sloc", original)  # noqa: B010


def _user_line() -> str | None:
    """The innermost line of the user's code; None if there is only ours above torch's."""
    frame: Any = sys._getframe(2)
    while frame is not None and not frame.f_code.co_filename.startswith(_HERE):
        if is_user_code(frame.f_code.co_filename):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return None


def is_user_code(file: str) -> bool:
    """True for code that is neither torch's, nor Python's, nor ours; a model library counts as the user's code."""
    if not file.startswith(_NOT_THE_USERS):
        return True
    return "site-packages" in file and not file.startswith((torch.__path__[0], _HERE))


def read_source(location: str | None) -> Source | None:
    """`model.py:40` with the text of that line."""
    import linecache

    if not location:
        return None
    file, _, line = location.rpartition(":")
    file = file.split('File "')[-1].rstrip('"')
    if not line.isdigit():
        return None
    return Source(file=file, line=int(line), text=linecache.getline(file, int(line)).strip())


def _read(
    program: Any,
    example: Example,
    sizes: Sizes,
) -> Capture:
    inputs = _user_inputs(program)
    names = list(example.tensors)
    fake_modes = [value.fake_mode for value in inputs if value.fake_mode is not None]
    environment = fake_modes[0].shape_env if fake_modes else None
    if environment is None:
        return Capture(
            program=program,
            symbols={},
            final={},
            assumptions=(),
            ranges={},
            sizes=sizes,
        )
    symbols = dict(locate_symbols(environment, names))
    final = {place: environment.replace(symbol) for symbol, place in symbols.items()}
    assumptions = [
        Assumption(expression=guard.expr, source=guard_source(guard.sloc))
        for guard in environment.guards
    ]
    ranges = {symbol: _limits(limits) for symbol, limits in program.range_constraints.items()}
    hints = {symbol: sizes.get(place, example.size(place)) for symbol, place in symbols.items()}
    return Capture(
        program=program,
        symbols=symbols,
        final=final,
        assumptions=tuple(assumptions),
        ranges=ranges,
        sizes=sizes,
        hints=hints,
    )


def tie_bounded_sizes(capture: Capture) -> Capture:
    """Where an assumption bounds a size by a sum of others, and the example is exactly at the bound, put the bound into the file's dims.

    A model that pads a short mask accepts any length up to the bound; the traced graph accepts the bound alone.
    """
    tied: dict[Any, Any] = {}
    final = {symbol: capture.final[place] for symbol, place in capture.symbols.items()}
    for assumption in capture.assumptions:
        expression = assumption.expression.xreplace(final).xreplace(tied)
        if getattr(expression, "rel_op", "") not in ("<=", ">="):
            continue
        gap = expression.lhs - expression.rhs
        symbol = _bounded_symbol(gap)
        if symbol is not None and gap.subs(dict(capture.hints)) == 0:
            coefficient = gap.as_coefficients_dict()[symbol]
            tied[symbol] = -(gap - coefficient * symbol) / coefficient
    tied_final = {place: value.xreplace(tied) for place, value in capture.final.items()}
    return replace(capture, final=tied_final, tied=tied)


def _bounded_symbol(gap: Any) -> Any:
    """The only symbol on its side of a relation with two or more on the other; None if there is no such symbol."""
    terms = gap.as_coefficients_dict()
    if len(terms) < 3 or not all(term.is_Symbol for term in terms):
        return None
    alone = []
    for symbol, coefficient in terms.items():
        same_sign = [other for other in terms.values() if other * coefficient > 0]
        if abs(coefficient) == 1 and len(same_sign) == 1:
            alone.append(symbol)
    if len(alone) != 1:
        return None
    return alone[0]


def _user_inputs(program: Any) -> list[Any]:
    specs = program.graph_signature.input_specs
    names = {spec.arg.name for spec in specs if spec.kind.name == "USER_INPUT"}
    values = [
        node.meta["val"]
        for node in program.graph.nodes
        if node.op == "placeholder" and node.name in names
    ]
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    return [tensor for tensor in tensors if hasattr(tensor, "fake_mode")]


def locate_symbols(environment: Any, names: Sequence[str]) -> Iterator[tuple[Any, Place]]:
    """The dim of each symbol.

    1. The symbol's source names an input by its path, such as `L['x'][0]`.
    2. A path that is no input of ours (strict mode, other containers) is matched by order with the last inputs that are left.
    """
    matches = list(_match_sources(environment))
    paths: dict[str, str] = {}
    for _, match in matches:  # step 1
        parts = re.findall(r"\w+", match["path"])
        paths[match["name"] + match["path"]] = ".".join([match["name"], *parts])
    unmatched = [name for name in names if name not in paths.values()]
    unknown = [key for key, path in paths.items() if path not in names]
    if len(unknown) < len(unmatched):
        unmatched = unmatched[-len(unknown) :]
    paths |= dict(zip(unknown, unmatched, strict=False))  # step 2
    for symbol, match in matches:
        yield symbol, (paths[match["name"] + match["path"]], int(match["axis"]))


def _match_sources(environment: Any) -> Iterator[tuple[Any, re.Match[str]]]:
    for symbol, sources in environment.var_to_sources.items():
        for source in sources:
            name = source.name
            if not isinstance(name, str):
                name = name()
            match = _SOURCE.match(name)
            if match is not None:
                yield symbol, match


def guard_source(location: Any) -> Source | None:
    """The user's line behind a guard."""
    user_location = getattr(location, "maybe_user_loc", None)
    if user_location:
        return read_source(user_location)
    frame: Any = getattr(location, "framework_loc", None)
    file = getattr(frame, "filename", "")
    if not file or not is_user_code(file):
        return None
    return read_source(f"{file}:{frame.lineno}")


def _limits(value_range: Any) -> tuple[int, int | None]:
    """A value range of torch's as numbers; None for no upper end."""
    low = _as_int(value_range.lower)
    high = _as_int(value_range.upper)
    if high is not None and high >= _NO_LIMIT:
        high = None
    return max(low or 0, 0), high


def _as_int(end: Any) -> int | None:
    if getattr(end, "is_Integer", False):
        return int(end)
    return None
