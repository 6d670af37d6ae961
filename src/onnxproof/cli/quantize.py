"""Quantize a model within a budget, and prove what it costs."""

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onnxproof.cli import _options as option
from onnxproof.cli import _parsing as parsing
from onnxproof.cli._deliver import Delivery, exit_code
from onnxproof.cli._progress import progress
from onnxproof.options import Policy

if TYPE_CHECKING:
    from onnxproof.quantization.result import Quantized
    from onnxproof.quantization.tuning_state import Budget


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrating:
    """What ranges are chosen by."""

    calibration: Annotated[
        str | None,
        typer.Option(
            "--calibration",
            metavar="PATH",
            help="Inputs as they are served: .npz, .npy, .safetensors, or a folder of them or of images.",
        ),
    ] = None
    preprocess: Annotated[
        str | None,
        typer.Option(
            "--preprocess",
            metavar="FILE.py:FUNCTION",
            help="Makes the model's input of an image: Pillow's, an array or a path, as its annotation says.",
        ),
    ] = None
    text: Annotated[
        str | None,
        typer.Option(
            "--text",
            metavar="FILE",
            help="A text to calibrate a language model on, in the place of --calibration.",
        ),
    ] = None
    tokenizer: Annotated[
        str | None,
        typer.Option(
            "--tokenizer",
            metavar="PATH",
            help="The tokenizer.json (or its folder) for --text. [default: beside the model]",
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgeting:
    """What may be lost, and how long tuning may take."""

    evaluate: Annotated[
        str | None,
        typer.Option(
            "--evaluate",
            metavar="FILE.py:FUNCTION|FILE.npz",
            help="The metric: a function of `predict` that gives one score a sample, or inputs with `labels`.",
        ),
    ] = None
    max_drop: Annotated[
        str | None,
        typer.Option(
            "--max-drop",
            metavar="0.5%",
            help="The metric may fall by this much; the whole interval of its drop must lie within.",
        ),
    ] = None
    confidence: Annotated[
        float,
        typer.Option(
            "--confidence",
            metavar="SHARE",
            help="Of that interval; 0 takes the estimate, however few the samples.",
        ),
    ] = 0.95
    max_latency: Annotated[
        float | None,
        typer.Option(
            "--max-latency", metavar="MS", help="One pass on one thread may take this long."
        ),
    ] = None
    bits: Annotated[
        float | None,
        typer.Option(
            "--bits",
            metavar="4.5",
            help="w4: bits a weight, with scales and zero points, over all weights in blocks. [default: 4.5]",
        ),
    ] = None
    max_size: Annotated[
        str | None,
        typer.Option("--max-size", metavar="120MB", help="w4: the file may be this large."),
    ] = None
    max_kl: Annotated[
        float | None,
        typer.Option(
            "--max-kl",
            metavar="NATS",
            help="w4, language models: the mean KL of the next token from the float model's; its whole interval must lie within.",
        ),
    ] = None
    max_perplexity: Annotated[
        str | None,
        typer.Option(
            "--max-perplexity",
            metavar="2%",
            help="w4, language models: the perplexity may rise by this much; the whole paired interval must lie within.",
        ),
    ] = None
    min_sqnr: Annotated[
        float,
        typer.Option("--min-sqnr", metavar="DB", help="Without a metric: aim at this output SQNR."),
    ] = 30.0
    time: Annotated[
        float,
        typer.Option(
            "--time",
            metavar="SECONDS",
            help="Time for tuning; the best so far is taken when it is over.",
        ),
    ] = 120.0

    @property
    def asks_for_outcome(self) -> bool:
        """True when a budget that does not hold makes the run fail."""
        limits = (
            self.max_drop,
            self.max_latency,
            self.bits,
            self.max_size,
            self.max_kl,
            self.max_perplexity,
        )
        return any(limit is not None for limit in limits)

    def check(self) -> None:
        """What makes no sense is an error before anything is imported."""
        parsing.share(self.max_drop)
        parsing.confidence(self.confidence)
        parsing.positive(self.bits, "bits")
        parsing.positive(self.max_kl, "max-kl")
        parsing.file_size(self.max_size)
        parsing.growth(self.max_perplexity)

    def budget(self) -> "Budget":
        """The same as `onnxproof.quantize` takes it."""
        from onnxproof.quantization.tuning_state import Budget

        max_latency = None
        if self.max_latency is not None:
            max_latency = self.max_latency / 1e3
        return Budget(
            max_drop=parsing.share(self.max_drop),
            max_latency=max_latency,
            min_sqnr=self.min_sqnr,
            seconds=parsing.positive_budget(self.time),
            confidence=parsing.confidence(self.confidence),
            max_kl=self.max_kl,
            max_perplexity=parsing.growth(self.max_perplexity),
            bits=self.bits,
            max_size=parsing.file_size(self.max_size),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """How the graph is quantized."""

    scheme: Annotated[
        str,
        typer.Option(
            "--scheme", help="u8s8, u8s8_tensor, s8s8, a16w8, w8, w4, dynamic, fp16 or bf16."
        ),
    ] = "u8s8"
    calibrator: Annotated[
        str,
        typer.Option(
            "--calibrator",
            help="auto, min-max, mse, percentile[:99.99] or entropy; auto is judged on the outputs.",
        ),
    ] = "auto"
    recipe: Annotated[
        list[str] | None,
        typer.Option(
            "--recipe",
            metavar="NAME",
            help="Try only this recipe; may be repeated; `none` for none.",
        ),
    ] = None
    exclude: Annotated[
        list[str] | None,
        typer.Option("--exclude", metavar="NODE", help="A node that stays float; may be repeated."),
    ] = None
    cache: Annotated[
        str | None,
        typer.Option(
            "--cache",
            metavar="FOLDER",
            help="Keep calibration and trials here, so that a stopped run goes on.",
        ),
    ] = None
    target: Annotated[
        str,
        typer.Option(
            "--target",
            metavar="avx2|vnni",
            help="The CPU that will serve; avx2 guards against saturation. [default: this one]",
        ),
    ] = ""

    def arguments(self) -> dict[str, Any]:
        """The same as arguments of `onnxproof.quantize`."""
        arguments: dict[str, Any] = {
            "scheme": self.scheme,
            "calibrator": self.calibrator,
            "exclude": tuple(self.exclude or ()),
            "cache": self.cache,
            "target": self.target,
        }
        if self.recipe is not None:
            arguments["recipes"] = tuple(name for name in self.recipe if name != "none")
        return arguments


@dataclass(frozen=True, slots=True, kw_only=True)
class Proving:
    """How the quantized file is proven."""

    data: option.Data = None
    backend: option.Backend = None
    seed: option.Seed = 0
    strict: option.Strict = False
    dynamic: option.Dynamic = None

    def arguments(self) -> dict[str, Any]:
        """The same as arguments of `onnxproof.quantize`."""
        return {
            "data": self.data,
            "backends": tuple(self.backend or ("ort",)),
            "seed": self.seed,
            "policy": parsing.policy(Policy(), strict=self.strict),
            "dynamic_shapes": parsing.dynamic_shapes(self.dynamic),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Printing:
    """Where the result goes, and how much is said."""

    json: Annotated[
        str | None,
        typer.Option(
            "--json", metavar="PATH", help="Write the result as JSON; - is standard output."
        ),
    ] = None
    html: Annotated[
        str | None,
        typer.Option(
            "--html",
            metavar="PATH",
            help="Write the proof, with its ranges on held-out data, as a page to look at.",
        ),
    ] = None
    quiet: option.Quiet = False
    verbose: option.Verbose = False
    debug: option.Debug = False


@option.folded
def command(
    subject: Annotated[
        str,
        typer.Argument(
            help="The float model: package.module:Class, file.py:factory, .pt2, TorchScript, .onnx, a Hugging Face folder."
        ),
    ],
    output: Annotated[
        str,
        typer.Option("--output", "-o", metavar="MODEL.onnx", help="Where the quantized file goes."),
    ],
    calibrating: Calibrating,
    budgeting: Budgeting,
    method: Method,
    proving: Proving,
    loading: option.SubjectOptions,
    printing: Printing,
) -> int:
    """`onnxproof.quantize` from the command line; the exit code is that of the proof, and 1 when the budget does not hold."""
    proof_arguments = proving.arguments()
    budgeting.check()
    Delivery(html=printing.html, json=printing.json).checked()
    parsing.positive_budget(budgeting.time)
    with progress(quiet=printing.quiet) as report:
        from onnxproof.api import quantize

        result = quantize(
            loading.subject(subject),
            output,
            calibration=calibrating.calibration,
            preprocess=calibrating.preprocess,
            text=calibrating.text,
            tokenizer=calibrating.tokenizer,
            evaluate=budgeting.evaluate,
            budget=budgeting.budget(),
            progress=report,
            **method.arguments(),
            **proof_arguments,
        )
    if printing.html is not None:
        result.proof.to_html(printing.html)
    _print(result, printing)
    missed = budgeting.asks_for_outcome and not result.met
    return max(exit_code(result.proof), int(missed))


def _print(result: "Quantized", printing: Printing) -> None:
    from onnxproof.report import quantized, quantized_json, terminal

    to_stdout = printing.json == "-"
    if printing.json is not None and not to_stdout:
        quantized_json.write(result, printing.json)
    out = terminal.console(stderr=to_stdout)
    if printing.quiet:
        out.print(quantized.headline(result), soft_wrap=True)
    else:
        quantized.show(result, out, verbose=printing.verbose)
    if to_stdout:
        sys.stdout.write(quantized_json.dumps(result))
