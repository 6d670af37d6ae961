"""A Python for each other tool of `make bench-quantize`: ours where the tool is part of the extra `bench`, else an environment of its own.

AIMET and onnxsim bring versions of their own along, so they go to `.quantizers/`, under constraints.txt as far as these reach. What does not
install is a row of the table with pip's last words, never a gap that nobody sees.
"""

import functools
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
APART = {"aimet": "aimet-onnx", "onnxsim": "onnxsim"}
"""Tools with an environment of their own, and what pip calls them."""
TOOLS = ("ort default", "ort u8s8 per channel", "nncf", *APART)
_LIMIT_S = 900


class NotThere(Exception):
    """A tool that can't be had here, with the reason."""


def python_of(tool: str) -> str:
    """The interpreter to run a tool with; NNCF_PYTHON, AIMET_PYTHON and ONNXSIM_PYTHON name one that is there already."""
    given = os.environ.get(f"{tool.split()[0].upper()}_PYTHON")
    return given or (_installed(tool) if tool in APART else sys.executable)


@functools.cache
def _installed(tool: str) -> str:
    place = ROOT / ".quantizers" / tool
    python, ready = place / "bin" / "python", place / ".ready"
    if not ready.is_file():
        print(f"  installing {APART[tool]} into {place.relative_to(ROOT)} ...", file=sys.stderr)
        _run([sys.executable, "-m", "venv", str(place)])
        _run(
            [
                str(python),
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                "--constraint",
                str(ROOT / "constraints.txt"),
                APART[tool],
            ]
        )
        ready.touch()
    return str(python)


def _run(words: list[str]) -> None:
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise NotThere(f"did not install within {_LIMIT_S} s") from None
    if done.returncode:
        raise NotThere(f"did not install: {last_line(done.stderr)}")


def last_line(text: str) -> str:
    """The last line that says something: an error's where there is one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next(
        (line for line in reversed(lines) if line.startswith("ERROR")),
        lines[-1] if lines else "no reason given",
    )[:200]


def make(tool: str, source: Path, calibration: Path, target: Path) -> None:
    """Let a tool quantize a model in a process of its own."""
    script = str(Path(__file__).with_name("quantize_others.py"))
    done = subprocess.run(
        [python_of(tool), script, tool, str(source), str(calibration), str(target)],
        capture_output=True,
        text=True,
        check=False,
        timeout=_LIMIT_S,
        env=os.environ | {"NNCF_CI": "1"},
    )  # no telemetry
    if done.returncode or not target.is_file():
        raise NotThere(f"failed: {last_line(done.stderr)}")
