"""Run, then hand the proof on: JSON where it was asked for, a report for people, and the exit code."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from onnxproof.cli._dispatch import ERROR, internal
from onnxproof.cli._progress import Report, progress
from onnxproof.errors import OnnxproofError, UsageError
from onnxproof.types import Verdict

if TYPE_CHECKING:
    from onnxproof.proof import Proof

_CODES = {Verdict.FAITHFUL: 0, Verdict.DIVERGED: 1, Verdict.ERROR: ERROR, Verdict.VACUOUS: 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """Where the proof goes, and how much is said."""

    json: str | None = None
    quiet: bool = False
    verbose: bool = False

    @property
    def to_stdout(self) -> bool:
        """True when standard output belongs to JSON."""
        return self.json == "-"


def exit_code(proof: "Proof") -> int:
    """The contract's table: drift fails only where the policy is strict."""
    if proof.verdict is Verdict.DRIFT:
        return 1 if proof.policy.strict else 0
    return _CODES[proof.verdict]


def deliver(run: Callable[[Report | None], "Proof"], where: Delivery) -> int:
    """Run with progress; an error before anything was measured is written as JSON too, and raised again."""
    _check(where.json)
    try:
        with _kept_for_json(where.to_stdout), progress(quiet=where.quiet) as report:
            proof = run(report)
    except OnnxproofError as why:
        _write_failure(where, why)
        raise
    except Exception as why:  # a bug of ours or of a package: it is told as one, and never as a verdict
        told = internal(why)
        _write_failure(where, told)
        raise told from why
    hand_on(proof, where)
    return exit_code(proof)


def hand_on(proof: "Proof", where: Delivery) -> None:
    """Write and print; what people read goes to standard error when JSON has the other."""
    from onnxproof.report import json_writer, terminal

    if where.json is not None and not where.to_stdout:
        json_writer.write(proof, where.json)
    out = terminal.console(stderr=where.to_stdout)
    if where.quiet:
        out.print(terminal.headline(proof), soft_wrap=True)
    else:
        terminal.show(proof, out, verbose=where.verbose)
    if where.to_stdout:
        sys.stdout.write(json_writer.dumps(proof))
    if proof.error:
        sys.stderr.write(proof.error + "\n")


def _check(path: str | None) -> None:
    """Better now than after a minute of work."""
    if path not in (None, "-") and not Path(path or "").absolute().parent.is_dir():
        raise UsageError("cannot-write", f"there is no folder `{Path(path or '').parent}` to write the proof to", where=str(path), help="make the folder first")


def _write_failure(where: Delivery, why: OnnxproofError) -> None:
    from onnxproof.report import json_writer

    text = json_writer.failure(why.render())
    if where.to_stdout:
        sys.stdout.write(text)
    elif where.json is not None:
        json_writer.write_text(text, where.json)


@contextmanager
def _kept_for_json(active: bool) -> Iterator[None]:
    """Whatever prints during the run (a factory, a native library) prints to standard error, so that a pipe gets JSON and nothing else."""
    if not active:
        yield
        return
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
