"""Module to exported program, every dim left open unless it was asked to be fixed, with what torch assumed on the way."""

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
_HERE = __file__.rpartition("/exporter/")[0]
_NOT_THE_USERS = (torch.__path__[0], sysconfig.get_path("stdlib"), _HERE, "<")


class TorchFailed(Exception):
    """torch could not capture or translate the module; the reason is the cause. What we do wrong ourselves is not this."""

    def __init__(self, why: BaseException, program: Any = None) -> None:
        super().__init__(str(why))
        self.program = program
        """What was captured, where translating failed."""


@contextmanager
def of_torch(program: Any = None) -> Iterator[None]:
    """Whatever is raised inside is torch's failure."""
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
class Captured:
    """An exported program, the dims behind its symbols, and what was assumed."""

    program: Any
    symbols: Mapping[Any, Place]
    """Each symbol as it was made, by the dim it was made for."""
    final: Mapping[Place, Any]
    """What each open dim turned out to be: a symbol, an expression of symbols, or a number."""
    assumptions: tuple[Assumption, ...]
    ranges: Mapping[Any, tuple[int, int | None]]
    sizes: Sizes
    """Where the example was enlarged to be captured."""
    hints: Mapping[Any, int] = field(default_factory=dict)
    tied: Mapping[Any, Any] = field(default_factory=dict)
    """Symbols that were only bounded by others, and are taken to be at that bound: a mask as long as past and new tokens together."""
    closed: str = ""
    """Why `int(size)` was let fix a size that it could have kept open."""


def capture(
    module: Any,
    example: Example,
    *,
    open_dims: Mapping[Place, tuple[int | None, int | None]],
    sizes: Sizes,
    strict: bool = False,
) -> Captured:
    """Trace the module with those dims open; torch narrows or fixes what the module can't keep open, and says why."""
    args, kwargs = example.arguments(sizes)
    shapes = _shapes(module, args, kwargs, example, open_dims)
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(_user_lines())
        stack.enter_context(torch.fx.experimental._config.patch(backed_size_oblivious=True))  # type: ignore[attr-defined]
        for patch in _rnn_patches():
            stack.enter_context(patch)
        stack.enter_context(of_torch())
        program = torch.export.export(module, args, kwargs, dynamic_shapes=shapes, strict=strict)
    return tighten(_read(program, example, sizes))


def _shapes(
    module: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    example: Example,
    open_dims: Mapping[Place, tuple[int | None, int | None]],
) -> Any:
    collection = torch.export.ShapesCollection()
    tensors = dict(zip(example.tensors, _tensors(args, kwargs, example), strict=True))
    for name, tensor in tensors.items():
        axes = {
            axis: _hint(open_dims[name, axis])
            for axis in range(tensor.dim())
            if (name, axis) in open_dims
        }
        if axes:
            collection[tensor] = {
                axis: axes.get(axis, torch.export.Dim.STATIC) for axis in range(tensor.dim())
            }
    return collection.dynamic_shapes(module, args, kwargs)


def _tensors(args: tuple[Any, ...], kwargs: dict[str, Any], example: Example) -> list[torch.Tensor]:
    """The tensors of these arguments in the order of the example's leaves."""
    from onnxproof.reference import tree
    from onnxproof.reference.torch_session import bind

    named = bind(example.session.module, args, kwargs)
    return [leaf for _, leaf in tree.flatten(named) if isinstance(leaf, torch.Tensor)]


def _hint(limits: tuple[int | None, int | None]) -> Any:
    """AUTO, within limits where the user gave some; torch wants at least 2 above a lower limit of 0 or 1."""
    low, high = limits
    return (
        torch.export.Dim.AUTO
        if low is None and high is None
        else torch.export.Dim.AUTO(min=low or 0, max=high)
    )


def _rnn_patches() -> Iterator[Any]:
    """Loops in the place of unrolled steps for LSTM and GRU, as torch.onnx itself captures them (where this torch has that)."""
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
        found = original(self, framework_loc)
        return SLoc(
            found.framework_loc, _user_line()
        )  # torch's own would be whoever called us, where the module has no line

    setattr(ShapeEnv, "_get_sloc", with_line)  # noqa: B010 - a method, for the length of one capture
    try:
        yield
    finally:
        setattr(ShapeEnv, "_get_sloc", original)  # noqa: B010


def _user_line() -> str | None:
    """The innermost line of the module's author; None where there is only ours above torch's."""
    frame: Any = sys._getframe(2)
    while frame is not None and not frame.f_code.co_filename.startswith(_HERE):
        if is_users(frame.f_code.co_filename):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return None


def is_users(file: str) -> bool:
    """True for code that is neither torch's, nor Python's, nor ours: a model library's line is the user's too."""
    return not file.startswith(_NOT_THE_USERS) or (
        "site-packages" in file and not file.startswith((torch.__path__[0], _HERE))
    )


def source_of(place: str | None) -> Source | None:
    """`model.py:40` with the text of that line."""
    import linecache

    if not place:
        return None
    file, _, line = place.rpartition(":")
    file = file.split('File "')[-1].rstrip('"')
    if not line.isdigit():
        return None
    return Source(file=file, line=int(line), text=linecache.getline(file, int(line)).strip())


def _read(program: Any, example: Example, sizes: Sizes) -> Captured:
    inputs = _user_inputs(program)
    names = list(example.tensors)
    environment = next(
        (value.fake_mode.shape_env for value in inputs if value.fake_mode is not None), None
    )
    if environment is None:
        return Captured(
            program=program, symbols={}, final={}, assumptions=(), ranges={}, sizes=sizes
        )
    symbols = dict(places_of(environment, names))
    final = {place: environment.replace(symbol) for symbol, place in symbols.items()}
    assumptions = tuple(
        Assumption(expression=guard.expr, source=source_at(guard.sloc))
        for guard in environment.guards
    )
    ranges = {symbol: _limits(found) for symbol, found in program.range_constraints.items()}
    hints = {symbol: sizes.get(place, example.size(place)) for symbol, place in symbols.items()}
    return Captured(
        program=program,
        symbols=symbols,
        final=final,
        assumptions=assumptions,
        ranges=ranges,
        sizes=sizes,
        hints=hints,
    )


def tighten(captured: Captured) -> Captured:
    """Where an assumption bounds a size by a sum of others, and the example sits exactly at the bound, say so in the file's dims.

    A model that pads a short mask takes any length up to the bound; the traced graph takes the bound alone.
    """
    tied: dict[Any, Any] = {}
    for assumption in captured.assumptions:
        expression = assumption.expression.xreplace(
            {symbol: captured.final[place] for symbol, place in captured.symbols.items()}
        ).xreplace(tied)
        if getattr(expression, "rel_op", "") not in ("<=", ">="):
            continue
        gap = expression.lhs - expression.rhs
        terms = gap.as_coefficients_dict()
        alone = [
            symbol
            for symbol, sign in terms.items()
            if abs(sign) == 1 and sum(bool(other * sign > 0) for other in terms.values()) == 1
        ]
        if (
            len(terms) > 2
            and all(term.is_Symbol for term in terms)
            and len(alone) == 1
            and gap.subs(dict(captured.hints)) == 0
        ):
            tied[alone[0]] = -(gap - terms[alone[0]] * alone[0]) / terms[alone[0]]
    final = {place: value.xreplace(tied) for place, value in captured.final.items()}
    return replace(captured, final=final, tied=tied)


def _user_inputs(program: Any) -> list[Any]:
    wanted = {
        spec.arg.name
        for spec in program.graph_signature.input_specs
        if spec.kind.name == "USER_INPUT"
    }
    found = [
        node.meta["val"]
        for node in program.graph.nodes
        if node.op == "placeholder" and node.name in wanted
    ]
    return [
        value for value in found if isinstance(value, torch.Tensor) and hasattr(value, "fake_mode")
    ]


def places_of(environment: Any, names: Sequence[str]) -> Iterator[tuple[Any, Place]]:
    """Each symbol's dim, from the name of its source; where that is no name of ours (strict mode, other containers), by the order in which they come."""
    told = [
        (symbol, match)
        for symbol, sources in environment.var_to_sources.items()
        for source in sources
        if (match := _SOURCE.match(source.name if isinstance(source.name, str) else source.name()))
    ]
    paths = {
        match["name"] + match["path"]: ".".join([match["name"], *re.findall(r"\w+", match["path"])])
        for _, match in told
    }
    free = [name for name in names if name not in paths.values()]
    strangers = [key for key, path in paths.items() if path not in names]
    paths |= dict(
        zip(
            strangers, free[-len(strangers) :] if len(strangers) < len(free) else free, strict=False
        )
    )
    for symbol, match in told:
        yield symbol, (paths[match["name"] + match["path"]], int(match["axis"]))


def source_at(location: Any) -> Source | None:
    """The line of the user's behind a guard."""
    place = getattr(location, "maybe_user_loc", None)
    if place:
        return source_of(place)
    frame: Any = getattr(location, "framework_loc", None)
    file = getattr(frame, "filename", "")
    return source_of(f"{file}:{frame.lineno}") if file and is_users(file) else None


def _limits(found: Any) -> tuple[int, int | None]:
    """A value range of torch's as numbers; None for no upper end."""
    low, high = (
        int(end) if getattr(end, "is_Integer", False) else None
        for end in (found.lower, found.upper)
    )
    return max(low or 0, 0), high if high is not None and high < 1 << 40 else None
