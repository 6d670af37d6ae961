"""What the module computes: the result of every aten operation in float64, with its line of Python and its module."""

import traceback
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from onnxproof.numerics.sketch import KeptArrays, Sketch, sketch
from onnxproof.reference import striped_convolution
from onnxproof.reference.dispatch import Mode, named_arguments
from onnxproof.reference.float64 import TruthSession
from onnxproof.reference.operations import (
    decomposition,
    is_plain,
    is_view,
    op_name,
    tensors_in,
    user_line,
)
from onnxproof.reference.rounding import Promote
from onnxproof.reference.torch_session import TorchSession, from_numpy, to_numpy
from onnxproof.reference.traced_value import Fetch, TracedValue, caching_fetch
from onnxproof.results import Source
from onnxproof.system.allocator import release_free_memory

Array = np.ndarray[Any, Any]
_BLANK = sketch(np.zeros(0))
_LARGE = 64 << 20
"""Bytes of an argument beyond which an operation is not decomposed: its steps would need several times the memory of the model. Not measured."""


class _Complete(BaseException):
    """Every value that was asked for is there: the rest of the forward pass need not be run."""


@dataclass(frozen=True, slots=True)
class _Write:
    """The last operation that wrote into a storage."""

    place: int
    """The number of traced values before it."""
    op: str
    source: Source | None
    call: int


class Recorder(Mode):
    """Sketches the result of every operation and of the steps that it can be decomposed into."""

    def __init__(self, names: Mapping[int, str], wanted: Collection[int] = ()) -> None:
        super().__init__()
        self.traced: list[TracedValue] = []
        self.kept: dict[int, Array] = {}
        self._wanted = frozenset(wanted)
        self._writes: dict[int, _Write] = {}
        self._names = names
        self._module_stack = [""]
        self._depth = 0
        self._calls = -1
        self._kept_arrays = KeptArrays()

    def begin(self, inputs: Mapping[str, Array]) -> dict[str, torch.Tensor]:
        """The inputs in float64, each with its traced value."""
        tensors = _as_float64(inputs)
        for name, tensor in tensors.items():
            value = TracedValue(
                place=len(self.traced),
                op=f"input {name}",
                sketch=self._sketch(tensor),
                dtype=str(inputs[name].dtype),
                inputs=(),
                module="",
                source=None,
            )
            self.traced.append(value)
            _set_place(tensor, value.place)
        return tensors

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Any = (),
        kwargs: Any = None,
    ) -> Any:
        """Run an operation and record its result, after the results of its steps.

        1. Run its steps under this mode, so that they are recorded.
        2. Note what it reads, then run it.
        3. Record its results; a view of a weight is no step of the computation.
        4. Let the steps refer to the whole operation.
        """
        kwargs = kwargs or {}
        begin = len(self.traced)
        if self._depth == 0:
            self._calls += 1
            self._run_steps(func, args, kwargs)  # step 1
        end = len(self.traced)
        inputs = self._places((args, kwargs))  # step 2
        result = striped_convolution.run(func, args, kwargs)
        if func._schema.is_mutable:
            self._note_write(func, args)
        if inputs or not is_view(func):  # step 3
            for tensor in tensors_in(result):
                self._record(func, tensor, inputs, named_arguments(func, args, kwargs))
        for step in self.traced[begin:end]:  # step 4
            if step.outer is None:
                step.outer = end
        return result

    def _run_steps(
        self,
        func: Any,
        args: Any,
        kwargs: Any,
    ) -> None:
        """Run the decomposition of an operation, unless it has none or its tensors are large."""
        steps = decomposition(func)
        if steps is None or any(t.nbytes > _LARGE for t in tensors_in((args, kwargs))):
            return
        self._depth += 1
        try:
            with self, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                steps(*args, **kwargs)
        except Exception:  # noqa: S110 - a decomposition that does not fit only leaves fewer inner values to match
            pass
        finally:
            self._depth -= 1

    def _places(self, arguments: Any) -> tuple[int, ...]:
        """The traced values among the arguments of a call."""
        places = [self._place(tensor) for tensor in tensors_in(arguments)]
        return tuple(place for place in places if place is not None)

    def _note_write(self, func: Any, args: Any) -> None:
        """Remember that a storage was written to: whoever reads it through another view reads something new."""
        if args and isinstance(args[0], torch.Tensor):
            self._writes[args[0].untyped_storage().data_ptr()] = _Write(
                len(self.traced), op_name(func), user_line(), self._calls
            )

    def _place(self, tensor: torch.Tensor) -> int | None:
        """The place of a tensor among the traced values; a new one where it was written to since."""
        known: int | None = getattr(tensor, "_onnxproof_place", None)
        if known is None or not self._writes:
            return known
        write = self._writes.get(tensor.untyped_storage().data_ptr())
        if write is None or known >= write.place:
            return known
        value = TracedValue(
            place=len(self.traced),
            op=write.op,
            sketch=self._sketch(tensor),
            dtype=str(tensor.dtype).removeprefix("torch."),
            inputs=(known,),
            module=self._module_stack[-1],
            source=write.source,
            call=write.call,
        )
        self._append(value, tensor)
        return value.place

    def _sketch(self, tensor: torch.Tensor) -> Sketch:
        """A sketch; in a pass for some values only, none is needed."""
        if self._wanted:
            return _BLANK
        return sketch(to_numpy(tensor), self._kept_arrays)

    def _append(self, value: TracedValue, tensor: torch.Tensor) -> None:
        """Add a traced value, and keep its tensor if it was asked for."""
        self.traced.append(value)
        if value.place in self._wanted:
            self._keep(value.place, tensor)
        _set_place(tensor, value.place)

    def _keep(self, place: int, tensor: torch.Tensor) -> None:
        """Keep a value that was asked for, and end the pass after the last one."""
        array = to_numpy(tensor)
        if len(self.kept) + 1 < len(self._wanted):
            self.kept[place] = np.array(array)
            return
        self.kept[place] = array  # nobody writes into the last one any more
        raise _Complete

    def _record(
        self,
        func: Any,
        tensor: torch.Tensor,
        inputs: tuple[int, ...],
        arguments: dict[str, Any],
    ) -> None:
        """Add the result of an operation; one that can not be sketched is left out."""
        try:
            sketched = self._sketch(tensor)
        except (RuntimeError, TypeError):
            return
        value = TracedValue(
            place=len(self.traced),
            op=op_name(func),
            sketch=sketched,
            dtype=str(tensor.dtype).removeprefix("torch."),
            inputs=inputs,
            module=self._module_stack[-1],
            source=user_line(),
            arguments={name: v for name, v in arguments.items() if is_plain(v)},
            call=self._calls,
        )
        self._append(value, tensor)

    @contextmanager
    def modules(self) -> Iterator[None]:
        """Follow which module is running."""

        def enter(module: Any, _: Any) -> None:
            stack = self._module_stack
            stack.append(self._names.get(id(module), stack[-1]))

        def leave(
            module: Any,
            _: Any,
            __: Any,
        ) -> None:
            self._module_stack.pop()

        hooks = [
            torch.nn.modules.module.register_module_forward_pre_hook(enter),
            torch.nn.modules.module.register_module_forward_hook(leave, always_call=True),
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()


def trace_with_fetch(
    truth: TruthSession, inputs: Mapping[str, Array]
) -> tuple[list[TracedValue], Fetch]:
    """The module's values on these inputs, and a way to compute one of them again."""
    traced = trace(truth, inputs)
    return traced, caching_fetch(traced, lambda place: values(truth, inputs, {place}).get(place))


def trace(truth: TruthSession, inputs: Mapping[str, Array]) -> list[TracedValue]:
    """All values of one forward pass in float64, the inputs first."""
    return _record_pass(truth, inputs, ()).traced


def values(
    truth: TruthSession,
    inputs: Mapping[str, Array],
    places: Collection[int],
) -> dict[int, Array]:
    """The values at these places, by running again: a forward pass is deterministic, and only sketches were kept."""
    return _record_pass(truth, inputs, places).kept


def run_under(
    session: TorchSession,
    inputs: Mapping[str, Array],
    mode: Mode,
) -> list[Array]:
    """One forward pass in float64 whose every call goes through `mode`; attention by its plain formula, as the standard has it."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    tensors = _as_float64(inputs)
    with sdpa_kernel(SDPBackend.MATH), session.restore_by_content(), Promote(), mode:
        outputs = session.call(tensors)
    return [to_numpy(tensor) for _, tensor in outputs]


@contextmanager
def _in_float64(truth: TruthSession) -> Iterator[None]:
    """Every operation in float64; where the module is known to ask for no narrower type, promoting each call would only cost time."""
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


def _as_float64(inputs: Mapping[str, Array]) -> dict[str, torch.Tensor]:
    """The inputs as tensors, floats in float64."""
    tensors: dict[str, torch.Tensor] = {}
    for name, array in inputs.items():
        tensor = from_numpy(array)
        if tensor.is_floating_point():
            tensor = tensor.double()
        tensors[name] = tensor
    return tensors


def _record_pass(
    truth: TruthSession,
    inputs: Mapping[str, Array],
    wanted: Collection[int],
) -> Recorder:
    """One forward pass under a recorder, which ends it as soon as it has all the values that are wanted."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    session = truth.session
    names: dict[int, str] = {}
    if hasattr(session.module, "named_modules"):
        names = {id(module): name for name, module in session.module.named_modules()}
    recorder = Recorder(names, wanted)
    tensors = recorder.begin(inputs)
    try:
        with sdpa_kernel(SDPBackend.MATH), recorder.modules(), _in_float64(truth), recorder:
            session.call(tensors)
    except _Complete as complete:
        traceback.clear_frames(complete.__traceback__)  # they hold the tensors on the way
    finally:
        tensors.clear()
        release_free_memory()
    return recorder


def _set_place(tensor: torch.Tensor, place: int) -> None:
    """Let a tensor know its place among the traced values."""
    tensor._onnxproof_place = place  # type: ignore[attr-defined]


__all__ = ["Recorder", "run_under", "trace", "trace_with_fetch", "values"]
