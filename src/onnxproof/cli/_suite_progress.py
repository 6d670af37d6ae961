"""How far a suite is: one line for each running model on a terminal; elsewhere a line now and then, and one for each model that is not fine."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from onnxproof.report.plain import short
from onnxproof.system.text import visible

if TYPE_CHECKING:
    from onnxproof.suite.run import Progress

Report = Callable[["Progress"], None]
_LINE_EVERY_S = 60.0
"""Seconds between two lines in a log: that of a nightly run stays readable."""
_NAME = 50
"""Characters of a model's name."""
_MOST_LINES = 16
"""Running models that are shown."""


@contextmanager
def progress(*, quiet: bool) -> Iterator[Report | None]:
    """A function for `suite.run`."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        with _live() as report:
            yield report
    else:
        yield _Log()


class _Log:
    """For CI: few lines."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def __call__(self, state: "Progress") -> None:
        result = state.result
        if result is not None and result.verdict not in ("faithful", "drift"):
            first = result.summary.partition("\n")[0]
            _write(f"{result.name}: {result.verdict}: {first}")
        elif state.event.kind == "lost" and state.event.job is not None:
            first = state.event.note.partition("\n")[0]
            _write(f"{state.event.job.name}: will be started again: {first}")
        elif state.event.kind == "waiting" and state.event.job is not None:
            _write(f"{state.event.job.name}: {state.event.note}")
        if time.monotonic() - self._last >= _LINE_EVERY_S:
            self._last = time.monotonic()
            _write(headline(state))


def _write(text: str) -> None:
    sys.stderr.write(f"onnxproof: {visible(text)}\n")
    sys.stderr.flush()


def headline(state: "Progress") -> str:
    """How many are done and left, and for how long."""
    words = f"{state.done} of {state.total} models done, {state.total - state.done} left"
    if state.seconds_left is not None:
        words += f", about {_duration(state.seconds_left)}"
    return words


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


@contextmanager
def _live() -> Iterator[Report]:
    from rich.console import Console
    from rich.live import Live

    began: dict[str, float] = {}
    with Live(console=Console(stderr=True), transient=True, auto_refresh=False) as live:

        def draw(state: "Progress") -> None:
            for job in state.running:
                began.setdefault(job.name, time.monotonic())
            live.update(_picture(state, began), refresh=True)

        yield draw


def _picture(state: "Progress", began: dict[str, float]) -> Any:
    from rich.text import Text

    lines = [headline(state)]
    for job in state.running[:_MOST_LINES]:
        seconds = time.monotonic() - began[job.name]
        lines.append(f"  {short(job.name, _NAME):<{_NAME}} {seconds:6.0f} s")
    if len(state.running) > _MOST_LINES:
        lines.append(f"  and {len(state.running) - _MOST_LINES} more")
    return Text("\n".join(lines))
