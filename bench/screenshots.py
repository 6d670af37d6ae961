"""The pictures of the docs: the tutorial's fault is verified, and its report is photographed in headless Chromium."""

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

from onnxproof.cli import main

ROOT = Path(__file__).parent.parent
SHOTS = {
    "report": ("light", 1100, 1500),
    "report-dark": ("dark", 1100, 1500),
    "report-phone": ("light", 390, 844),
}


def chromium() -> str:
    found = os.environ.get("CHROMIUM") or next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    if found is None:
        raise SystemExit("no chromium: install the package `chromium`, or set CHROMIUM to its path")
    return found


def make_report(folder: Path) -> Path:
    """The report of the tutorial's wrong epsilon."""
    blocks = re.findall(
        r'^```python(?: title="([^"]+)")?\n(.*?)^```$',
        (ROOT / "docs/tutorial.md").read_text(encoding="utf-8"),
        re.M | re.S,
    )
    os.chdir(folder)
    (folder / "model.py").write_text(next(text for title, text in blocks if title == "model.py"))
    main(["export", "model.py:build", "-o", "model.onnx", "--dynamic", "x:0=batch", "--quiet"])
    exec(next(text for title, text in blocks if not title), {})
    main(
        [
            "verify",
            "model.py:build",
            "converted.onnx",
            "--backend",
            "ort",
            "--backend",
            "ort:disabled",
            "--html",
            "report.html",
            "--quiet",
        ]
    )
    text = (folder / "report.html").read_text(encoding="utf-8").replace(f"{folder}/", "")
    (folder / "report.html").write_text(text, encoding="utf-8")
    return folder / "report.html"


def photograph(page_file: Path, images: Path) -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        for name, (scheme, width, height) in SHOTS.items():
            page = browser.new_page(
                viewport={"width": width, "height": height}, color_scheme=scheme
            )
            page.goto(page_file.as_uri())
            page.wait_for_selector("html[data-ready=yes]")
            page.screenshot(path=images / f"{name}.png")
            print(f"{images / name}.png")
        browser.close()


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "docs/images").resolve()
    with tempfile.TemporaryDirectory() as made:
        photograph(make_report(Path(made).resolve()), target)
