"""How far a run is, for people: in words, now and then, and as a bar in a notebook."""

import functools
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from onnxproof.report.plain import short

if TYPE_CHECKING:
    from onnxproof.verification.progress import Progress

Report = Callable[["Progress"], None]
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
_CASE = 40
"""Characters of the running case's name."""
_EVERY = 0.25
"""Seconds between two pictures of the bar: drawing must cost nothing beside the forward passes."""


def words(state: "Progress") -> str:
    """What is done, what is running, and the time left."""
    if state.step != "cases":
        return f"{state.done} cases done, now {state.step}"
    left = max(state.budget - state.elapsed, 0.0)
    return f"{state.done} cases, at most {left:.0f} s left, now {short(state.case, _CASE)}"


def throttle(report: Report, every: float, *, at_once: bool) -> Report:
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


def in_notebooks(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """A function with a `progress` argument, which shows a bar where it is left out and a notebook calls it."""

    @functools.wraps(function)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        display = notebook_display()
        if display is None or kwargs.get("progress") is not None:
            return function(*args, **kwargs)
        with _bar(display) as report:
            kwargs["progress"] = report
            return function(*args, **kwargs)

    return call


def notebook_display() -> Callable[..., Any] | None:
    """The function that shows an object in the running notebook's cell; None where there is no notebook."""
    ipython = sys.modules.get("IPython")
    if ipython is None:
        return None
    if getattr(ipython.get_ipython(), "kernel", None) is None:  # a terminal, or no shell at all
        return None
    from importlib import import_module

    shows: Callable[..., Any] = import_module("IPython.display").display
    return shows


class Bar:
    """One picture of the bar, as a notebook shows it."""

    def __init__(self, text: str = "", share: float = 0.0) -> None:
        self._text = text
        self._share = share

    def _repr_html_(self) -> str:
        if not self._text:
            return ""
        return f'<progress value="{self._share:.3f}" max="1"></progress> {escape(self._text)}'

    def __repr__(self) -> str:
        return self._text


@contextmanager
def _bar(display: Callable[..., Any]) -> Iterator[Report]:
    """A bar in the cell, which goes away when the run is done: the proof takes its place."""
    handle = display(Bar("starting"), display_id=True)

    def draw(state: "Progress") -> None:
        share = min(state.elapsed / max(state.budget, 1e-9), 1.0)
        handle.update(Bar(words(state), share))

    try:
        yield throttle(draw, _EVERY, at_once=True)
    finally:
        handle.update(Bar())
