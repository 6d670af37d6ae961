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
    folder = _find(package)
    if folder is None:
        return ""
    text = (folder / "package.json").read_text(encoding="utf-8")
    return str(json.loads(text)["version"])


def program(*names: str) -> str:
    """The first of these programs that there is, or an empty string."""
    return next((path for path in map(shutil.which, names) if path), "")


def require_package(package: str, backend: str) -> Path:
    """The folder of an npm package."""
    folder = _find(package)
    if folder is None:
        raise BackendMissing(
            "backend-missing",
            f"the backend `{backend}` needs the npm package {package}",
            help=install(package),
        )
    return folder


def require_node(backend: str) -> str:
    """The path of Node itself."""
    path = program("node", "nodejs")
    if not path:
        raise BackendMissing(
            "backend-missing",
            f"the backend `{backend}` needs Node",
            help="install Node 20 or newer from nodejs.org or by your system's packages",
        )
    return path


def settings(
    backend: str,
    package: Path,
    model: Path,
    provider: str,
) -> dict[str, Any]:
    """The settings of a script; a file that is no model is refused here, in our words."""
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


def open_in_node(
    backend: str,
    package: str,
    model: Path,
    *,
    provider: str,
) -> ChildSession:
    """A session in Node: the script answers in the same way as every child."""
    path = require_node(backend)
    folder = require_package(package, backend)
    text = json.dumps(settings(backend, folder, model, provider))
    command = [path, str(HERE / "node.mjs"), text]
    return ChildSession(backend, command, current())


def _find(package: str) -> Path | None:
    folders = [download_cache.folder("npm") / "node_modules", Path.cwd() / "node_modules"]
    chosen = os.environ.get("ONNXPROOF_NODE_MODULES")
    if chosen:
        folders.insert(0, Path(chosen))
    for folder in folders:
        if _has_package(folder, package):
            return folder / package
    shared = global_packages()
    if shared is not None and _has_package(shared, package):
        return shared / package
    return None


def _has_package(folder: Path, package: str) -> bool:
    return (folder / package / "package.json").is_file()


@cache
def global_packages() -> Path | None:
    """The folder of packages that were installed with `npm install --global`; asking npm takes a while, so that it is asked once."""
    npm = program("npm")
    if not npm:
        return None
    done = subprocess.run(
        [npm, "root", "--global"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    folder = done.stdout.strip()
    if done.returncode != 0 or not folder:
        return None
    return Path(folder)
