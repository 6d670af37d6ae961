"""What the report and the plug-in cost: the size of a large report, how fast it opens in Chromium, and what the plug-in adds to `pytest --help`.

Times are the median of several runs, each beside the other in turn: the machine's noise hits both.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.screenshots import chromium
from onnxproof.report.writers import html

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))


def report() -> None:
    from made_proofs import large
    from playwright.sync_api import sync_playwright

    start = time.perf_counter()
    html.chart_library()
    bundle = time.perf_counter() - start
    start = time.perf_counter()
    text = html.dumps(large())
    print(
        f"500 cases, 3 backends, 1,000 nodes: {len(text.encode()) / 1e6:.2f} MB, of which scripts {len(html.chart_library().encode()) / 1e6:.2f} MB; "
        f"written in {time.perf_counter() - start:.2f} s after {bundle:.2f} s for the scripts"
    )
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        path = Path(folder) / "large.html"
        path.write_text(text, encoding="utf-8")
        browser = driver.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        taken, busy = [], []
        for _ in range(7):
            page = browser.new_page()
            session = page.context.new_cdp_session(page)
            session.send("Performance.enable")
            start = time.perf_counter()
            page.goto(path.as_uri())
            page.wait_for_selector("html[data-ready=yes]")
            taken.append(time.perf_counter() - start)
            busy.append(
                next(
                    metric["value"]
                    for metric in session.send("Performance.getMetrics")["metrics"]
                    if metric["name"] == "ThreadTime"
                )
            )
            page.close()
        browser.close()
    print(
        f"opens, every chart drawn: median {statistics.median(taken):.2f} s, slowest {max(taken):.2f} s of {len(taken)}; "
        f"processor time of the page's thread: median {statistics.median(busy):.2f} s (load of this machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores)"
    )


def plugin() -> None:
    """`pytest --help` without and with the plug-in, in turn."""
    environment = os.environ | {
        "PYTHONPATH": str(ROOT / "src"),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    taken: dict[str, list[float]] = {"without": [], "with": []}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(15):
            for name, words in (("without", ()), ("with", ("-p", "onnxproof_pytest"))):
                start = time.perf_counter()
                subprocess.run(
                    [sys.executable, "-m", "pytest", "--help", *words],
                    cwd=folder,
                    env=environment,
                    capture_output=True,
                    check=True,
                )
                taken[name].append(time.perf_counter() - start)
    without, added = statistics.median(taken["without"]), statistics.median(taken["with"])
    print(
        f"pytest --help: {without:.3f} s without the plug-in, {added:.3f} s with it ({added - without:+.3f} s)"
    )


if __name__ == "__main__":
    report()
    plugin()
