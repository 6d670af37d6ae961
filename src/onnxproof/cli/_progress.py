"""How far a run is: a bar on a terminal, a plain line now and then elsewhere; both on standard error."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnxproof.prove import Progress

Report = Callable[["Progress"], None]
_BAR_EVERY = 0.25
_LINE_EVERY = 10.0
"""Seconds: drawing must cost nothing beside the forward passes."""


@contextmanager
def progress(*, quiet: bool) -> Iterator[Report | None]:
    """A function for `verify(progress=...)`."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        with _bar() as report:
            yield report
    else:
        yield _seldom(_line, _LINE_EVERY, at_once=False)


def _line(state: "Progress") -> None:
    sys.stderr.write(f"onnxproof: {state.done} {state.step}, {state.elapsed:.0f} s of at most {state.budget:.0f} s\n")
    sys.stderr.flush()


@contextmanager
def _bar() -> Iterator[Report]:
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.fields[done]} {task.fields[step]}"), BarColumn(bar_width=24),
               TextColumn("{task.completed:.0f} of at most {task.total:.0f} s · {task.fields[case]}"))
    with Bar(*columns, console=Console(stderr=True), auto_refresh=False, transient=True) as bar:
        task = bar.add_task("", total=1.0, done=0, case="", step="cases")

        def draw(state: "Progress") -> None:
            seconds = min(state.elapsed, state.budget)
            bar.update(task, completed=seconds, total=state.budget, done=state.done, case=escape(state.case), step=state.step)
            bar.refresh()

        yield _seldom(draw, _BAR_EVERY, at_once=True)


def _seldom(report: Report, every: float, *, at_once: bool) -> Report:
    last = time.monotonic() - (every if at_once else 0.0)

    def perhaps(state: "Progress") -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= every:
            last = now
            report(state)

    return perhaps
