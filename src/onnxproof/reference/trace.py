"""What really happens in the module: every aten operation in float64, with its line of Python and its module."""

import functools
import sys
import traceback
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from onnxproof.numerics.sketch import Shelf, Sketch, sketch
from onnxproof.reference import striped_convolution
from onnxproof.reference.dispatch import Mode, named_arguments
from onnxproof.reference.elementary_steps import STEPS, WHOLE
from onnxproof.reference.float64 import TruthSession
from onnxproof.reference.rounding import Promote
from onnxproof.reference.torch_session import TorchSession, from_numpy, to_numpy
from onnxproof.reference.traced_value import Entry, Fetch, remembering
from onnxproof.results import Source
from onnxproof.system.allocator import release_free_memory

Array = np.ndarray[Any, Any]
_BLANK = sketch(np.zeros(0))
_LARGE = 64 << 20
"""Operations on more bytes are not taken apart: their steps would need several times the memory of the model."""


class _Enough(BaseException):
    """Every value that was asked for is there: the rest of the forward pass need not be run."""


class Recorder(Mode):
    """Sketches the result of every operation and of the steps it can be taken apart into."""

    def __init__(self, names: Mapping[int, str], wanted: Collection[int] = ()) -> None:
        super().__init__()
        self.entries: list[Entry] = []
        self.kept: dict[int, Array] = {}
        self._wanted = frozenset(wanted)
        self._sketching = not wanted
        self._written: dict[int, tuple[int, str, Source | None, int]] = {}
        self._names, self._stack = names, [""]
        self._depth = 0
        self._calls = -1
        self._shelf = Shelf()

    def begin(self, inputs: Mapping[str, Array]) -> dict[str, torch.Tensor]:
        """The inputs in float64, each with its entry."""
        tensors = _widened(inputs)
        for name, tensor in tensors.items():
            self.entries.append(
                Entry(
                    place=len(self.entries),
                    op=f"input {name}",
                    sketch=self._sketch(tensor),
                    dtype=str(inputs[name].dtype),
                    inputs=(),
                    module="",
                    source=None,
                )
            )
            tensor._onnxproof_entry = len(self.entries) - 1  # type: ignore[attr-defined]
        return tensors

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run, record, and record the steps inside."""
        kwargs = kwargs or {}
        begin = len(self.entries)
        self._calls += self._depth == 0
        if (
            self._depth == 0
            and (parts := _parts(func)) is not None
            and all(t.nbytes <= _LARGE for t in _tensors((args, kwargs)))
        ):
            self._take_apart(parts, args, kwargs)
        end = len(self.entries)
        inputs = tuple(e for a in _tensors((args, kwargs)) if (e := self._entry(a)) is not None)
        result = striped_convolution.run(func, args, kwargs)
        if func._schema.is_mutable:
            self._note_write(func, args)
        for tensor in (
            _tensors(result) if inputs or not _is_view(func) else ()
        ):  # a view of a weight is no step of the computation
            self._record(func, tensor, inputs, named_arguments(func, args, kwargs))
        for entry in self.entries[begin:end]:
            entry.outer = entry.outer if entry.outer is not None else end
        return result

    def _note_write(self, func: Any, args: Any) -> None:
        """Remember that a storage was written to: whoever reads it through another view reads something new."""
        if args and isinstance(args[0], torch.Tensor):
            self._written[args[0].untyped_storage().data_ptr()] = (
                len(self.entries),
                func._schema.name.split("::")[-1],
                _user_line(),
                self._calls,
            )

    def _entry(self, tensor: torch.Tensor) -> int | None:
        """The entry of a tensor; a new one where it was written to since."""
        known: int | None = getattr(tensor, "_onnxproof_entry", None)
        write = (
            self._written.get(tensor.untyped_storage().data_ptr())
            if known is not None and self._written
            else None
        )
        if write is None or known is None or known >= write[0]:
            return known
        self.entries.append(
            Entry(
                place=len(self.entries),
                op=write[1],
                sketch=self._sketch(tensor),
                dtype=str(tensor.dtype).removeprefix("torch."),
                inputs=(known,),
                module=self._stack[-1],
                source=write[2],
                call=write[3],
            )
        )
        self._keep(tensor)
        tensor._onnxproof_entry = len(self.entries) - 1  # type: ignore[attr-defined]
        return len(self.entries) - 1

    def _sketch(self, tensor: torch.Tensor) -> Sketch:
        return sketch(to_numpy(tensor), self._shelf) if self._sketching else _BLANK

    def _keep(self, tensor: torch.Tensor) -> None:
        """Keep the value of the entry just made, if it was asked for."""
        if len(self.entries) - 1 in self._wanted:
            last = len(self.kept) + 1 == len(self._wanted)
            self.kept[len(self.entries) - 1] = (
                to_numpy(tensor) if last else np.array(to_numpy(tensor))
            )  # nobody writes into the last one any more
            if last:
                raise _Enough

    def _take_apart(self, parts: Any, args: Any, kwargs: Any) -> None:
        self._depth += 1
        try:
            with self, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                parts(*args, **kwargs)
        except Exception:  # noqa: S110 - a decomposition that does not fit only leaves fewer inner values to match
            pass
        finally:
            self._depth -= 1

    def _record(
        self, func: Any, tensor: torch.Tensor, inputs: tuple[int, ...], arguments: dict[str, Any]
    ) -> None:
        plain = {
            n: v
            for n, v in arguments.items()
            if isinstance(v, bool | int | float | str | list | tuple | type(None))
            and not list(_tensors(v))
        }
        try:
            made = self._sketch(tensor)
        except (RuntimeError, TypeError):
            return
        self.entries.append(
            Entry(
                place=len(self.entries),
                op=func._schema.name.split("::")[-1],
                sketch=made,
                dtype=str(tensor.dtype).removeprefix("torch."),
                inputs=inputs,
                module=self._stack[-1],
                source=_user_line(),
                arguments=plain,
                call=self._calls,
            )
        )
        self._keep(tensor)
        tensor._onnxproof_entry = len(self.entries) - 1  # type: ignore[attr-defined]

    @contextmanager
    def modules(self) -> Iterator[None]:
        """Follow which module is running."""

        def enter(module: Any, _: Any) -> None:
            self._stack.append(self._names.get(id(module), self._stack[-1]))

        def leave(module: Any, _: Any, __: Any) -> None:
            self._stack.pop()

        hooks = [
            torch.nn.modules.module.register_module_forward_pre_hook(enter),
            torch.nn.modules.module.register_module_forward_hook(leave, always_call=True),
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()


def followed(truth: TruthSession, inputs: Mapping[str, Array]) -> tuple[list[Entry], Fetch]:
    """The module's values on these inputs, and a way to have one of them again."""
    entries = trace(truth, inputs)
    return entries, remembering(entries, lambda place: values(truth, inputs, {place}).get(place))


def trace(truth: TruthSession, inputs: Mapping[str, Array]) -> list[Entry]:
    """All entries of one forward pass in float64, the inputs' own first."""
    return _traced(truth, inputs, ()).entries


def values(
    truth: TruthSession, inputs: Mapping[str, Array], places: Collection[int]
) -> dict[int, Array]:
    """The values of these entries, had by running again: a forward pass is deterministic, and sketches are all that is kept."""
    return _traced(truth, inputs, places).kept


def run_under(session: TorchSession, inputs: Mapping[str, Array], mode: Mode) -> list[Array]:
    """One forward pass in float64 whose every call goes through `mode`; attention by its plain formula, as the standard has it."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    tensors = _widened(inputs)
    with sdpa_kernel(SDPBackend.MATH), session.restore_by_content(), Promote(), mode:
        outputs = session.call(tensors)
    return [to_numpy(tensor) for _, tensor in outputs]


@contextmanager
def _widening(truth: TruthSession) -> Iterator[None]:
    """Every operation in float64; where the module is known to ask for no narrower type, watching it would only cost."""
    if not truth.plain:
        with Promote():
            yield
        return
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _widened(inputs: Mapping[str, Array]) -> dict[str, torch.Tensor]:
    tensors = {name: from_numpy(array) for name, array in inputs.items()}
    return {n: t.double() if t.is_floating_point() else t for n, t in tensors.items()}


def _traced(truth: TruthSession, inputs: Mapping[str, Array], wanted: Collection[int]) -> Recorder:
    session = truth.session
    recorder = Recorder(
        {id(m): name for name, m in session.module.named_modules()}
        if hasattr(session.module, "named_modules")
        else {},
        wanted,
    )
    tensors = recorder.begin(inputs)
    from torch.nn.attention import SDPBackend, sdpa_kernel

    try:
        with sdpa_kernel(SDPBackend.MATH), recorder.modules(), _widening(truth), recorder:
            session.call(tensors)
    except _Enough as enough:
        traceback.clear_frames(enough.__traceback__)  # they hold the tensors on the way
    finally:
        tensors.clear()
        release_free_memory()
    return recorder


@functools.cache
def _parts(func: Any) -> Any:
    """The function that does in several steps what `func` does in one; None where there is none, or where nothing new is computed."""
    return (
        None
        if func._schema.is_mutable or func.overloadpacket in WHOLE or _is_view(func)
        else STEPS.get(func) or _decompositions().get(func)
    )


@functools.cache
def _is_view(func: Any) -> bool:
    """True for an operation that only looks at its input's memory in another way."""
    return not func._schema.is_mutable and any(
        result.alias_info is not None for result in func._schema.returns
    )


@functools.cache
def _decompositions() -> dict[Any, Any]:
    from torch._decomp import core_aten_decompositions

    return dict(core_aten_decompositions())


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)


def _user_line() -> Source | None:
    """The innermost line that is neither torch's nor ours; None where the module has no line of its own, such as a bare Sequential."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        if file.endswith(
            "onnxproof/reference/torch_session.py"
        ):  # we called the module here: whoever called us is not its author
            return None
        if (
            "/torch/" not in file
            and "/onnxproof/" not in file
            and not file.startswith("<")
            and "/contextlib" not in file
        ):
            import linecache

            return Source(
                file=file, line=frame.f_lineno, text=linecache.getline(file, frame.f_lineno).strip()
            )
        frame = frame.f_back
    return None


__all__ = ["Entry", "Recorder", "followed", "run_under", "trace", "values"]
