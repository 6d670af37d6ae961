"""Runtimes in JavaScript: where Node, a browser and the npm packages are, and a session on them."""

import json
import os
import shutil
import subprocess
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from onnxproof.errors import BackendMissing
from onnxproof.runtimes import current
from onnxproof.runtimes.isolation.child import ChildSession
from onnxproof.runtimes.session import download_cache
from onnxproof.runtimes.session.ports import Ports

HERE = Path(__file__).parent


def install(package: str) -> str:
    """The command that installs a package where we look; the post-install script would only fetch CUDA."""
    return f"npm install --ignore-scripts --prefix {download_cache.folder('npm')} {package}"


def version(package: str) -> str:
    """The version of an npm package, or an empty string."""
    found = _find(package)
    return (
        str(json.loads((found / "package.json").read_text(encoding="utf-8"))["version"])
        if found
        else ""
    )


def program(*names: str) -> str:
    """The first of these programs that there is, or an empty string."""
    return next((path for path in map(shutil.which, names) if path), "")


def needed(package: str, backend: str) -> Path:
    """The folder of an npm package."""
    found = _find(package)
    if found is None:
        raise BackendMissing(
            "backend-missing",
            f"the backend `{backend}` needs the npm package {package}",
            help=install(package),
        )
    return found


def node(backend: str) -> str:
    """Node itself."""
    found = program("node", "nodejs")
    if not found:
        raise BackendMissing(
            "backend-missing",
            f"the backend `{backend}` needs Node",
            help="install Node 20 or newer from nodejs.org or by your system's packages",
        )
    return found


def settings(backend: str, package: Path, model: Path, provider: str) -> dict[str, Any]:
    """What a script is told; a file that is no model is told of here, in our words."""
    ports = Ports(model, backend)
    return {
        "package": str(package),
        "model": str(model.absolute()),
        "provider": provider,
        "inputs": ports.input_names,
        "outputs": ports.output_names,
        "external": ports.external,
        "serving": asdict(current()),
    }


def open_in_node(backend: str, package: str, model: Path, *, provider: str) -> ChildSession:
    """A session in Node: the script answers over the same door as every child."""
    command = [
        node(backend),
        str(HERE / "node.mjs"),
        json.dumps(settings(backend, needed(package, backend), model, provider)),
    ]
    return ChildSession(backend, command, current())


def _find(package: str) -> Path | None:
    given = os.environ.get("ONNXPROOF_NODE_MODULES")
    places = [Path(given)] if given else []
    places += [download_cache.folder("npm") / "node_modules", Path.cwd() / "node_modules"]
    found = next(
        (place / package for place in places if (place / package / "package.json").is_file()), None
    )
    if (
        found is None
        and (shared := _shared()) is not None
        and (shared / package / "package.json").is_file()
    ):
        return shared / package
    return found


@cache
def _shared() -> Path | None:
    """The folder of packages that were installed with `npm install --global`; asking npm takes a while, so that it is asked once."""
    npm = program("npm")
    if not npm:
        return None
    done = subprocess.run(
        [npm, "root", "--global"], capture_output=True, text=True, timeout=30, check=False
    )
    return Path(done.stdout.strip()) if done.returncode == 0 and done.stdout.strip() else None
