"""How far a run is: a bar on a terminal, a plain line now and then elsewhere; both on standard error."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from onnxproof.report.plain import short

if TYPE_CHECKING:
    from onnxproof.verification.progress import Progress

Report = Callable[["Progress"], None]
_BAR_EVERY = 0.25
_LINE_EVERY = 10.0
"""Seconds: drawing must cost nothing beside the forward passes."""
_CASE = 40
"""Characters of the running case's name."""


@contextmanager
def progress(*, quiet: bool) -> Iterator[Report | None]:
    """A function for `verify(progress=...)`."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        with _bar() as report:
            yield report
    else:
        yield _throttle(_line, _LINE_EVERY, at_once=False)


def words(state: "Progress") -> str:
    """What is done, what is running, and the time left."""
    if state.step != "cases":
        return f"{state.done} cases done, now {state.step}"
    left = max(state.budget - state.elapsed, 0.0)
    return f"{state.done} cases, at most {left:.0f} s left, now {short(state.case, _CASE)}"


def _line(state: "Progress") -> None:
    sys.stderr.write(f"onnxproof: {words(state)}\n")
    sys.stderr.flush()


@contextmanager
def _bar() -> Iterator[Report]:
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar

    with Bar(
        BarColumn(bar_width=16),
        TextColumn("{task.fields[words]}"),
        console=Console(stderr=True),
        auto_refresh=False,
        transient=True,
    ) as bar:
        task = bar.add_task("", total=1.0, words="")

        def draw(state: "Progress") -> None:
            bar.update(
                task,
                completed=min(state.elapsed, state.budget),
                total=state.budget,
                words=escape(words(state)),
            )
            bar.refresh()

        yield _throttle(draw, _BAR_EVERY, at_once=True)


def _throttle(report: Report, every: float, *, at_once: bool) -> Report:
    """Now and then, and whenever another step begins."""
    last = time.monotonic()
    if at_once:
        last -= every
    step = "cases"

    def report_if_due(state: "Progress") -> None:
        nonlocal last, step
        now = time.monotonic()
        if now - last >= every or state.step != step:
            last, step = now, state.step
            report(state)

    return report_if_due
