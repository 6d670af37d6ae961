"""What exporting bought: latency and throughput of each backend per batch size, with PyTorch's own forward pass beside them.

All runtimes get the same inputs and the same number of threads, and take turns run by run, so that whatever else the
machine does falls on all of them alike. A runtime in a process of its own is timed there, without the way to it.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from onnxproof.errors import BackendError, BackendMissing, InputError, ModelError, OnnxproofError
from onnxproof.onnxmodel import onnx_file
from onnxproof.options import Serving
from onnxproof.reference import graph
from onnxproof.reference.subject import Subject
from onnxproof.runtimes import current, open_session, require, use_serving
from onnxproof.runtimes.session import observed_run

Array = np.ndarray[Any, Any]
Timer = Callable[[Mapping[str, Array]], float]
Report = Callable[[str], None]
PYTORCH = "pytorch"
_WARM = 2
"""Runs before those that count. Not measured."""
_LEAST = 5
"""Runs that count at least, however long they take. Not measured."""
_MOST = 2000
"""Runs that count at most. Not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """One backend at one batch size."""

    backend: str
    batch: int
    runs: int
    median_s: float
    p10_s: float
    p90_s: float
    ratio: float
    """How many times faster than the baseline at this batch size: PyTorch, or the first backend."""

    @property
    def per_second(self) -> float:
        """Rows a second."""
        return self.batch / self.median_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Everything that was timed, and what could not be."""

    model: str
    baseline: str
    threads: int | None
    timings: tuple[Timing, ...]
    failed: tuple[tuple[str, int, str], ...] = ()
    """Backend, batch (0: could not be opened) and why."""


def bench(
    path: Path,
    backends: Sequence[str],
    *,
    reference: Subject | None = None,
    batches: Sequence[int] = (),
    seconds: float = 2.0,
    serving: Serving | None = None,
    report: Report | None = None,
) -> Bench:
    """Time every backend for about `seconds` a batch size; one that fails is told of, and the others are timed."""
    for backend in backends:
        require(backend)
    serving = serving or current()
    rows = _Rows(path, reference)
    failed: list[tuple[str, int, str]] = []
    timings: list[Timing] = []
    with ExitStack() as opened, use_serving(serving):
        timers: dict[str, Timer] = {}
        if reference is not None:
            timers[PYTORCH] = _time_pytorch(reference, serving.threads, opened)
        for backend in backends:
            try:
                timers[backend] = _time_backend(backend, path, opened)
            except BackendMissing:
                raise
            except (BackendError, ModelError) as why:
                failed.append((backend, 0, why.what))
        baseline = next(iter(timers), "")
        for batch in rows.batches(batches):
            if report:
                report(f"batch {batch}")
            taken, refused = _take_turns(timers, rows.inputs(batch), seconds)
            failed += [(name, batch, why) for name, why in refused.items()]
            timings += _timings(taken, batch, baseline)
    return Bench(
        model=str(path),
        baseline=baseline,
        threads=serving.threads,
        timings=tuple(timings),
        failed=tuple(failed),
    )


def _take_turns(
    timers: Mapping[str, Timer],
    inputs: Mapping[str, Array],
    seconds: float,
) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Run by run in turn; what a runtime refuses is left out from then on."""
    taken: dict[str, list[float]] = {name: [] for name in timers}
    refused: dict[str, str] = {}
    until = time.perf_counter() + seconds * len(timers)
    for turn in range(_MOST + _WARM):
        if turn >= _LEAST + _WARM and time.perf_counter() > until:
            break
        for name, timer in timers.items():
            if name in refused:
                continue
            try:
                spent = timer(inputs)
            except OnnxproofError as why:
                refused[name] = why.what
                continue
            if turn >= _WARM:
                taken[name].append(spent)
    return {name: spent for name, spent in taken.items() if name not in refused and spent}, refused


def _timings(taken: Mapping[str, Sequence[float]], batch: int, baseline: str) -> Iterator[Timing]:
    base = statistics.median(taken[baseline]) if baseline in taken else 0.0
    for name, spent in taken.items():
        ordered = sorted(spent)
        median = statistics.median(spent)
        yield Timing(
            backend=name,
            batch=batch,
            runs=len(spent),
            median_s=median,
            p10_s=ordered[len(ordered) // 10],
            p90_s=ordered[-1 - len(ordered) // 10],
            ratio=base / median if base else 0.0,
        )


def _time_backend(backend: str, path: Path, opened: ExitStack) -> Timer:
    session = open_session(backend, path)
    opened.callback(session.close)

    def forward(inputs: Mapping[str, Array]) -> float:
        feeds = {name: inputs[name] for name in session.input_names}
        return observed_run.run(session, feeds).seconds

    return forward


def _time_pytorch(reference: Subject, threads: int | None, opened: ExitStack) -> Timer:
    """The module's forward pass, in eval mode and without gradients; its inputs are tensors already."""
    import torch

    from onnxproof.reference.torch_session import TorchSession, from_numpy

    session = TorchSession(reference.module, reference.args, reference.kwargs)
    if threads:
        opened.callback(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(threads)

    def forward(inputs: Mapping[str, Array]) -> float:
        in_order = list(inputs.values())
        tensors = {}
        for place, name in enumerate(session.input_names):
            by_position = in_order[min(place, len(in_order) - 1)]
            tensors[name] = from_numpy(inputs.get(name, by_position))
        args, kwargs = session.arguments(tensors)
        with session.undo_changes(), torch.no_grad():
            start = time.perf_counter()
            session.module(*args, **kwargs)
            return time.perf_counter() - start

    return forward


class _Rows:
    """Inputs at any batch size: the example's rows again and again."""

    def __init__(self, path: Path, reference: Subject | None) -> None:
        file = onnx_file.read(path)
        self._ports = file.inputs
        example = [] if reference is None else _example(reference)
        fits = len(example) == len(file.inputs) and all(
            port.dtype in ("unknown", array.dtype.name)
            for port, array in zip(file.inputs, example, strict=True)
        )
        if not fits:
            example = list(graph.generate_example(file).values())
        names = [port.name for port in file.inputs]
        self._example = dict(zip(names, example, strict=True))
        first_dims = [port.dims[0] for port in file.inputs if port.dims]
        self._batch = next((dim for dim in first_dims if isinstance(dim, str)), None)
        self._fixed = next((int(dim) for dim in first_dims if isinstance(dim, int)), 1)

    def batches(self, wanted: Sequence[int]) -> Sequence[int]:
        """The sizes that the file allows."""
        if self._batch is not None:
            return wanted or (1, 8, 32)
        if any(batch != self._fixed for batch in wanted):
            raise InputError(
                "fixed-batch",
                f"the file takes batches of {self._fixed} only",
                help="leave `--batch` out, or export it with a batch that may vary",
            )
        return (self._fixed,)

    def inputs(self, batch: int) -> dict[str, Array]:
        """The example with this many rows."""
        inputs = {}
        for port in self._ports:
            array = self._example[port.name]
            if port.dims and port.dims[0] == self._batch and array.ndim:
                array = np.ascontiguousarray(np.resize(array, (batch, *array.shape[1:])))
            inputs[port.name] = array
        return inputs


def _example(reference: Subject) -> list[Array]:
    from onnxproof.reference.torch_session import TorchSession, to_numpy

    session = TorchSession(reference.module, reference.args, reference.kwargs)
    return [np.array(to_numpy(tensor)) for tensor in session.example.values()]
