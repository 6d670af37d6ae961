"""Every code block of the docs is run: files are written, Python is executed, commands give the output and the exit code that the page shows."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import figures
from support.pages import APART, DOCS, FENCE, PAGES, ROOT, name_of, opened

from onnxproof.cli import _reference


@pytest.mark.parametrize(
    "page", [page for page in PAGES if name_of(page) not in APART], ids=name_of
)
def test_every_block_of_the_page_does_what_it_says(page: Path) -> None:
    """Most pages bring all that they need; what the reader has already is in `page_files`."""
    with opened(page) as reader:
        reader.read(page)
        if "build" in reader.names:
            reader.names["build"]()
        assert reader.ran or page.parent == DOCS


SAID = """\
DRIFT  a.onnx drifts from build: output `y`, case `scale-10` on ort, 5,427 times the noise
  58 cases on ort · 1.0 s (42% in forward passes) · seed 0

group    cases worst case x noise verdict
floats      24 tiny         2,097 drift
ordinary    10 scale-10     5,427 drift
proven cause attribute: a node's attribute differs (7 of 7 cases)
"""


@pytest.mark.parametrize(
    "shown",
    [
        "DRIFT  a.onnx drifts from build: output `y`, case `other` on ort, 5,400 times the noise",
        "DRIFT  a.onnx drifts from build: ...",
        "...\nproven cause attribute: ...",
        "  61 cases on ort · 9.9 s (7% in forward passes) · seed 0",
        "ordinary    10 scale-10     5,427 drift\nfloats      24 tiny         2,097 drift",
    ],
)
def test_a_page_may_leave_out_lines_times_and_the_name_of_the_worst_case(shown: str) -> None:
    figures.updated("command", shown, SAID)


@pytest.mark.parametrize(
    "shown",
    [
        "DRIFT  a.onnx drifts from build: output `y`, case `other` on ort, 149.4 times the noise",
        "DRIFT  b.onnx drifts from build: ...",
        "proven cause attribute: ...\nDRIFT  a.onnx drifts from build: ...",
        "  9 cases on ort · 1.0 s (42% in forward passes) · seed 0",
        "masks    10 scale-10     5,427 drift",
        "ordinary    10 scale-10     5,427 faithful",
    ],
)
def test_a_page_with_other_words_or_far_figures_fails(shown: str) -> None:
    with pytest.raises(figures.FiguresDiffer):
        figures.updated("command", shown, SAID)


def test_the_figures_of_a_page_are_written_anew() -> None:
    shown = """\
DRIFT  a.onnx drifts from build: output `y`, case `other` on ort, 149.4 times ...
...
ordinary   9 old 2.0 drift
floats   9 old 2.0 drift
"""
    with figures.accepting_other_figures():
        assert figures.updated("command", shown, SAID).splitlines() == [
            "DRIFT  a.onnx drifts from build: output `y`, case `scale-10` on ort, 5,427 times ...",
            "...",
            "floats      24 tiny         2,097 drift",
            "ordinary    10 scale-10     5,427 drift",
        ]


@pytest.mark.parametrize("name", _reference.make())
def test_the_reference_is_the_one_of_the_code(name: str) -> None:
    assert (DOCS / "reference" / name).read_text(encoding="utf-8") == _reference.make()[name], (
        "run `make reference`"
    )


def links() -> Iterator[tuple[Path, str]]:
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", *sorted((DOCS / "reference").glob("*.md"))]:
        text = FENCE.sub("", page.read_text(encoding="utf-8"))
        yield from ((page, target) for target in re.findall(r"\]\(([^)]+)\)", text))


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.M)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings
    }


def test_every_link_and_picture_is_there() -> None:
    for page, target in links():
        path, _, anchor = target.partition("#")
        if re.match(r"https?:", target):
            continue
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name}: {target}"
        assert not anchor or anchor in anchors(file), f"{page.name}: {target}"


def test_the_site_has_every_page() -> None:
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text())

    def files(item: Any) -> Iterator[str]:
        for part in (
            item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
        ):
            yield from [part] if isinstance(part, str) else files(part)

    named = set(files(site["nav"]))
    assert named == {
        str(page.relative_to(DOCS)) for page in [*PAGES[1:], *(DOCS / "reference").glob("*.md")]
    } | {"findings/README.md"}
