"""The report in a real browser: what is seen, hovered, filtered, sorted, printed; and that nothing in a model's names becomes code."""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.made_proofs import HOSTILE, hostile, large, quantized

from onnxproof.report.writers import html
from onnxproof.results.proof import Proof

CHROMIUM = os.environ.get("CHROMIUM") or next(
    filter(
        None,
        map(
            shutil.which, ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
        ),
    ),
    None,
)
PATIENCE_S = 60.0
"""Long enough for a machine that does much else: it is only waited for when something is amiss."""
pytestmark = [
    pytest.mark.skipif(
        CHROMIUM is None,
        reason="no chromium: install the package `chromium`, or set CHROMIUM to its path",
    ),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="no playwright: pip install 'onnxproof[test]'"
    )
    with sync_api.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("reports")
    for name, proof in {"large": large(), "hostile": hostile(), "quantized": quantized()}.items():
        html.write(proof, made / f"{name}.html")
    (made / "several.html").write_text(
        html.page([quantized(), large(60, ("ort",), 30)]), encoding="utf-8"
    )
    (made / "failed.html").write_text(html.failure(f"error[x]: {HOSTILE[0]}"), encoding="utf-8")
    return made


@pytest.fixture
def visit(browser: Any, folder: Path) -> Iterator[Callable[..., Any]]:
    """Open a report; at the end: no word on the console, no error, no request but for the file itself."""
    contexts, said, asked = [], [], []

    def go(name: str, *, ready: bool = True, **options: Any) -> Any:
        contexts.append(
            browser.new_context(**{"viewport": {"width": 1200, "height": 900}, **options})
        )
        contexts[-1].set_default_timeout(PATIENCE_S * 1000)
        page = contexts[-1].new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: said.append(f"dialog {dialog.message}"))
        page.on("request", lambda request: asked.append(request.url))
        page.goto((folder / f"{name}.html").as_uri())
        if ready:
            drawn(page)
        return page

    yield go
    for context in contexts:
        context.close()
    assert said == []
    assert all(url.startswith(("file:", "blob:")) for url in asked), asked


def drawn(page: Any) -> None:
    """Wait until the page has drawn its charts."""
    page.wait_for_selector("html[data-ready=yes]", timeout=PATIENCE_S * 1000)


def until(
    page: Any,
    script: str | Callable[[], bool],
    argument: Any = None,
    *,
    first: Callable[[], None] = lambda: None,
) -> None:
    """Wait until it is so; by asking again, since the page's policy forbids what the driver would inject. `first` is done before each asking."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        first()
        if script() if callable(script) else page.evaluate(script, argument):
            return
        page.wait_for_timeout(50)
    pytest.fail(f"never came true: {script}")


def tooltip(page: Any, mark: Any, *words: str) -> None:
    """Point at a mark until its tooltip says all the words: a chart that is still moving under the mouse is pointed at again."""

    def point() -> None:
        page.mouse.move(1, 1)
        mark.scroll_into_view_if_needed()
        mark.hover(force=True)

    said = "words => { const shown = document.querySelector('#vg-tooltip-element.visible')?.innerText ?? ''; return words.every((word) => shown.includes(word)); }"
    until(page, said, list(words), first=point)


def open_cases(page: Any) -> None:
    """Unfold the table of all cases: the browser tells the page a moment after the click, and only then are its rows written."""
    page.locator("details.all > summary").click()
    page.locator("table.long[data-from=gaps] tbody tr").first.wait_for()


def cells(page: Any, chart: str = "heat", mark: str = "rect") -> Any:
    return page.locator(f"[data-chart={chart}] .mark-{mark}.role-mark path")


def test_the_large_report_keeps_its_size_and_draws_everything(
    visit: Callable[..., Any], folder: Path
) -> None:
    assert (folder / "large.html").stat().st_size <= 2_000_000
    page = visit("large")
    assert cells(page).count() == 1500
    assert cells(page, "profile", "symbol").count() == 1000
    assert {
        place.get_attribute("data-chart") for place in page.locator(".chart.vega-embed").all()
    } == {"heat", "dims", "histogram", "profile", "causes"}


def test_the_verdict_is_the_first_thing_and_the_guilty_line_is_shown(
    visit: Callable[..., Any],
) -> None:
    page = visit("large")
    heading = page.locator("h1")
    assert heading.inner_text().startswith("DIVERGED model.onnx differs from build")
    assert heading.bounding_box()["y"] < 150
    assert "scores = query @ key.transpose(2, 0)" in page.locator(".source pre").inner_text()
    assert (
        page.locator("[data-chart=profile]")
        .get_by_text("/model/layers.25/attention/node", exact=False)
        .count()
        == 1
    )


def test_hovering_a_case_and_a_node_tells_what_it_is(visit: Callable[..., Any]) -> None:
    page = visit("large")
    tooltip(page, cells(page).nth(6), "case number", "times the noise")
    tooltip(
        page,
        page.locator("[data-chart=profile] .mark-symbol path[fill='#d1495b']"),
        "model.py:60",
        "/model/layers.25/attention/node_500",
    )


def test_the_filters_reach_the_charts_and_the_table(visit: Callable[..., Any]) -> None:
    page = visit("large")
    page.select_option("select[name=backend]", "ort")
    until(
        page,
        "document.querySelectorAll('[data-chart=heat] .mark-rect.role-mark path').length === 500",
    )
    page.select_option("select[name=verdict]", "diverged")
    until(
        page,
        "document.querySelectorAll('[data-chart=heat] .mark-rect.role-mark path').length < 100",
    )
    open_cases(page)
    assert set(
        page.locator("table.long[data-from=gaps] tbody td:last-child").all_inner_texts()
    ) == {"diverged"}
    page.fill("input[name=text]", "number 418")
    assert page.locator("table.long[data-from=gaps] tbody tr").count() == 1
    assert page.locator(".count").inner_text() == "1 of 1500 outputs of cases"


def test_a_dim_is_chosen_from_the_list(visit: Callable[..., Any]) -> None:
    page = visit("large")
    before = page.locator("[data-chart=dims] svg.marks").inner_html()
    page.select_option("select.dim", label="seq")
    until(
        page,
        "before => document.querySelector('[data-chart=dims] svg.marks').innerHTML !== before",
        before,
    )
    until(page, "document.querySelector('[data-chart=dims] svg.marks').textContent.includes('260')")


def test_tables_sort_by_mouse_and_by_keyboard_as_numbers(visit: Callable[..., Any]) -> None:
    page = visit("large")
    header = page.locator("table.groups th", has_text="× noise")

    def column() -> list[float]:
        return [
            float(text.replace(",", ""))
            for text in page.locator("table.groups tbody td:nth-child(5)").all_inner_texts()
        ]

    header.locator("button").click()
    assert column() == sorted(column())
    assert header.get_attribute("aria-sort") == "ascending"
    header.locator("button").focus()
    page.keyboard.press("Enter")
    assert column() == sorted(column(), reverse=True)
    assert header.get_attribute("aria-sort") == "descending"


def test_a_long_table_shows_a_hundred_rows_until_all_are_asked_for(
    visit: Callable[..., Any],
) -> None:
    page = visit("large")
    open_cases(page)
    rows = page.locator("table.long[data-from=gaps] tbody tr")
    assert rows.count() == 100
    page.get_by_text("show all 1500").click()
    assert rows.count() == 1500
    page.locator("table.long[data-from=gaps] th button", has_text="case").click()
    assert rows.first.locator("td").first.inner_text() == "floats-case number 2"


def test_the_keyboard_zooms(visit: Callable[..., Any]) -> None:
    page = visit("large")
    buttons = page.locator("figure:has([data-chart=profile]) .zoom")
    assert "740" not in page.locator("[data-chart=profile]").text_content()
    buttons.get_by_label("Zoom in").focus()
    page.keyboard.press("Enter")
    until(page, "document.querySelector('[data-chart=profile] svg').textContent.includes('740')")
    buttons.get_by_label("See all").click()
    until(page, "document.querySelector('[data-chart=profile] svg').textContent.includes('950')")


def luminance(page: Any, what: str, where: str) -> float:
    colour = page.evaluate(
        "([what, where]) => getComputedStyle(document.querySelector(where))[what]", [what, where]
    )
    red, green, blue = (
        float(part) for part in colour[colour.index("(") + 1 :].rstrip(")").split(",")[:3]
    )
    return (0.3 * red + 0.6 * green + 0.1 * blue) / 255


def test_light_and_dark_by_the_system_and_by_the_button(visit: Callable[..., Any]) -> None:
    for scheme, dark in (("light", False), ("dark", True)):
        page = visit("large", color_scheme=scheme)
        for _ in range(2):
            background, text = (
                luminance(page, "backgroundColor", "body"),
                luminance(page, "fill", "[data-chart=heat] .role-axis-label text"),
            )
            assert (background < 0.2, text > 0.7) == (dark, dark)
            page.click("#theme")
            dark = not dark


def test_a_phone_scrolls_only_downwards(visit: Callable[..., Any]) -> None:
    for name in ("large", "hostile", "quantized", "several"):
        page = visit(name, viewport={"width": 360, "height": 740}, device_scale_factor=2)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, name
        wide = [
            box["width"]
            for box in (
                svg.bounding_box()
                for svg in page.locator(".chart > .chart-wrapper svg, .chart > svg").all()
            )
            if box
        ]
        assert all(width <= 360 for width in wide)


def test_printed_it_has_no_controls_and_everything_is_open(visit: Callable[..., Any]) -> None:
    page = visit("quantized", color_scheme="dark", viewport={"width": 760, "height": 1000})
    page.emulate_media(media="print")
    assert not page.locator("form.filters").is_visible()
    assert not page.locator("#theme").is_visible()
    assert luminance(page, "backgroundColor", "body") > 0.9
    filled = page.evaluate(
        "(dispatchEvent(new Event('beforeprint')), document.querySelectorAll('table.long[data-from=gaps] tbody tr').length)"
    )
    assert filled == 20, "what is printed is there before the browser's next turn"
    assert page.locator("details.all").get_attribute("open") is not None
    assert page.evaluate("document.documentElement.scrollWidth") <= 760
    assert page.pdf().startswith(b"%PDF")


def test_several_proofs_are_printed_with_their_tables_and_without_holes(
    visit: Callable[..., Any],
) -> None:
    """The charts of a folded proof are drawn when somebody looks, and paper can't wait: their places are left out."""
    page = visit("several", viewport={"width": 760, "height": 1000})
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("#proof-1 table.long[data-from=gaps] tbody tr").count() == 60
    assert page.locator("#proof-0 [data-chart=heat]").is_visible()
    holes = "[...document.querySelectorAll('.chart:empty')].filter((chart) => chart.checkVisibility()).length"
    assert page.evaluate(holes) == 0


def test_hostile_names_stay_text(visit: Callable[..., Any]) -> None:
    page = visit("hostile")
    assert page.title() != "owned"
    assert page.locator("script:not([type])").count() == 2
    assert page.locator("img").count() == 0
    body = page.locator("body").inner_text()
    assert HOSTILE[0] in body
    assert HOSTILE[1] in body
    assert "{{ 7 * 7 }}" in body
    assert "\u202e" not in page.content()
    assert "a<U+202E>b" in body
    assert "x" * 2000 not in body
    open_cases(page)
    assert HOSTILE[0] in page.locator("table.long[data-from=gaps]").inner_text()
    for number in range(cells(page).count()):
        tooltip(page, cells(page).nth(number), "times the noise")
        assert page.locator("#vg-tooltip-element").locator("img, script").count() == 0
    assert page.title() != "owned"


def test_the_policy_of_the_page_stops_what_escaping_might_miss(
    visit: Callable[..., Any], folder: Path
) -> None:
    text = (folder / "large.html").read_text(encoding="utf-8")
    (folder / "injected.html").write_text(
        text.replace(
            "</main>",
            "<script>document.title='owned'</script><img src='http://127.0.0.1:9/x'></main>",
        ),
        encoding="utf-8",
    )
    context = visit("large").context
    page = context.new_page()
    refused: list[str] = []
    page.on("console", lambda message: refused.append(message.text))
    page.goto((folder / "injected.html").as_uri())
    drawn(page)
    assert page.title() != "owned"
    until(
        page, lambda: sum("Content Security Policy" in words for words in refused) >= 2
    )  # the driver hears of it a moment later


def test_without_scripts_the_verdict_and_the_groups_are_there(visit: Callable[..., Any]) -> None:
    page = visit("large", ready=False, java_script_enabled=False)
    assert "DIVERGED" in page.locator("h1").inner_text()
    assert page.locator("table.groups tbody tr").count() == 18


def test_several_proofs_have_an_index_that_opens_and_draws_them(visit: Callable[..., Any]) -> None:
    page = visit("several")
    assert page.locator("h1").first.inner_text() == "2 proofs"
    assert page.locator("#proof-1 .chart svg").count() == 0
    page.locator("a[href='#proof-1']").click()
    page.wait_for_selector("#proof-1 [data-chart=heat] svg.marks")
    assert page.locator("#proof-0 [data-chart=heat] svg.marks").count() == 1


def test_a_quantized_model_has_its_waterfall_and_its_ranges(visit: Callable[..., Any]) -> None:
    page = visit("quantized")
    assert cells(page, "losses").count() == 3
    assert "8-bit weights" in page.locator("[data-chart=losses]").text_content()
    assert cells(page, "ranges").count() == 16
    assert visit("large").locator("[data-chart=losses]").count() == 0


def test_a_run_that_failed_is_a_page_that_says_so(visit: Callable[..., Any]) -> None:
    page = visit("failed")
    assert "Nothing was measured" in page.locator("h1").inner_text()
    assert HOSTILE[0] in page.locator("pre").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(browser: Any, folder: Path, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    context = browser.new_context(bypass_csp=True, color_scheme=scheme)
    page = context.new_page()
    page.goto((folder / "several.html").as_uri())
    drawn(page)
    assert axe.Axe().run(page).response["violations"] == []
    context.close()


def test_the_writer_of_the_proof_writes_the_same(tmp_path: Path) -> None:
    proof: Proof = quantized()
    proof.to_html(tmp_path / "a.html")
    assert (tmp_path / "a.html").read_text(encoding="utf-8") == html.dumps(proof)
