"""The child's side: open one model, greet, and answer request by request until the parent is gone."""

import faulthandler
import json
import os
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, Any

from onnxproof.errors import OnnxproofError
from onnxproof.options import Serving
from onnxproof.runtimes import Session, open_session
from onnxproof.runtimes.isolation.child import MARK
from onnxproof.runtimes.isolation.shared_arrays import Arena

_GONE_EVERY_S = 2.0
"""Seconds between two looks at whether the parent still lives. Not measured."""


def main() -> None:
    """Serve as the command line says: settings as JSON, then the folder of the shared files."""
    settings, folder = json.loads(sys.argv[2]), Path(sys.argv[3])
    faulthandler.enable()
    _die_first()
    out = _own_stdout()
    serving = replace(Serving(**settings["serving"]), isolate=False)
    try:
        session = open_session(settings["backend"], Path(settings["model"]), serving)
    except Exception as why:  # the runtime's own classes too: the parent must be told in words
        _say(out, {"error": _error_fields(why, "ModelError")})
        return
    findings = [asdict(finding) for finding in getattr(session, "findings", ())]
    _say(
        out,
        {
            "inputs": list(session.input_names),
            "outputs": list(session.output_names),
            "findings": findings,
        },
    )
    inputs = Arena(folder / "inputs")
    outputs = Arena(folder / "outputs")
    for line in sys.stdin:
        try:
            _say(out, _answer(session, json.loads(line), inputs, outputs))
        except Exception as why:  # see above
            _say(out, {"error": _error_fields(why, "Refused")})


def _answer(
    session: Session,
    request: Mapping[str, Any],
    inputs: Arena,
    outputs: Arena,
) -> dict[str, Any]:
    slots = request["inputs"]
    feeds = {
        slot["name"]: view
        for slot, view in zip(slots, inputs.view(slots), strict=True)
        if view is not None
    }
    start = time.perf_counter()
    values = session.run(feeds)
    seconds = time.perf_counter() - start
    return {
        "outputs": outputs.put({str(place): value for place, value in enumerate(values)}),
        "seconds": getattr(session, "seconds", seconds),
    }


def _error_fields(why: Exception, kind: str) -> dict[str, Any]:
    if isinstance(why, OnnxproofError):
        return {
            "kind": type(why).__name__,
            "code": why.code,
            "what": why.what,
            "where": why.where,
            "notes": why.notes,
            "help": why.help,
        }
    return {
        "kind": kind,
        "code": "raised",
        "what": f"the runtime raised {type(why).__name__}: {' '.join(str(why).split())[:400]}",
    }


def _say(out: IO[str], answer: Mapping[str, Any]) -> None:
    out.write(f"{MARK}{json.dumps(answer)}\n")
    out.flush()


def _own_stdout() -> IO[str]:
    """Standard output for us alone: what a runtime prints goes to standard error, where last words are looked for."""
    mine = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return mine


def _die_first() -> None:
    """When memory runs out, or when the parent is killed, it is this process that goes (on Linux)."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    threading.Thread(target=_leave_with, args=(os.getppid(),), daemon=True).start()


def _leave_with(parent: int) -> None:
    """End when the parent has, also in the midst of a run that hangs."""
    while os.getppid() == parent:
        time.sleep(_GONE_EVERY_S)
    os._exit(0)


if __name__ == "__main__":
    main()
