"""Time an ONNX file on each backend, with PyTorch's forward pass beside them."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onnxproof.cli import _options as option
from onnxproof.errors import UsageError
from onnxproof.system.text import visible

if TYPE_CHECKING:
    from onnxproof.runtimes.session.speed import Bench


def command(
    model: Annotated[str, typer.Argument(help="The ONNX file.")],
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
    isolate: option.Isolate = None,
    allow_fallback: option.AllowFallback = False,
    time_limit: option.TimeLimit = 60.0,
    memory_limit: option.MemoryLimit = None,
    threads: option.Threads = None,
    json: Annotated[
        str | None,
        typer.Option(
            "--json", metavar="PATH", help="Write the times as JSON; - is standard output."
        ),
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="No line for each measurement.")
    ] = False,
    debug: option.Debug = False,
) -> int:
    """Print a table: latency, throughput and the ratio to the baseline. Times are noisy: compare within one table."""
    from onnxproof.reference import subject
    from onnxproof.runtimes.session.speed import bench
    from onnxproof.system.writing import check

    if not seconds > 0:
        raise UsageError(
            "bad-seconds",
            f"`--seconds {seconds:g}` leaves no time for a single run",
            help="give seconds, such as `--seconds 2`",
        )
    if json is not None and json != "-":
        check(json, what="the times")
    found = subject.load(reference, None) if reference is not None else None
    if found is not None and found.onnx is not None:
        raise UsageError(
            "not-a-module",
            f"`{reference}` is an ONNX file, and the reference is a module",
            help="time both files one after the other",
        )
    serving = option.serving(
        isolate=isolate,
        allow_fallback=allow_fallback,
        time_limit=time_limit,
        memory_limit=memory_limit,
        threads=threads,
    )
    made = bench(
        Path(model),
        tuple(backend or ("ort",)),
        reference=found,
        batches=_batches(batch),
        seconds=seconds,
        serving=serving,
        report=None if quiet else _line,
    )
    if json is not None:
        _write(made, json)
    if json != "-":
        _show(made)
    return 0 if made.timings and not made.failed else 2


def _line(words: str) -> None:
    sys.stderr.write(f"onnxproof: {visible(words)}\n")


def _batches(words: str | None) -> tuple[int, ...]:
    parts = [part.strip() for part in (words or "").split(",") if part.strip()]
    if not all(part.isdigit() and int(part) > 0 for part in parts):
        raise UsageError(
            "bad-batch",
            f"`--batch {words}` can't be understood",
            help="give sizes, such as `--batch 1,8,32`",
        )
    return tuple(map(int, parts))


def _show(made: "Bench") -> None:
    from rich.table import Table

    from onnxproof.report.plain import safe
    from onnxproof.report.terminal import console

    out = console()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in (
        "batch",
        "backend",
        "median ms",
        "p10 - p90",
        "rows/s",
        f"x {made.baseline}",
        "runs",
    ):
        table.add_column(safe(name), justify="left" if name == "backend" else "right", no_wrap=True)
    for timing in made.timings:
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
    out.print(
        f"  x {made.baseline}: how many times faster; {made.threads or 'each its own number of'} threads",
        style="dim",
    )
    for backend, batch, why in made.failed:
        out.print(
            safe(f"  {backend} {f'at batch {batch}' if batch else 'can not be opened'}: {why}"),
            soft_wrap=True,
        )


def _write(made: "Bench", path: str) -> None:
    from dataclasses import asdict
    from json import dumps

    from onnxproof.system.writing import write_text

    text = dumps(asdict(made), indent=2) + "\n"
    if path == "-":
        sys.stdout.write(text)
    else:
        write_text(text, path, what="the times")
