"""Look an ONNX file over: size, weights, dims, leftovers, with a verdict for each check."""

import sys
from typing import Annotated

import typer

from onnxproof.cli import _options as option


def command(
    model: Annotated[str, typer.Argument(help="The ONNX file, or a folder of them.")],
    reference: Annotated[
        str | None,
        typer.Option(
            "--reference",
            metavar="SUBJECT",
            help="The module it came from: parameters are compared.",
        ),
    ] = None,
    json: Annotated[
        str | None,
        typer.Option(
            "--json", metavar="PATH", help="Write what was seen as JSON; - is standard output."
        ),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="What is odd fails too.")] = False,
    quiet: option.Quiet = False,
    debug: option.Debug = False,
) -> int:
    """`onnxproof.inspect` from the command line; 0 when nothing is bad, 1 when something is."""
    from onnxproof.inspection import Rating, inspect
    from onnxproof.report import inspection, terminal
    from onnxproof.system.writing import check, write_text

    if json is not None and json != "-":
        check(json)
    seen = inspect(model, reference)
    if json == "-":
        sys.stdout.write(inspection.dumps(seen))
    elif json is not None:
        write_text(inspection.dumps(seen), json)
    inspection.show(seen, terminal.console(stderr=json == "-"), quiet=quiet)
    return int(seen.rating is Rating.BAD or (strict and seen.rating is Rating.ODD))
