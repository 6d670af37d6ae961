"""Run a suite of models, go on after a kill, and fail on new faults alone."""

import importlib
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onnxproof.cli import _options as option
from onnxproof.cli._suite_progress import progress
from onnxproof.errors import OnnxproofError, UsageError
from onnxproof.system import writing

if TYPE_CHECKING:
    from onnxproof.suite.run import SuiteOptions, SuiteResult
    from onnxproof.suite.store import Store

_WRITERS = ("json", "junit", "markdown")
"""Each is a file `suite/writers/<name>.py` and an option `--<name>`."""
_HISTORY = "history.sqlite"
"""Beside the manifest: where `--changed` keeps runs that nobody named a file for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """What is run, where, and within which limits."""

    history: Annotated[
        str | None,
        typer.Option(
            "--history",
            metavar="FILE",
            help="Keep every run in this SQLite file; a run that was killed goes on from it. [default with --changed: history.sqlite beside the manifest]",
        ),
    ] = None
    engine: Annotated[
        str,
        typer.Option(
            "--engine", metavar="local|ray", help="Processes of this machine, or a Ray cluster."
        ),
    ] = "local"
    address: Annotated[
        str | None,
        typer.Option(
            "--address",
            metavar="ADDRESS",
            help="Of a Ray cluster, such as auto or ray://host:10001. [default: one is started here]",
        ),
    ] = None
    time_limit: Annotated[
        float | None,
        typer.Option(
            "--time-limit",
            metavar="SECONDS",
            help="For one model, which is ended as an error then. [default: 600 beyond twice its budget]",
        ),
    ] = None
    memory_limit: Annotated[
        float | None,
        typer.Option(
            "--memory-limit",
            metavar="GB",
            help="For all models that run at the same time. [default: 3/4 of the machine's]",
        ),
    ] = None
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs", "-j", metavar="N", help="Cores to use. [default: all of this machine]"
        ),
    ] = None
    changed: Annotated[
        bool,
        typer.Option(
            "--changed",
            help="Run only what changed since the last result: code, weights, files, data, limits, versions.",
        ),
    ] = False
    tag: Annotated[
        list[str] | None,
        typer.Option("--tag", metavar="TAG", help="Only models with this tag; may be repeated."),
    ] = None
    model: Annotated[
        list[str] | None,
        typer.Option("--model", metavar="NAME", help="Only this model; may be repeated."),
    ] = None
    fresh: Annotated[
        bool,
        typer.Option(
            "--fresh", help="Begin anew, also where a run of the same plan was not finished."
        ),
    ] = False
    update_baseline: Annotated[
        bool,
        typer.Option("--update-baseline", help="Write the baselines of models that pass anew."),
    ] = False

    def history_of(self, manifest: str) -> Path | None:
        """Where runs are kept: `--changed` needs a place, and has one of its own where none was given."""
        history = None
        if self.history is not None:
            history = Path(self.history)
        elif self.changed:
            history = Path(manifest).parent / _HISTORY
        if history is not None:
            writing.check(str(history), what="the history", regular=True)
        return history

    def options(self, manifest: str) -> "SuiteOptions":
        """The same as `suite.run` takes them, if they make sense."""
        from onnxproof.suite.engines import ENGINES
        from onnxproof.suite.run import SuiteOptions

        ENGINES.load(self.engine)
        for name in ("time_limit", "memory_limit", "jobs"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise UsageError(
                    "bad-limit",
                    f"`--{name.replace('_', '-')} {value:g}` lets nothing run",
                    help="give a number above 0, or leave it out",
                )
        return SuiteOptions(
            history=self.history_of(manifest),
            engine=self.engine,
            address=self.address or "",
            time_s=self.time_limit,
            memory_gb=self.memory_limit,
            jobs=self.jobs,
            changed=self.changed,
            tags=tuple(self.tag or ()),
            names=tuple(self.model or ()),
            fresh=self.fresh,
            update_baseline=self.update_baseline,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Where the results go, and how much is said."""

    json: Annotated[
        str | None,
        typer.Option(
            "--json", metavar="PATH", help="Write the results as JSON; - is standard output."
        ),
    ] = None
    junit: Annotated[
        str | None,
        typer.Option(
            "--junit", metavar="PATH", help="Write JUnit XML: a test case for each model."
        ),
    ] = None
    markdown: Annotated[
        str | None,
        typer.Option("--markdown", metavar="PATH", help="Write a summary for a pull request."),
    ] = None
    html: Annotated[
        str | None,
        typer.Option(
            "--html", metavar="PATH", help="Write a dashboard of the suite and its history."
        ),
    ] = None
    mlflow: Annotated[
        str | None,
        typer.Option(
            "--mlflow",
            metavar="URI",
            help="Log metrics, proofs and reports to this MLflow tracking server, and tag registered models of the same names.",
        ),
    ] = None
    github: Annotated[
        bool,
        typer.Option(
            "--github",
            help="In a GitHub workflow: annotate new faults, and add the summary to $GITHUB_STEP_SUMMARY.",
        ),
    ] = False
    quiet: option.Quiet = False
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also the models that are fine.")
    ] = False
    debug: option.Debug = False

    @property
    def files(self) -> dict[str, str]:
        """The path of each writer that was asked for."""
        return {name: path for name in _WRITERS if (path := getattr(self, name)) is not None}

    @property
    def to_stdout(self) -> bool:
        """True when standard output belongs to a writer."""
        return "-" in self.files.values()

    def check(self) -> None:
        """Better known now than after hours of work."""
        if list(self.files.values()).count("-") > 1:
            raise UsageError(
                "usage", "only one report can go to standard output", help="give the others a path"
            )
        for path in (*self.files.values(), self.html):
            if path not in (None, "-"):
                writing.check(path, what="the results")
        if self.html is not None:
            _dashboard()
        if self.mlflow is not None:
            from onnxproof.report import mlflow

            mlflow.check(self.mlflow)


@option.folded
def command(
    manifest: Annotated[
        str, typer.Argument(help="The suite as TOML: [suite] and one [[model]] for each.")
    ],
    running: Running,
    output: Output,
) -> int:
    """A suite from the command line."""
    options = running.options(manifest)
    output.check()
    untracked: list[OnnxproofError] = []

    def write_from_store(store: "Store", result: "SuiteResult") -> None:
        _write_page(output, store, result)
        try:
            _track(output, store, result)
        except OnnxproofError as why:  # raised when everything else is written
            untracked.append(why)

    try:
        from onnxproof.suite.run import run

        with progress(quiet=output.quiet) as report:
            result = run(manifest, options, report, write_from_store)
    except OnnxproofError as why:
        message = why.render()
        _write(output, lambda writer: writer.failure(message))
        raise
    _write(output, lambda writer: writer.dumps(result))
    _show(result, output)
    if result.missing:
        _say_how_to_go_on(result, options)
    if untracked:
        raise untracked[0]
    return result.exit_code


def _load(writer: str) -> Any:
    return importlib.import_module(f"onnxproof.suite.writers.{writer}")


def _dashboard() -> Any:
    """The module that makes the page: it may need packages that are not installed."""
    module: Any = importlib.import_module("onnxproof.suite.dashboard")
    getattr(module, "check", lambda: None)()
    return module


def _write_page(output: Output, store: "Store", result: "SuiteResult") -> None:
    if output.html is not None:
        page = _dashboard().page(store, result.run.suite)
        writing.write_text(page, output.html, what="the dashboard")


def _track(output: Output, store: "Store", result: "SuiteResult") -> None:
    if output.mlflow is not None:
        from onnxproof.suite import tracking

        tracking.log(store, result.run.id, output.mlflow)


def _write(output: Output, text: Any) -> None:
    for name, path in output.files.items():
        content = text(_load(name))
        if path == "-":
            sys.stdout.write(content)
        else:
            writing.write_text(content, path, what="the results")


def _show(result: "SuiteResult", output: Output) -> None:
    from onnxproof.cli import _suite_table
    from onnxproof.report import terminal

    out = terminal.console(stderr=output.to_stdout)
    _suite_table.show(result, out, quiet=output.quiet, verbose=output.verbose)
    if output.github:
        from onnxproof.report.github import append_summary

        stream = sys.stderr if output.to_stdout else sys.stdout
        stream.write(_load("github").dumps(result))
        append_summary(_load("markdown").dumps(result))


def _say_how_to_go_on(result: "SuiteResult", options: "SuiteOptions") -> None:
    advice = "nothing is kept without --history: the next start begins anew"
    if options.history is not None:
        advice = "the same command goes on where this one stopped"
    sys.stderr.write(
        f"onnxproof: stopped with {len(result.results)} of "
        f"{len(result.results) + len(result.missing)} models done\n  = help: {advice}\n"
    )
