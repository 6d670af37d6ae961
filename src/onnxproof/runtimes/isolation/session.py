"""Any backend in a process of its own: a crash, an abort, a hang or a flood of memory there is a finding here, and nothing else is lost."""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from onnxproof.options import Serving
from onnxproof.runtimes import current
from onnxproof.runtimes.isolation.child import ChildSession

_BOOT = """
import importlib.util, json, runpy, sys
folder, settings = sys.argv[1], json.loads(sys.argv[2])
sys.path[:] = settings["path"] or sys.path
spec = importlib.util.spec_from_file_location("onnxproof", folder + "/__init__.py", submodule_search_locations=[folder])
sys.modules["onnxproof"] = module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
runpy.run_module("onnxproof.runtimes.isolation.server", run_name="__main__")
"""
"""Runs this very onnxproof, also under an interpreter that has another one or none."""


class IsolatedSession(ChildSession):
    """A session of `backend` in a child process; `python` may be that of another virtual environment."""

    def __init__(
        self,
        backend: str,
        model: Path,
        serving: Serving | None = None,
        *,
        name: str = "",
        python: str = "",
    ) -> None:
        serving = serving or current()
        settings = {
            "backend": backend,
            "model": str(model),
            "serving": asdict(serving),
            "path": [] if python else [p for p in sys.path if p],
        }
        command = [
            python or sys.executable,
            "-c",
            _BOOT,
            str(Path(__file__).parents[2]),
            json.dumps(settings),
        ]
        super().__init__(
            name or backend,
            command,
            serving,
            environment=_environment(alone=bool(python)),
        )


def _environment(*, alone: bool) -> Mapping[str, str]:
    """Our own, but for what would lead another environment's interpreter to our packages."""
    return {
        name: value
        for name, value in os.environ.items()
        if not alone or name not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    }
