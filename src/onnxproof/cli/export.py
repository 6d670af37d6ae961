"""Export a PyTorch module to an ONNX file, then prove that the file says the same."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from onnxproof.cli import _options as option
from onnxproof.cli import _parsing as parsing
from onnxproof.cli._deliver import Delivery, bundled, deliver
from onnxproof.cli._progress import Report
from onnxproof.options import ExportOptions

if TYPE_CHECKING:
    from onnxproof.results.proof import Proof


@dataclass(frozen=True, slots=True, kw_only=True)
class Exporting:
    """How the file is made."""

    opset: Annotated[
        int | None, typer.Option("--opset", help="The opset of the file. [default: torch's own]")
    ] = None
    dynamic: option.Dynamic = None
    static: option.Static = None
    precision: Annotated[
        str | None,
        typer.Option(
            "--precision",
            metavar="fp16|bf16",
            help="Half precision; nodes that can't bear it stay in float32.",
        ),
    ] = None
    external_data: Annotated[
        bool | None,
        typer.Option(
            "--external-data/--no-external-data",
            help="Weights in a file of their own. [default: above 2 GB]",
        ),
    ] = None
    input_names: Annotated[
        str | None,
        typer.Option(
            "--input-names",
            metavar="A,B",
            help="Names for the file's inputs, in the order of `forward`.",
        ),
    ] = None
    output_names: Annotated[
        str | None,
        typer.Option(
            "--output-names",
            metavar="A,B",
            help="Names for its outputs. [default: dict keys and field names]",
        ),
    ] = None
    optimize: Annotated[
        str | None,
        typer.Option(
            "--optimize",
            metavar="onnxslim|onnxscript",
            help="Shrink the graph with a tool; verified against the file before.",
        ),
    ] = None
    pipeline: option.Pipeline = None
    with_cache: Annotated[
        bool,
        typer.Option(
            "--with-cache",
            help="A Hugging Face model that generates, with its cache: OUTPUT is a folder of files then.",
        ),
    ] = False
    no_explain: option.NoExplain = False
    bundle: option.Bundle = None

    def options(self, loading: option.SubjectOptions) -> ExportOptions:
        """The same as `onnxproof.export` takes them."""
        return ExportOptions(
            dynamic=parsing.dynamic_shapes(self.dynamic) or {},
            static=parsing.static_dims(self.static),
            ranges=parsing.dim_ranges(loading.dim),
            opset=self.opset,
            precision=self.precision,
            external_data=self.external_data,
            input_names=_names(self.input_names),
            output_names=_names(self.output_names),
            optimize=self.optimize,
            pipeline=self.pipeline,
            with_cache=self.with_cache,
        )


@option.folded
def command(
    subject: Annotated[
        str,
        typer.Argument(
            help="What to export: package.module:Class, file.py:factory, .pt2, a Hugging Face folder."
        ),
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="MODEL.onnx", help="Where the ONNX file goes.")
    ],
    exporting: Exporting,
    loading: option.SubjectOptions,
    running: option.Running,
    judging: option.Judging,
    lock: option.Lock,
    where: Delivery,
) -> int:
    """`onnxproof.export` from the command line."""
    policy = judging.policy()
    arguments = running.arguments()
    lock = lock.checked()
    options = exporting.options(loading)

    def run(report: Report | None) -> "Proof":
        from onnxproof.api import export

        proof = export(
            loading.subject(subject),
            None,
            output,
            options=options,
            policy=policy,
            explain=not exporting.no_explain,
            progress=report,
            profile=option.needs_profile(lock, where.html),
            **arguments,
        )
        return bundled(lock.apply(proof), exporting.bundle)

    return deliver(run, where)


def _names(text: str | None) -> tuple[str, ...]:
    if not text:
        return ()
    return tuple(word.strip() for word in text.split(","))
