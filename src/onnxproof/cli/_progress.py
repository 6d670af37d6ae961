"""How far a run is: a bar on a terminal, a plain line now and then elsewhere; both on standard error."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from onnxproof.report.progress import Report, throttle, words

if TYPE_CHECKING:
    from onnxproof.verification.progress import Progress

__all__ = ["Report", "progress", "words"]
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
        yield throttle(_line, _LINE_EVERY, at_once=False)


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

        yield throttle(draw, _BAR_EVERY, at_once=True)
