"""Python at the prompt and in notebooks: short, with names that stay text, and a bar that goes away."""

import inspect
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jupyter_client.manager import start_new_kernel
from support.made_proofs import HOSTILE, full, hostile, large

import onnxproof
from onnxproof.report import arguments, progress
from onnxproof.report.writers import notebook
from onnxproof.results.proof import Proof
from onnxproof.verification.progress import Progress

VERBS = ("diff", "explain", "export", "inspect", "mend", "quantize", "verify")
PROOFS = {"full": full(), "large": large(), "hostile": hostile()}


class Page(HTMLParser):
    """Every tag and attribute of a piece of HTML, and whether its tags are closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self._open: list[str] = []
        self.text = ""
        self.feed(text)
        assert not self._open, f"not closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]
        if tag != "br":
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("proof", PROOFS.values(), ids=PROOFS)
def test_a_proof_at_the_prompt_has_a_few_lines(proof: Proof) -> None:
    lines = repr(proof).splitlines()
    assert lines[0].startswith(f"<Proof {proof.verdict.value.upper()}: ") and lines[-1][-1] == ">"
    assert len(lines) <= 6 and max(map(len, lines)) <= 410


def test_a_proof_at_the_prompt_says_where_and_why() -> None:
    text = repr(large())
    assert "\n  where: stage export, /model/layers.25/attention/node_500" in text
    assert "\n  proven cause masking: " in text


def test_the_summary_is_what_the_command_line_prints() -> None:
    text = large().summary()
    for words in (
        "DIVERGED  model.onnx differs from",
        "group",
        "where: stage export",
        "replay the",
    ):
        assert words in text
    assert "\x1b" not in text


@pytest.mark.parametrize("proof", PROOFS.values(), ids=PROOFS)
def test_a_cell_has_the_verdict_a_table_and_a_chart_and_runs_nothing(proof: Proof) -> None:
    page = Page(proof._repr_html_())
    assert proof.verdict.value.upper() in page.text
    assert {"table", "svg", "rect", "line"} <= set(page.tags)
    allowed = {"div", "b", "small", "table", "thead", "tbody", "tr", "th", "td", "span", "svg"}
    assert set(page.tags) <= allowed | {"rect", "line", "code", "br"}
    assert not [
        name for name in page.attributes if name.startswith("on") or name in ("src", "href")
    ]


def test_names_of_a_hostile_model_stay_text_in_a_cell() -> None:
    """Each name is there, as text: the parser gives it back with nothing but control characters changed."""
    text = Page(hostile()._repr_html_()).text
    assert "<script>" in "".join(HOSTILE) and "<script>" in text


def test_a_longer_bar_is_a_larger_ratio_and_the_limit_is_a_line() -> None:
    widths = [notebook._pixels(ratio) for ratio in (0.0, 1.0, 12.0, 1e3, float("inf"))]
    assert widths == sorted(set(widths)) and widths[0] == 0


@pytest.mark.parametrize("verb", VERBS)
def test_every_argument_is_described_with_an_example_in_help(verb: str) -> None:
    function = getattr(onnxproof, verb)
    text = inspect.getdoc(function) or ""
    for name in arguments.parameter_names(function):
        assert f"\n    {name}: " in text, f"`{name}` of `{verb}` has no line: report/arguments.py"
    for name, argument in arguments.arguments_of(function):
        assert argument.example.startswith(f"{name}="), name
        assert f"Example: `{argument.example}`" in " ".join(text.split())
    assert ">>> " in text


def test_the_version_is_there_without_torch() -> None:
    code = "import sys, onnxproof; print(onnxproof.__version__, 'torch' in sys.modules, 'onnx' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    version, *heavy = done.stdout.split()
    assert version[0].isdigit() and heavy == ["False", "False"]
    assert "__version__" in dir(onnxproof)


class Cell:
    """What `IPython.display.display` does for its caller: it keeps what was shown, and lets it be replaced."""

    def __init__(self) -> None:
        self.shown: list[Any] = []

    def display(self, thing: Any, *, display_id: bool) -> "Cell":
        assert display_id
        self.shown.append(thing)
        return self

    def update(self, thing: Any) -> None:
        self.shown.append(thing)


def in_kernel(monkeypatch: pytest.MonkeyPatch, cell: Cell, kernel: object) -> None:
    """As if an IPython ran this, with a kernel behind it or without."""
    shell = SimpleNamespace(kernel=kernel)
    display = SimpleNamespace(display=cell.display)
    python = SimpleNamespace(get_ipython=lambda: shell, display=display)
    monkeypatch.setitem(sys.modules, "IPython", python)
    monkeypatch.setitem(sys.modules, "IPython.display", display)


@progress.in_notebooks
def work(*, progress: Callable[[Progress], None] | None = None) -> bool:
    """Tells of two steps, if anybody listens."""
    for step in ("cases", "looking for the node <b>"):
        if progress is not None:
            progress(Progress(case="ordinary-0", done=3, elapsed=1.0, budget=4.0, step=step))
    return progress is not None


def test_a_notebook_shows_a_bar_that_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = Cell()
    in_kernel(monkeypatch, cell, object())
    assert work()
    pictures = [thing._repr_html_() for thing in cell.shown]
    assert 'value="0.250"' in pictures[1] and "3 cases" in pictures[1]
    assert "&lt;b&gt;" in pictures[2]
    assert pictures[-1] == ""


VERIFIED = """
import torch, onnxproof
module = torch.nn.Linear(4, 2).eval()
torch.onnx.export(module, (torch.ones(3, 4),), "linear.onnx", dynamo=True)
onnxproof.verify(module, "linear.onnx", (torch.ones(3, 4),), budget_s=4)
"""


def test_a_real_kernel_shows_the_bar_and_then_the_proof(tmp_path: Path) -> None:
    """What Jupyter's own protocol carries: a picture, pictures in its place, an empty one, and the proof as the cell's value."""
    kernel, client = start_new_kernel(kernel_name="python3", cwd=str(tmp_path))
    messages: list[dict[str, Any]] = []
    try:
        client.execute_interactive(VERIFIED, output_hook=messages.append, timeout=120)
    finally:
        client.stop_channels()
        kernel.shutdown_kernel(now=True)
    html = {
        kind: [m["content"]["data"]["text/html"] for m in messages if m["msg_type"] == kind]
        for kind in ("display_data", "update_display_data", "execute_result")
    }
    (first,), pictures, (proof,) = html.values()
    assert "starting" in first
    assert any("<progress" in picture and "cases" in picture for picture in pictures[:-1])
    assert pictures[-1] == ""
    assert "FAITHFUL" in proof and "<table" in proof


def test_a_listener_of_the_caller_s_own_takes_the_place_of_the_bar(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cell, heard = Cell(), []
    in_kernel(monkeypatch, cell, object())
    assert work(progress=heard.append)
    assert cell.shown == [] and len(heard) == 2


def test_there_is_no_bar_outside_of_notebooks(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = Cell()
    in_kernel(monkeypatch, cell, None)
    assert not work() and cell.shown == []
    monkeypatch.delitem(sys.modules, "IPython")
    assert not work()
