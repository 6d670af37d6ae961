"""ONNX Runtime as WebAssembly: `ort-web` in Node, `ort-web:chromium` in a browser without a window."""

import json
import sys
from pathlib import Path

from onnxproof.errors import BackendMissing, UsageError
from onnxproof.runtimes import Description, current
from onnxproof.runtimes.isolation.child import ChildSession
from onnxproof.runtimes.javascript import node

OWN_PROCESS = True
_PACKAGE = "onnxruntime-web"
_BROWSERS = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "msedge",
)


def browser() -> str:
    """The browser that `ort-web:chromium` would use, or an empty string."""
    return node.program(*_BROWSERS)


def describe() -> Description:
    """What `onnxproof backends` prints."""
    programs = {"node": node.program("node", "nodejs"), "chromium": browser()}
    places = [name for name, path in programs.items() if path]
    version = node.version(_PACKAGE) if places else ""
    return Description(
        name="ort-web",
        about="ONNX Runtime as WebAssembly: ort-web in Node, ort-web:chromium in a browser",
        installed=bool(version),
        version=version,
        device=", ".join(places),
        install=node.install(_PACKAGE),
        limits="WebAssembly holds at most 4 GB; no bfloat16; apart",
    )


def open(model: Path, option: str = "") -> ChildSession:
    """Open a file in Node's WebAssembly, or in a browser's."""
    if option in ("", "node"):
        return node.open_in_node("ort-web", _PACKAGE, model, provider="wasm")
    if option != "chromium":
        raise UsageError(
            "unknown-option",
            f"`ort-web:{option}` is not a place where ort-web runs",
            help="use `ort-web` or `ort-web:chromium`",
        )
    if not browser():
        raise BackendMissing(
            "backend-missing",
            "the backend `ort-web:chromium` needs a browser",
            notes=[f"none of {', '.join(_BROWSERS)} is on the path"],
            help="apt-get install chromium, or Chrome from its own site",
        )
    package = node.require_package(_PACKAGE, "ort-web")
    settings = node.settings("ort-web", package, model, "wasm")
    settings["browser"] = browser()
    script = Path(__file__).parent / "javascript" / "browser.py"
    command = [sys.executable, "-I", str(script), json.dumps(settings)]
    return ChildSession("ort-web:chromium", command, current())
