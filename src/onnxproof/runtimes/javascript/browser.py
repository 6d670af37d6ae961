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
_BINARY = "application/octet-stream"
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


class Exchange:
    """Where requests wait for the page, and answers for us."""

    def __init__(self, settings: dict[str, Any], folder: Path) -> None:
        self.settings = settings
        self.folder = folder
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
        file = (base / rest).resolve()
        if not file.is_file() or not file.is_relative_to(base.resolve()):
            return None
        return file


def handler(exchange: Exchange) -> type[BaseHTTPRequestHandler]:
    """A handler class that knows its exchange."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/":
                self._send(_PAGE.encode(), "text/html")
            elif path == "/settings":
                self._send(json.dumps(exchange.settings).encode(), "application/json")
            elif path == "/next":
                self._send(exchange.requests.get().encode(), "application/json")
            elif path == "/inputs":
                size = int(self.path.partition("?")[2])
                content = (exchange.folder / "inputs").read_bytes()
                self._send(content[:size], _BINARY)
            else:
                self._send_file(exchange.file(path))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path == "/outputs":
                with (exchange.folder / "outputs").open("r+b") as file:
                    file.write(body)
            else:
                exchange.answers.put(body.decode())
            self._send(b"", "text/plain")

        def _send_file(self, file: Path | None) -> None:
            if file is None:
                self.send_error(404)
            else:
                self._send(file.read_bytes(), _TYPES.get(file.suffix, _BINARY))

        def _send(self, body: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            # This header and the next allow threads in WebAssembly.
            self.send_header("Cross-Origin-Opener-Policy", "same-origin")
            self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing: what is on standard error should be last words."""

    return Handler


def main() -> int:
    """Serve the page, start the browser, and carry requests and answers until the parent is gone."""
    settings, folder = json.loads(sys.argv[1]), Path(sys.argv[2])
    exchange = Exchange(settings, folder)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(exchange))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    flags = list(_FLAGS)
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        flags.append("--no-sandbox")  # Chromium's sandbox refuses to run as root
    command = [
        settings["browser"],
        *flags,
        f"--user-data-dir={Path(tempfile.gettempdir()) / 'profile'}",
        f"http://127.0.0.1:{server.server_port}/",
    ]
    browser = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=2)
    answer = _wait(exchange, browser)
    _say(answer)
    if "error" in json.loads(answer):
        return 0
    for line in sys.stdin:
        exchange.requests.put(line)
        _say(_wait(exchange, browser))
    return 0


def _wait(exchange: Exchange, browser: "subprocess.Popen[bytes]") -> str:
    while True:
        try:
            return exchange.answers.get(timeout=0.2)
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
