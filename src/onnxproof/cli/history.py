"""Say what moved in the recorded runs of a suite, since when, and with what."""

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from onnxproof.cli import _options as option
from onnxproof.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnxproof.suite.series import Recorded
    from onnxproof.suite.store import Store


def command(
    file: Annotated[str, typer.Argument(help="The file that `onnxproof suite --history` wrote.")],
    model: Annotated[
        str | None, typer.Option("--model", metavar="NAME", help="Every run of one model.")
    ] = None,
    suite: Annotated[
        str | None,
        typer.Option("--suite", metavar="NAME", help="The suite. [default: the one that ran last]"),
    ] = None,
    compare: Annotated[
        tuple[int, int] | None,
        typer.Option("--compare", metavar="RUN RUN", help="Two runs beside each other."),
    ] = None,
    json: Annotated[
        str | None,
        typer.Option("--json", metavar="PATH", help="Write it as JSON; - is standard output."),
    ] = None,
    html: Annotated[
        str | None,
        typer.Option(
            "--html", metavar="PATH", help="Write the dashboard: one file that opens offline."
        ),
    ] = None,
    report: Annotated[
        str | None,
        typer.Option(
            "--report", metavar="PATH", help="With --model: write its newest report as HTML."
        ),
    ] = None,
    debug: option.Debug = False,
) -> int:
    """Read a history; nothing is run."""
    from onnxproof.suite import history, history_words, series
    from onnxproof.suite.store import Store

    files = {"json": json, "html": html, "report": report}
    _check_paths(files, model)
    with Store(file) as store:
        recorded = series.read(store, suite)
        _check(recorded, file, suite, model)
        examined = history.examine(recorded)
        if compare is not None:
            examined = replace(examined, compared=history.compare(recorded, *compare))
        _write_pages(store, recorded, files, model)
    if json != "-":
        lines = list(history_words.lines(examined, model))
        if compare is not None:
            lines = list(history_words.compared_lines(examined.compared, *compare))
        elif model is not None:
            lines += ["", *history_words.model_lines(recorded, model)]
        sys.stdout.write("".join(f"{line}\n" for line in lines))
    if json is not None:
        _write(history_words.dumps(examined), json)
    return 0


def _check_paths(files: "Mapping[str, str | None]", model: str | None) -> None:
    from onnxproof.system import writing

    if files["report"] is not None and model is None:
        raise UsageError(
            "usage",
            "`--report` needs `--model`",
            help="onnxproof history FILE --model NAME --report PATH",
        )
    for path in files.values():
        if path is not None and path != "-":
            writing.check(path)


def _write_pages(
    store: "Store", recorded: "Recorded", files: "Mapping[str, str | None]", model: str | None
) -> None:
    """The dashboard, and the newest report of one model, where they were asked for."""
    from onnxproof.suite import dashboard
    from onnxproof.system import writing

    page, report = files["html"], files["report"]
    if page is not None:
        dashboard.write(store, recorded.runs[-1].id, page)
    if report is not None and model is not None:
        newest = recorded.of_model(model)[-1][0].id
        writing.write_text(dashboard.report(store, newest, model), report)


def _check(recorded: "Recorded", file: str, suite: str | None, model: str | None) -> None:
    if not recorded.runs:
        raise UsageError(
            "no-runs",
            f"`{file}` has no run of `{suite}`" if suite else f"`{file}` has no run with results",
            where=file,
            help="`onnxproof suite suite.toml --history FILE` adds one",
        )
    if model is not None and model not in recorded.models:
        known = ", ".join(recorded.models[:8])
        raise UsageError(
            "no-such-model",
            f"`{recorded.suite}` has no model `{model}`",
            where=file,
            notes=[f"it has {known}" + ", ..." * (len(recorded.models) > 8)],
        )


def _write(text: str, path: str) -> None:
    from onnxproof.system.writing import write_text

    if path == "-":
        sys.stdout.write(text)
    else:
        write_text(text, path, what="the history")
