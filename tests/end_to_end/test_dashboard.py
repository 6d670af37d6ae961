"""The dashboard in a real browser: thousands of rows, sorted and filtered; trends, marks, the model's own report; names that are no code."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from end_to_end.test_browser import CHROMIUM, PATIENCE_S, browser, drawn, until  # noqa: F401
from support.made_proofs import HOSTILE
from support.recorded_suites import record

from onnxproof.cli import main

pytestmark = [
    pytest.mark.skipif(
        CHROMIUM is None,
        reason="no chromium: install the package `chromium`, or set CHROMIUM to its path",
    ),
]
MODELS = 3000


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dashboards")
    for name, models, runs in (("small", 30, 12), ("large", MODELS, 2)):
        history = record(folder / f"{name}.sqlite", models=models, runs=runs)
        assert main(["history", str(history), "--html", str(folder / f"{name}.html")]) == 0
    return folder


@pytest.fixture
def visit(browser: Any, pages: Path) -> Iterator[Callable[..., Any]]:  # noqa: F811
    """Open a page; at the end: no word on the console, no error, no request but for the file itself."""
    contexts, said, asked = [], [], []

    def go(name: str, **options: Any) -> Any:
        size = {"viewport": {"width": 1200, "height": 900}}
        contexts.append(browser.new_context(**{**size, **options}))
        contexts[-1].set_default_timeout(PATIENCE_S * 1000)
        page = contexts[-1].new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto((pages / f"{name}.html").as_uri())
        drawn(page)
        return page

    yield go
    for context in contexts:
        context.close()
    assert said == []
    assert all(url.startswith(("file:", "blob:", "about:")) for url in asked), asked


def names(page: Any) -> list[str]:
    return [text.strip() for text in page.locator("#rows button.link").all_inner_texts()]


def test_the_worst_come_first_and_what_moved_is_said_with_the_version(
    visit: Callable[..., Any],
) -> None:
    page = visit("small")
    assert names(page)[1] == "model-0007"
    moved = page.locator("#moves li").inner_text()
    assert "model-0007" in moved and "since run 9" in moved
    assert "with it onnxruntime 1.30.0 -> 1.31.1" in moved
    assert page.locator("#moves li").count() == 1


def test_names_of_models_are_no_code(visit: Callable[..., Any]) -> None:
    page = visit("small")
    assert page.title() == "onnxproof: nightly"
    assert names(page)[0] in HOSTILE[0]
    page.locator("#rows button.link").first.click()
    assert page.locator("#panel-title").inner_text().startswith("error")


def test_thousands_of_rows_are_there_and_few_are_made(visit: Callable[..., Any]) -> None:
    page = visit("large")
    assert page.locator("#count").inner_text() == f"{MODELS + 1} of {MODELS + 1} models"
    assert page.locator("#rows tr").count() < 80
    page.locator("#grid").evaluate("grid => { grid.scrollTop = grid.scrollHeight; }")
    until(page, lambda: page.locator(f"#rows tr[aria-rowindex='{MODELS + 2}']").count() == 1)
    assert page.locator("#rows tr").count() < 80


def test_sorting_and_filters(visit: Callable[..., Any]) -> None:
    page = visit("large")
    page.locator("th button", has_text="model").click()
    assert page.locator("th[aria-sort=ascending]").inner_text().startswith("model")
    assert "model-0000" in names(page)[:2]
    page.locator("th button", has_text="model").click()
    assert names(page)[0] == f"model-{MODELS - 1:04}"
    page.select_option("select[name=verdict]", "drift")
    page.select_option("select[name=tag]", "vision")
    page.locator("input[name=text]").fill("model-00")
    assert names(page) == ["model-0093", "model-0071", "model-0049", "model-0027", "model-0005"]
    page.select_option("select[name=backend]", "openvino")
    assert page.locator("#count").inner_text().startswith("5 of")


def test_a_row_opens_the_trend_and_the_report_of_its_model(visit: Callable[..., Any]) -> None:
    page = visit("small")
    page.locator("#rows button.link", has_text="model-0007").click()
    panel = page.locator("#panel")
    assert "onnxruntime 1.30.0 -> 1.31.1" in panel.locator("svg.trend").first.text_content()
    assert panel.locator("svg.trend").first.locator("polyline").count() == 2
    panel.locator(".open-report").click()
    report = page.frame_locator("#panel iframe")
    report.locator("html[data-ready=yes]").wait_for(state="attached")
    assert report.locator("h1").first.inner_text().startswith("DIVERGED")
    assert report.locator("[data-chart=heat] svg").count() > 0
    page.locator("#close").click()
    page.locator("#rows button.link", has_text="model-0008").click()
    assert "--model 'model-0008' --report" in panel.inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_accessible(visit: Callable[..., Any], scheme: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    page = visit("small", color_scheme=scheme, bypass_csp=True)
    for step in ("table", "panel"):
        if step == "panel":
            page.locator("#rows button.link", has_text="model-0007").click()
        found = Axe().run(page).response["violations"]
        assert [(each["id"], each["nodes"][0]["html"]) for each in found] == []


def test_on_a_phone_nothing_is_wider_than_the_screen(visit: Callable[..., Any]) -> None:
    page = visit("small", viewport={"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.locator("#rows button.link", has_text="model-0007").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_on_a_phone_verdicts_and_the_words_of_a_trend_can_be_read(
    visit: Callable[..., Any],
) -> None:
    page = visit("small", viewport={"width": 390, "height": 800})
    row = page.locator("#rows tr", has_text="model-0007")
    cells = [cell.bounding_box() for cell in row.locator("td:visible").all()]
    badge = row.locator(".badge").bounding_box()
    assert badge["x"] + badge["width"] <= cells[1]["x"] + cells[1]["width"]
    assert cells[-1]["x"] + cells[-1]["width"] >= 370  # the columns fill the table
    row.locator("button.link").click()
    words = page.locator("#panel svg.trend text").first
    assert words.bounding_box()["height"] >= 9


def test_a_model_that_could_not_be_run_shows_its_last_words(visit: Callable[..., Any]) -> None:
    page = visit("small")
    page.locator("#rows button.link").first.click()
    assert page.locator("#panel-body > pre").inner_text().split() == HOSTILE[1].split()
