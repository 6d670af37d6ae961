"""The page's server: one visitor, one replay, under a token that nobody can guess.

What comes in is bounded: JSON by 64 KB, an answer by twice the size of the reference's, each provider by the number of calls of the bundle.
"""

import hmac
import json
import queue
import secrets
import socket
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar

import numpy as np

from onnxproof.bundle import browser_answers
from onnxproof.bundle.browser_answers import Answer, BadAnswer
from onnxproof.bundle.browser_files import Files, output_names
from onnxproof.bundle.manifest import BundleError
from onnxproof.errors import ModelError, UsageError
from onnxproof.options import Serving
from onnxproof.runtimes.session.observed_run import ObservedRun

Array = np.ndarray[Any, Any]
_Kind = TypeVar("_Kind")
PROVIDERS = ("wasm", "webgpu", "webnn")
_PREFIX = "browser:"
_MOST_JSON = 1 << 16
_SOCKET_S = 60.0
"""Seconds that a connection may be silent."""
_AHEAD = 4
"""Answers that may wait to be measured."""
_GOODBYE_S = 10.0
"""Seconds for the page to fetch the verdict before the server ends."""
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'self'; script-src 'self' 'wasm-unsafe-eval' blob:; worker-src 'self' blob:; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    # the two that allow threads in WebAssembly
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What the visitor chose, and what the browser says of itself."""

    backends: tuple[str, ...]
    failed: Mapping[str, str] = field(default_factory=dict)
    """By backend: why the model can't be opened there."""
    about: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What the page made of it; empty where it does not judge."""

    verdict: str = ""


class PageServer:
    """Serves one page, and hands its answers on as those of sessions."""

    def __init__(self, files: Files, host: str, port: int, serving: Serving) -> None:
        self.exchange = _Exchange(files, serving)
        try:
            self._server = ThreadingHTTPServer((host, port), _handler(self.exchange))
        except (OSError, OverflowError) as why:
            raise UsageError(
                "cannot-listen",
                f"nothing can be served at {host}:{port}",
                notes=[str(why)],
                help="choose another address, or leave the port out",
            ) from why
        self._server.daemon_threads = True
        self._host = host

    def __enter__(self) -> "PageServer":
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def address(self) -> str:
        """What a browser opens."""
        host = self._host
        if host == "0.0.0.0":
            host = own_address()
        return f"http://{host}:{self._server.server_port}/{self.exchange.token}/"

    def wait_for_start(self, wait_s: float) -> Start:
        """What the first visitor chose."""
        if not self.exchange.started.wait(wait_s) or self.exchange.start is None:
            raise BundleError(
                "no-visitor",
                f"nobody started the replay within {wait_s:g} s",
                help="open the address and press the button; `--wait SECONDS` waits longer",
            )
        return self.exchange.start

    def open(self, backend: str) -> "PageSession":
        """The session of one of the backends that were chosen."""
        assert self.exchange.start is not None
        why = self.exchange.start.failed.get(backend)
        if why is not None:
            raise ModelError("model-refused", why)
        return PageSession(backend, self.exchange)

    def wait_for_claim(self) -> Claim:
        """What the page made of it."""
        return self.exchange.wait_for_claim()

    def answer(self, **result: Any) -> None:
        """Tell the page how it ended, and wait until it knows."""
        self.exchange.result.put(result)
        self.exchange.told.wait(_GOODBYE_S)


class PageSession:
    """A session whose runs are made by the page, in the order of the bundle's cases."""

    def __init__(self, backend: str, exchange: "_Exchange") -> None:
        self._backend, self._exchange = backend, exchange
        manifest = exchange.files.bundle.manifest
        self.input_names: Sequence[str] = [
            info.onnx_name for info in manifest.signature.inputs if info.onnx_name is not None
        ]
        self.output_names: Sequence[str] = output_names(exchange.files.bundle)

    def run_observed(self, inputs: Mapping[str, Array]) -> ObservedRun:
        """The page's next answer: it has the same inputs from the bundle."""
        answer = self._exchange.next_answer(self._backend).or_raise(self._backend)
        return ObservedRun(
            outputs=list(answer.outputs),
            seconds=answer.seconds,
            overwritten=answer.overwritten,
        )

    def run(self, inputs: Mapping[str, Array]) -> list[Array | None]:
        """The outputs alone."""
        return self.run_observed(inputs).outputs

    def close(self) -> None:
        """Nothing is held here."""


class _Exchange:
    """What the server's threads and the replay share."""

    def __init__(self, files: Files, serving: Serving) -> None:
        self.files = files
        self.token = secrets.token_urlsafe(16)
        self.started = threading.Event()
        self.start: Start | None = None
        self.result: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.told = threading.Event()
        self.failure = ""
        self._limit_s = serving.time_s
        self._answers: dict[str, queue.Queue[Answer]] = {}
        self._received: dict[str, int] = {}
        self._claim: queue.SimpleQueue[Claim] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self.most_answer = files.most_answer

    def begin(self, start: Start) -> bool:
        """Take the first start; False for any other."""
        with self._lock:
            if self.start is not None:
                return False
            for backend in start.backends:
                self._answers[backend] = queue.Queue(_AHEAD)
                self._received[backend] = 0
            self.start = start
        self.started.set()
        return True

    def put(self, backend: str, body: bytes) -> str:
        """Take an answer; gives why it is refused, or nothing."""
        if backend not in self._answers:
            return "nothing was started there"
        with self._lock:
            self._received[backend] += 1
            if self._received[backend] > self.files.calls:
                return "there are no more calls"
        try:
            answer = browser_answers.parse(body, len(output_names(self.files.bundle)))
            self._answers[backend].put(answer, timeout=self._limit_s)
        except BadAnswer as why:
            self.fail(f"the page sent what is no answer: {why}")
            return str(why)
        except queue.Full:
            return "too many answers at once"
        return ""

    def next_answer(self, backend: str) -> Answer:
        """Wait for the page."""
        return self._wait(self._answers[backend])

    def claim(self, claim: Claim) -> dict[str, Any]:
        """The page is done: wait for what is made of it here."""
        self._claim.put(claim)
        return self.result.get(timeout=self._limit_s)

    def wait_for_claim(self) -> Claim:
        """The page's own verdict."""
        return self._wait(self._claim)

    def fail(self, what: str) -> None:
        """The page can't go on."""
        self.failure = self.failure or what[:400] or "no reason was given"

    def _wait(self, source: "queue.Queue[_Kind] | queue.SimpleQueue[_Kind]") -> _Kind:
        waited, step = 0.0, 0.1
        while True:
            try:
                return source.get(timeout=step)
            except queue.Empty:
                waited += step
            if self.failure:
                raise BundleError("page-failed", f"the page can't go on: {self.failure}")
            if waited > self._limit_s:
                raise BundleError(
                    "page-gone",
                    f"the page has not answered for {self._limit_s:g} s: it was closed, or its runtime hangs",
                    help="`--time-limit SECONDS` waits longer for one call",
                )


class _Handler(BaseHTTPRequestHandler):
    """Answers the requests of one exchange."""

    exchange: _Exchange
    protocol_version = "HTTP/1.1"
    timeout = _SOCKET_S
    wbufsize = 1 << 16  # headers and body in one packet: small answers wait for no acknowledgement
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        name = self._name()
        content = None
        if name is not None:
            content = self.exchange.files.find(name)
        if content is None:
            self._refuse(404, "there is no such file")
            return
        self._begin(200, content.kind, content.size)
        for piece in content.pieces:
            self.wfile.write(piece)

    def do_POST(self) -> None:
        name = self._name()
        if name is None:
            self._refuse(404, "there is no such file")
        elif name.startswith("answer/"):
            self._take_answer(_PREFIX + name.removeprefix("answer/"))
        elif name in ("start", "done", "failed"):
            self._take_json(name)
        else:
            self._refuse(404, "there is no such file")

    def _take_answer(self, backend: str) -> None:
        body = self._body(self.exchange.most_answer)
        if body is None:
            return
        why = self.exchange.put(backend, body)
        if why:
            self._refuse(409, why)
        else:
            self._send({})

    def _take_json(self, name: str) -> None:
        body = self._body(_MOST_JSON)
        if body is None:
            return
        try:
            document = _document(body)
            self._act(name, document)
        except BadAnswer as why:
            self._refuse(400, str(why))

    def _act(self, name: str, document: Mapping[str, Any]) -> None:
        if name == "failed":
            self.exchange.fail(str(document.get("what", "")))
            self._send({})
        elif name == "start" and not self.exchange.begin(_start(document)):
            self._refuse(409, "this address was used already")
        elif name == "start":
            self._send({})
        else:
            self._send(self.exchange.claim(Claim(verdict=str(document.get("verdict", ""))[:20])))
            self.wfile.flush()
            self.exchange.told.set()

    def _name(self) -> str | None:
        """The name behind the token; None without it."""
        token, slash, name = self.path.removeprefix("/").partition("/")
        right = hmac.compare_digest(token.encode(), self.exchange.token.encode())
        if not right or not slash:
            return None
        return name.partition("?")[0]

    def _body(self, most: int) -> bytes | None:
        text = self.headers.get("Content-Length", "")
        if not text.isdecimal() or len(text) > 15:
            self._refuse(411, "how long is it?")
            return None
        if int(text) > most:
            self._refuse(413, f"more than {most:,} bytes")
            return None
        return self.rfile.read(int(text))

    def _send(self, document: Mapping[str, Any], code: int = 200) -> None:
        body = json.dumps(document).encode()
        self._begin(code, "application/json", len(body))
        self.wfile.write(body)

    def _refuse(self, code: int, why: str) -> None:
        self.close_connection = True  # what was not read must not be taken for a request
        self._send({"error": why}, code)

    def _begin(self, code: int, kind: str, size: int) -> None:
        self.send_response(code)
        for header, value in _HEADERS.items():
            self.send_header(header, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(size))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()

    def version_string(self) -> str:
        return "onnxproof"

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: only the command line prints, and an address holds the token."""


def _handler(exchange: _Exchange) -> type[_Handler]:
    """A handler class that knows its exchange."""
    return type("Handler", (_Handler,), {"exchange": exchange})


def _document(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as why:
        raise BadAnswer("this is not JSON") from why
    if not isinstance(document, dict):
        raise BadAnswer("this is no object")
    return document


def _start(document: Mapping[str, Any]) -> Start:
    chosen, failed = document.get("providers"), document.get("failed", {})
    about = document.get("about", {})
    if not isinstance(chosen, list) or not isinstance(failed, dict) or not isinstance(about, dict):
        raise BadAnswer("a start names its providers")
    known = [provider for provider in PROVIDERS if provider in chosen]
    if not known or len(known) != len(chosen):
        raise BadAnswer(f"the providers are {', '.join(PROVIDERS)}")
    return Start(
        backends=tuple(_PREFIX + provider for provider in chosen),
        failed={_PREFIX + str(name): str(why)[:400] for name, why in failed.items()},
        about={str(name)[:40]: str(value)[:300] for name, value in list(about.items())[:20]},
    )


def own_address() -> str:
    """The address of this machine in its network, as far as its routes tell; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # a network of examples (RFC 5737)
            return str(probe.getsockname()[0])
        except OSError:
            return socket.gethostname()
