"""A child of onnxproof that holds a browser: it passes requests to a page, and the page's answers back.

Run as a script with the settings as JSON and the folder of the shared files. It needs the standard library alone. The
page, the npm package and the arrays are served on 127.0.0.1; the page asks for work and posts what it made of it.
"""

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

MARK = "\x1eonnxproof "
_TYPES = {
    ".mjs": "text/javascript",
    ".js": "text/javascript",
    ".wasm": "application/wasm",
    ".html": "text/html",
}
_PAGE = "<!doctype html><title>onnxproof</title><script type='module' src='/own/page.mjs'></script>"
_FLAGS = (
    "--headless=new",
    "--no-first-run",
    "--disable-gpu",
    "--disable-extensions",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-default-browser-check",
)


class Desk:
    """Where requests wait for the page, and answers for us."""

    def __init__(self, settings: dict[str, Any], folder: Path) -> None:
        self.settings, self.folder = settings, folder
        self.requests: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.answers: queue.SimpleQueue[str] = queue.SimpleQueue()

    def file(self, path: str) -> Path | None:
        """The file behind a path of ours, of the npm package or of the model; nothing else is served."""
        kind, _, rest = path.strip("/").partition("/")
        base = {
            "own": Path(__file__).parent,
            "package": Path(self.settings["package"]),
            "beside": Path(self.settings["model"]).parent,
        }.get(kind)
        if path == "/model":
            return Path(self.settings["model"])
        if base is None:
            return None
        found = (base / rest).resolve()
        return found if found.is_file() and found.is_relative_to(base.resolve()) else None


def handler(desk: Desk) -> type[BaseHTTPRequestHandler]:
    """A handler class that knows its desk."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/":
                self._send(_PAGE.encode(), "text/html")
            elif path == "/settings":
                self._send(json.dumps(desk.settings).encode(), "application/json")
            elif path == "/next":
                self._send(desk.requests.get().encode(), "application/json")
            elif path == "/inputs":
                self._send(
                    (desk.folder / "inputs").read_bytes()[: int(self.path.partition("?")[2])],
                    "application/octet-stream",
                )
            elif (found := desk.file(path)) is not None:
                self._send(found.read_bytes(), _TYPES.get(found.suffix, "application/octet-stream"))
            else:
                self.send_error(404)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path == "/outputs":
                with (desk.folder / "outputs").open("r+b") as file:
                    file.write(body)
            else:
                desk.answers.put(body.decode())
            self._send(b"", "text/plain")

        def _send(self, body: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header(
                "Cross-Origin-Opener-Policy", "same-origin"
            )  # with the next: threads in WebAssembly
            self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing: what is on standard error should be last words."""

    return Handler


def main() -> int:
    """Serve the page, start the browser, and carry requests and answers until the parent is gone."""
    settings, folder = json.loads(sys.argv[1]), Path(sys.argv[2])
    desk = Desk(settings, folder)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(desk))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    root = (
        ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    )  # Chromium's sandbox refuses to run as root
    command = [
        settings["browser"],
        *_FLAGS,
        *root,
        f"--user-data-dir={Path(tempfile.gettempdir()) / 'profile'}",
        f"http://127.0.0.1:{server.server_port}/",
    ]
    browser = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=2)
    answer = _wait(desk, browser)
    _say(answer)
    if "error" in json.loads(answer):
        return 0
    for line in sys.stdin:
        desk.requests.put(line)
        _say(_wait(desk, browser))
    return 0


def _wait(desk: Desk, browser: "subprocess.Popen[bytes]") -> str:
    while True:
        try:
            return desk.answers.get(timeout=0.2)
        except queue.Empty:
            if browser.poll() is not None:
                sys.stderr.write(f"error: the browser ended with exit code {browser.returncode}\n")
                sys.stderr.flush()
                os._exit(1)


def _say(answer: str) -> None:
    sys.stdout.write(f"{MARK}{answer}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
