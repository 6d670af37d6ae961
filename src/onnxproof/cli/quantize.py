"""Quantize a model within a budget, and prove what it costs."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from onnxproof.cli import _options as option
from onnxproof.cli._deliver import Delivery, exit_code
from onnxproof.cli._progress import progress
from onnxproof.errors import UsageError
from onnxproof.options import Policy

if TYPE_CHECKING:
    from onnxproof.quantization.result import Quantized


def command(
    subject: Annotated[
        str,
        typer.Argument(
            help="The float model: file.py:factory, package.module:factory, .pt2, TorchScript, .onnx, a Hugging Face folder."
        ),
    ],
    output: Annotated[
        str,
        typer.Option("--output", "-o", metavar="MODEL.onnx", help="Where the quantized file goes."),
    ],
    calibration: Annotated[
        str | None,
        typer.Option(
            "--calibration",
            metavar="PATH",
            help="Inputs as they are served: .npz, .npy, .safetensors, or a folder of them or of images.",
        ),
    ] = None,
    preprocess: Annotated[
        str | None,
        typer.Option(
            "--preprocess",
            metavar="FILE.py:FUNCTION",
            help="Makes the model's input of an image as Pillow opens it.",
        ),
    ] = None,
    evaluate: Annotated[
        str | None,
        typer.Option(
            "--evaluate",
            metavar="FILE.py:FUNCTION|FILE.npz",
            help="The metric: a function of `predict` that gives one score a sample, or inputs with `labels`.",
        ),
    ] = None,
    max_drop: Annotated[
        str | None,
        typer.Option(
            "--max-drop",
            metavar="0.5%",
            help="The metric may fall by this much; the whole interval of its drop must lie within.",
        ),
    ] = None,
    confidence: Annotated[
        float,
        typer.Option(
            "--confidence",
            metavar="SHARE",
            help="Of that interval; 0 takes the estimate, however few the samples.",
        ),
    ] = 0.95,
    max_latency: Annotated[
        float | None,
        typer.Option(
            "--max-latency", metavar="MS", help="One pass on one thread may take this long."
        ),
    ] = None,
    min_sqnr: Annotated[
        float,
        typer.Option("--min-sqnr", metavar="DB", help="Without a metric: aim at this output SQNR."),
    ] = 30.0,
    time: Annotated[
        float,
        typer.Option(
            "--time",
            metavar="SECONDS",
            help="Time for tuning; the best so far is taken when it is over.",
        ),
    ] = 120.0,
    scheme: Annotated[
        str,
        typer.Option(
            "--scheme", help="u8s8, u8s8_tensor, s8s8, a16w8, w8, w4, dynamic, fp16 or bf16."
        ),
    ] = "u8s8",
    calibrator: Annotated[
        str,
        typer.Option(
            "--calibrator",
            help="auto, min-max, mse, percentile[:99.99] or entropy; auto is judged on the outputs.",
        ),
    ] = "auto",
    recipe: Annotated[
        list[str] | None,
        typer.Option(
            "--recipe",
            metavar="NAME",
            help="Try only this recipe; may be repeated; `none` for none.",
        ),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option("--exclude", metavar="NODE", help="A node that stays float; may be repeated."),
    ] = None,
    cache: Annotated[
        str | None,
        typer.Option(
            "--cache",
            metavar="FOLDER",
            help="Keep calibration and trials here, so that a stopped run goes on.",
        ),
    ] = None,
    target: Annotated[
        str,
        typer.Option(
            "--target",
            metavar="avx2|vnni",
            help="The CPU that will serve; avx2 guards against saturation. [default: this one]",
        ),
    ] = "",
    data: option.Data = None,
    backend: option.Backend = None,
    seed: option.Seed = 0,
    strict: option.Strict = False,
    dynamic: option.Dynamic = None,
    trust_remote_code: option.TrustRemoteCode = False,
    json: Annotated[
        str | None,
        typer.Option(
            "--json", metavar="PATH", help="Write the result as JSON; - is standard output."
        ),
    ] = None,
    html: Annotated[
        str | None,
        typer.Option(
            "--html",
            metavar="PATH",
            help="Write the proof, with its ranges on held-out data, as a page to look at.",
        ),
    ] = None,
    quiet: option.Quiet = False,
    verbose: option.Verbose = False,
    debug: option.Debug = False,
) -> int:
    """`onnxproof.quantize` from the command line; the exit code is that of the proof, and 1 when the budget does not hold."""
    shapes, drop = option.dynamic_shapes(dynamic), _share(max_drop)
    if not 0 <= confidence < 1:
        raise UsageError(
            "bad-confidence",
            f"`--confidence {confidence:g}` makes no sense",
            help="say a share below 1, such as 0.95",
        )
    Delivery(html=html, json=json).checked()
    seconds = option.positive_budget(time)
    with progress(quiet=quiet) as report:
        from onnxproof.api import quantize
        from onnxproof.quantization.tuning import RECIPES
        from onnxproof.quantization.tuning_state import Budget

        chosen = RECIPES if recipe is None else tuple(name for name in recipe if name != "none")
        budget = Budget(
            max_drop=drop,
            max_latency=None if max_latency is None else max_latency / 1e3,
            min_sqnr=min_sqnr,
            seconds=seconds,
            confidence=confidence,
        )
        source = option.reference(subject, trust_remote_code=trust_remote_code)
        result = quantize(
            source,
            output,
            calibration=calibration,
            evaluate=evaluate,
            budget=budget,
            scheme=scheme,
            calibrator=calibrator,
            recipes=chosen,
            exclude=tuple(exclude or ()),
            dynamic_shapes=shapes,
            data=data,
            backends=tuple(backend or ("ort",)),
            policy=option.policy(Policy(), strict=strict),
            cache=cache,
            target=target,
            preprocess=preprocess,
            seed=seed,
            progress=report,
        )
    if html is not None:
        result.proof.to_html(html)
    _tell(result, json, quiet=quiet, verbose=verbose)
    asked = drop is not None or max_latency is not None
    return max(exit_code(result.proof), 1 if asked and not result.met else 0)


def _tell(result: "Quantized", json: str | None, *, quiet: bool, verbose: bool) -> None:
    from onnxproof.report import quantized, quantized_json, terminal

    if json is not None and json != "-":
        quantized_json.write(result, json)
    out = terminal.console(stderr=json == "-")
    if quiet:
        out.print(quantized.headline(result), soft_wrap=True)
    else:
        quantized.show(result, out, verbose=verbose)
    if json == "-":
        sys.stdout.write(quantized_json.dumps(result))


def _share(words: str | None) -> float | None:
    """`0.5%` or `0.005`."""
    if words is None:
        return None
    try:
        found = float(words.removesuffix("%")) / (100 if words.endswith("%") else 1)
    except ValueError:
        found = -1.0
    if not 0 <= found <= 1:
        raise UsageError(
            "bad-drop",
            f"`--max-drop {words}` makes no sense",
            help="say `--max-drop 0.5%` or `--max-drop 0.005`",
        )
    return found
