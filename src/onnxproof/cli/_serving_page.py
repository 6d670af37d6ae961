"""The options of `replay --serve`, and what is said where the page is to be found."""

import io
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from onnxproof.errors import UsageError
from onnxproof.options import Listening

_LOCAL = ("127.0.0.1", "localhost")
_ADDRESS = re.compile(r"(?P<host>[\w.-]*)(?::(?P<port>\d{1,5}))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Whether the cases are run in a browser, and where it finds them."""

    address: Annotated[
        str | None,
        typer.Argument(metavar="[HOST:PORT]", help="Where `--serve` listens.", show_default=False),
    ] = None
    serve: Annotated[
        bool,
        typer.Option(
            "--serve",
            help="Serve a page that runs the cases in the browser that opens it (WebAssembly, WebGPU, WebNN); what it answers is judged here.",
        ),
    ] = False
    host: Annotated[
        str | None,
        typer.Option(
            "--host",
            metavar="HOST",
            help="With `--serve`: 0.0.0.0 lets other machines in, such as a phone. [default: 127.0.0.1]",
        ),
    ] = None
    wait: Annotated[
        float,
        typer.Option(
            "--wait", metavar="SECONDS", help="With `--serve`: until somebody has started it."
        ),
    ] = 600.0

    def listening(self, backends: Sequence[str] | None) -> Listening | None:
        """Where to listen; None without `--serve`."""
        if not self.serve:
            self._refuse_address()
            return None
        if backends:
            raise UsageError(
                "usage",
                "`--serve` and `--backend` don't go together",
                help="where it runs is chosen on the page",
            )
        match = _ADDRESS.fullmatch(self.address or "")
        if match is None or int(match["port"] or 0) > 65535 or not self.wait > 0:
            raise UsageError(
                "bad-address",
                f"`{self.address}` is no address to listen at for {self.wait:g} s",
                help="give HOST:PORT, such as 127.0.0.1:8000, and a positive `--wait`",
            )
        host = self.host or match["host"] or _LOCAL[0]
        return Listening(host=host, port=int(match["port"] or 0), wait_s=self.wait)

    def _refuse_address(self) -> None:
        if self.address is not None or self.host is not None:
            raise UsageError(
                "usage",
                "an address to listen at was given without `--serve`",
                help="add `--serve`",
            )


def announcer(listening: Listening) -> Callable[[str], None]:
    """Says where the page is, on standard error; for other machines what that means, and a code for a phone's camera."""

    def announce(address: str) -> None:
        lines = [f"onnxproof: open {address}"]
        if listening.host not in _LOCAL:
            lines += [
                "  = note: whoever is in this network and knows this address can fetch the model and the bundle, once, until the replay ends",
                "  = note: a browser has WebGPU, WebNN and threads only on https or localhost: for a phone on a cable, "
                f"`adb reverse tcp:{_port(address)} tcp:{_port(address)}` makes it localhost",
                *_code(address),
            ]
        sys.stderr.write("\n".join(lines) + "\n")
        sys.stderr.flush()

    return announce


def _port(address: str) -> str:
    return address.split("/")[2].rpartition(":")[2]


def _code(address: str) -> list[str]:
    """A QR code as text."""
    try:
        import segno
    except ImportError:
        return ["  = help: pip install 'onnxproof[serve]' adds a QR code"]
    text = io.StringIO()
    segno.make(address, error="l", micro=False).terminal(text, compact=True)
    return ["", text.getvalue().rstrip("\n")]
