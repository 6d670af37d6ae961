"""What a call may not do: die, hang, tell a bug as an error, say nothing, or call a wrong file faithful."""

import json
import re
from pathlib import Path

from bench.fuzz.process import Ended
from bench.fuzz.samples import SOUND, Call

_CODES = (0, 1, 2, 3)
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x9f\u202a-\u202e\u2066-\u2069]")
_SAID = re.compile(r"error\[([a-z0-9-]+)\]: *(.*)")


def faults(call: Call, ended: Ended, folder: Path) -> list[str]:
    """Everything that is bad about the way a call ended; wrong verdicts are the oracle's business."""
    said = ended.out + ended.err
    found = []
    if ended.hang:
        found.append("hang")
    if ended.signal:
        found.append(f"signal {ended.signal}")
    if "Traceback (most recent call last)" in said:
        found.append("traceback")
    if "error[internal]" in said or "error[internal]" in _written(folder):
        found.append("error[internal]")
    if "could not be located: " in said or "could not be located: " in _written(folder):
        found.append("explanation failed")
    if ended.code is not None and ended.code not in _CODES:
        found.append(f"exit code {ended.code}")
    if ended.code == 2 and not any(what.strip() for _, what in _SAID.findall(said)):
        found.append("no message")
    if _CONTROL.search(said):
        found.append("control characters")
    strict = "--strict" in call.words  # then a warning counts
    if call.kind == SOUND and ended.code not in (0, None) and not strict:
        found.append("a sound file is refused")
    return found


def codes(ended: Ended) -> list[str]:
    """The codes of the errors that were told."""
    return [code for code, _ in _SAID.findall(ended.out + ended.err)]


def verdict(folder: Path) -> str:
    """The verdict that was written, if any."""
    try:
        document = json.loads(_written(folder))
    except (ValueError, RecursionError):
        return ""
    return str(document.get("verdict", "")) if isinstance(document, dict) else ""


def _written(folder: Path) -> str:
    path = folder / "out.json"
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
