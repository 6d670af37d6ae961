"""Suites for tests: a folder with factories that behave in many ways, and ONNX files."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.linear_files import candidates, reference

ROOT = Path(__file__).parents[2]
UNRULY = """

import os
import signal
import sys
import time


def crash():
    print("about to crash", flush=True)
    os.kill(os.getpid(), signal.SIGSEGV)


def hang():
    print("waiting without end", flush=True)
    time.sleep(10_000)


def leave():
    os._exit(0)


def quit():
    sys.exit(7)


def abort():
    os.abort()


def eat():
    kept = []
    while True:
        kept.append(torch.ones(25_000_000))


def chatter():
    mark = chr(30)
    for _ in range(50):
        print(mark + 'onnxproof-suite {"name": "chatter", "status": 0, "ended": "", "words": ""}')
        print('{"verdict": "diverged"}')
    os.write(1, bytes(range(256)) * 500)
    return build()


def killed():
    os.kill(os.getpid(), signal.SIGKILL)


def once():
    mark = __file__.replace("model.py", "was-here")
    if not os.path.exists(mark):
        open(mark, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return build()


def slow():
    time.sleep(float(os.environ.get("SLOW_S", "0.3")))
    return build()
"""


def make_folder(folder: Path) -> Path:
    """model.py with factories, good.onnx, drift.onnx and bad.onnx."""
    reference(folder)
    candidates(folder)
    with (folder / "model.py").open("a") as file:
        file.write(UNRULY)
    return folder


def onnxproof(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command line, in a folder."""
    return subprocess.run(
        [sys.executable, "-m", "onnxproof", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=280,
        env={**os.environ, **environment},
    )


def verdicts(path: Path) -> dict[str, str]:
    """By model; a name that comes twice is an error."""
    results: list[dict[str, Any]] = json.loads(path.read_text())["results"]
    names = [result["name"] for result in results]
    assert len(names) == len(set(names))
    return {result["name"]: result["verdict"] for result in results}
