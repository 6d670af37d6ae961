"""Write the most telling cases of a proof, so that the machine that serves the model can replay them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onnxproof.cli import _options as option
from onnxproof.cli import _parsing as parsing
from onnxproof.cli._deliver import Delivery, deliver
from onnxproof.cli._progress import Report
from onnxproof.options import BundleOptions
from onnxproof.system import writing

if TYPE_CHECKING:
    from onnxproof.results.proof import Proof


@option.folded
def command(
    proof: Annotated[
        str,
        typer.Argument(
            metavar="PROOF.json", help="What `--json` wrote; its cases are run once more."
        ),
    ],
    output: Annotated[
        str,
        typer.Option("--output", "-o", metavar="MODEL.proof", help="Where the bundle goes."),
    ],
    where: Delivery,
    with_model: Annotated[
        bool, typer.Option("--with-model", help="Put the ONNX file into the bundle, too.")
    ] = False,
    size: Annotated[
        float,
        typer.Option("--size", metavar="MB", help="The most that it takes beside the model."),
    ] = 8.0,
    sign: Annotated[
        str | None,
        typer.Option(
            "--sign", metavar="KEY.pem", help="Sign its statement with this private key (DSSE)."
        ),
    ] = None,
    sign_model: Annotated[
        str | None,
        typer.Option(
            "--sign-model",
            metavar="KEY.pem",
            help="OpenSSF model signing: write MODEL.proof.sig over the model and the bundle.",
        ),
    ] = None,
    data: option.Data = None,
    dynamic: option.Dynamic = None,
) -> int:
    """`onnxproof.bundle` from the command line."""
    options = BundleOptions(
        with_model=with_model,
        most_mb=parsing.bundle_size(size),
        sign=_path(sign),
        sign_model=_path(sign_model),
    )
    shapes = parsing.dynamic_shapes(dynamic)
    writing.check(output, what="the bundle", regular=True)

    def run(report: Report | None) -> "Proof":
        from onnxproof.api import bundle

        return bundle(
            proof, output, options=options, dynamic_shapes=shapes, data=data, progress=report
        )

    return deliver(run, where)


def _path(word: str | None) -> Path | None:
    return None if word is None else Path(word)
