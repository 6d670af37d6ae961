"""Run, then hand the proof on: files where they were asked for, a report for people, and the exit code."""

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onnxproof.cli._dispatch import ERROR, internal
from onnxproof.cli._options import Debug, Quiet, Verbose
from onnxproof.cli._progress import Report, progress
from onnxproof.errors import OnnxproofError, Stopped, UsageError
from onnxproof.results import Verdict
from onnxproof.system import writing
from onnxproof.system.text import block

if TYPE_CHECKING:
    from onnxproof.results.proof import Proof
    from onnxproof.verification.progress import Progress

_CODES = {
    Verdict.FAITHFUL: 0,
    Verdict.DRIFT: 0,
    Verdict.DIVERGED: 1,
    Verdict.ERROR: ERROR,
    Verdict.VACUOUS: 3,
}
WRITERS = ("json", "html", "junit", "markdown", "sarif")
"""Each is a file `report/writers/<name>.py` and an option `--<name>`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """Where the proof goes, and how much is said."""

    json: Annotated[
        str | None,
        typer.Option(
            "--json",
            metavar="PATH",
            help="Write the proof as JSON; - is standard output, here and below.",
        ),
    ] = None
    html: Annotated[
        str | None,
        typer.Option(
            "--html", metavar="PATH", help="Write a report to look at: one file that opens offline."
        ),
    ] = None
    junit: Annotated[
        str | None,
        typer.Option(
            "--junit",
            metavar="PATH",
            help="Write JUnit XML: a test case for each case group and backend.",
        ),
    ] = None
    markdown: Annotated[
        str | None,
        typer.Option("--markdown", metavar="PATH", help="Write a summary for a pull request."),
    ] = None
    sarif: Annotated[
        str | None, typer.Option("--sarif", metavar="PATH", help="Write SARIF for code scanning.")
    ] = None
    github: Annotated[
        bool,
        typer.Option(
            "--github",
            help="In a GitHub workflow: annotate the guilty line, and add the summary to $GITHUB_STEP_SUMMARY.",
        ),
    ] = False
    quiet: Quiet = False
    verbose: Verbose = False
    debug: Debug = False

    @property
    def files(self) -> dict[str, str]:
        """The path of each writer that was asked for."""
        return {writer: path for writer in WRITERS if (path := getattr(self, writer)) is not None}

    @property
    def to_stdout(self) -> bool:
        """True when standard output belongs to a writer."""
        return "-" in self.files.values()

    def checked(self) -> "Delivery":
        """Itself, if everything can be written: better known now than after a minute of work."""
        if list(self.files.values()).count("-") > 1:
            raise UsageError(
                "usage", "only one report can go to standard output", help="give the others a path"
            )
        for path in self.files.values():
            if path != "-":
                writing.check(path)
        for writer in self.files:
            getattr(load(writer), "check", lambda: None)()
        return self


def load(writer: str) -> Any:
    """The module of a writer: `dumps(proof)`, `failure(error)`, and `check()` where it needs packages."""
    return importlib.import_module(f"onnxproof.report.writers.{writer}")


def exit_code(proof: "Proof") -> int:
    """The contract's table: drift fails only where the policy is strict, and a finding that fails (a baseline that was left) does so under any verdict."""
    return _CODES[proof.verdict] or int(not proof.passed)


def deliver(run: Callable[[Report | None], "Proof"], where: Delivery) -> int:
    """Run with progress; an error before anything was measured is written to the files too, and raised again."""
    where.checked()
    try:
        with _stdout_reserved(where.to_stdout), progress(quiet=where.quiet) as report:
            proof = run(_write_early(report, where))
    except Stopped as why:  # what was measured before Ctrl-C is written and shown
        proof = why.proof
    except Exception as why:
        # a bug of ours or of a package is reported as one, and never as a verdict
        error = why if isinstance(why, OnnxproofError) else internal(why)
        _write(where, lambda writer: writer.failure(error.render()))
        if error is why:
            raise
        raise error from why
    hand_on(proof, where)
    return exit_code(proof)


def _write_early(report: Report | None, where: Delivery) -> Report:
    """Progress for people, and the proof as soon as there is a verdict: what explains it runs native code on wrong arguments, which may end the process."""
    from onnxproof.report.terminal import headline

    def report_both(state: "Progress") -> None:
        if state.proof is not None:
            sys.stderr.write(f"onnxproof: {headline(state.proof).plain}\n")
            sys.stderr.flush()
            # what can't be written is an error at the end, when it is tried again
            with suppress(Exception):
                _write(where, lambda writer: writer.dumps(state.proof), again=True)
        if report is not None:
            report(state)

    return report_both


def bundled(proof: "Proof", path: str | None) -> "Proof":
    """The proof, with its bundle written where one was asked for."""
    if path is not None:
        proof.to_bundle(path)
    return proof


def hand_on(proof: "Proof", where: Delivery) -> None:
    """Write and print; what people read goes to standard error when a writer has the other."""
    from onnxproof.report import terminal

    out = terminal.console(stderr=where.to_stdout)
    if where.quiet:
        terminal.summary(proof, out)
    else:
        terminal.show(proof, out, verbose=where.verbose)
    write_files(proof, where)
    if proof.error:
        sys.stderr.write(block(proof.error) + "\n")


def write_files(proof: "Proof", where: Delivery) -> None:
    """Every report that was asked for besides the one for people."""
    _write(where, lambda writer: writer.dumps(proof))
    if where.github:
        from onnxproof.report import github

        stream = sys.stderr if where.to_stdout else sys.stdout
        stream.write(github.annotations(proof))
        github.add_summary(proof)


def _write(where: Delivery, text: Callable[[Any], str], *, again: bool = False) -> None:
    """Every file that was asked for; those that can be written `again` are regular files, and neither a pipe nor standard output."""
    for name, path in where.files.items():
        if path != "-" and (not again or writing.replaceable(path)):
            writing.write_text(text(load(name)), path)
        elif not again:
            sys.stdout.write(text(load(name)))


@contextmanager
def _stdout_reserved(active: bool) -> Iterator[None]:
    """Whatever prints during the run (a factory, a native library) prints to standard error, so that a pipe gets the report and nothing else."""
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
