"""Time an ONNX file on each backend, with PyTorch's forward pass beside them."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onnxproof.cli import _options as option
from onnxproof.cli import _parsing as parsing
from onnxproof.errors import UsageError
from onnxproof.system.text import visible

if TYPE_CHECKING:
    from onnxproof.reference.subject import Subject
    from onnxproof.runtimes.session.speed import Bench


@dataclass(frozen=True, slots=True, kw_only=True)
class Printing:
    """Where the times go."""

    json: Annotated[
        str | None,
        typer.Option(
            "--json", metavar="PATH", help="Write the times as JSON; - is standard output."
        ),
    ] = None
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No line for each measurement.")] = (
        False
    )
    debug: option.Debug = False


@option.folded
def command(
    model: Annotated[str, typer.Argument(help="The ONNX file.")],
    limits: option.Limits,
    printing: Printing,
    reference: Annotated[
        str | None,
        typer.Option(
            "--reference",
            metavar="SUBJECT",
            help="The module behind it, as `verify` takes it: its forward pass is timed too, and is the baseline.",
        ),
    ] = None,
    backend: option.Backend = None,
    batch: Annotated[
        str | None,
        typer.Option(
            "--batch",
            metavar="1,8,32",
            help="Batch sizes. [default: 1,8,32 where the file's batch may vary]",
        ),
    ] = None,
    seconds: Annotated[
        float,
        typer.Option("--seconds", help="About how long each backend runs at each batch size."),
    ] = 2.0,
) -> int:
    """Print a table: latency, throughput and the ratio to the baseline. Times are noisy: compare within one table."""
    from onnxproof.runtimes.session.speed import bench
    from onnxproof.system.writing import check

    if not seconds > 0:
        raise UsageError(
            "bad-seconds",
            f"`--seconds {seconds:g}` leaves no time for a single run",
            help="give seconds, such as `--seconds 2`",
        )
    if printing.json is not None and printing.json != "-":
        check(printing.json, what="the times")
    module = _load_module(reference)
    times = bench(
        Path(model),
        tuple(backend or ("ort",)),
        serving=limits.serving(),
        reference=module,
        batches=parsing.batch_sizes(batch),
        seconds=seconds,
        report=None if printing.quiet else _report_progress,
    )
    if printing.json is not None:
        _write(times, printing.json)
    if printing.json != "-":
        _show(times)
    return 0 if times.timings and not times.failed else 2


def _load_module(reference: str | None) -> "Subject | None":
    if reference is None:
        return None
    from onnxproof.reference import subject

    module = subject.load(reference, None)
    if module.onnx is not None:
        raise UsageError(
            "not-a-module",
            f"`{reference}` is an ONNX file, and the reference is a module",
            help="time both files one after the other",
        )
    return module


def _report_progress(words: str) -> None:
    sys.stderr.write(f"onnxproof: {visible(words)}\n")


def _show(times: "Bench") -> None:
    from rich.table import Table

    from onnxproof.report.plain import safe
    from onnxproof.report.terminal import console

    out = console()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("batch", justify="right", no_wrap=True)
    table.add_column("backend", no_wrap=True)
    for name in ("median ms", "p10 - p90", "rows/s", f"x {times.baseline}", "runs"):
        table.add_column(safe(name), justify="right", no_wrap=True)
    for timing in times.timings:
        spread = f"{timing.p10_s * 1e3:.2f} - {timing.p90_s * 1e3:.2f}"
        table.add_row(
            str(timing.batch),
            safe(timing.backend),
            f"{timing.median_s * 1e3:.2f}",
            spread,
            f"{timing.per_second:,.0f}",
            f"{timing.ratio:.2f}",
            str(timing.runs),
        )
    out.print(table)
    threads = times.threads or "each its own number of"
    out.print(f"  x {times.baseline}: how many times faster; {threads} threads", style="dim")
    for backend, batch, why in times.failed:
        what = f"at batch {batch}" if batch else "can not be opened"
        out.print(safe(f"  {backend} {what}: {why}"), soft_wrap=True)


def _write(times: "Bench", path: str) -> None:
    from dataclasses import asdict
    from json import dumps

    from onnxproof.system.writing import write_text

    text = dumps(asdict(times), indent=2) + "\n"
    if path == "-":
        sys.stdout.write(text)
    else:
        write_text(text, path, what="the times")
