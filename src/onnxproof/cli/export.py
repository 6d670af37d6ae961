"""Export a PyTorch module to an ONNX file, then prove that the file says the same."""

from typing import TYPE_CHECKING, Annotated

import typer

from onnxproof.cli import _options as option
from onnxproof.cli._deliver import Delivery, deliver
from onnxproof.cli._progress import Report
from onnxproof.types import Policy

if TYPE_CHECKING:
    from onnxproof.proof import Proof


def command(
    subject: Annotated[str, typer.Argument(help="What to export: file.py:factory, package.module:factory, .pt2, a Hugging Face folder.")],
    output: Annotated[str, typer.Option("--output", "-o", metavar="MODEL.onnx", help="Where the ONNX file goes.")],
    opset: Annotated[int | None, typer.Option("--opset", help="The opset of the file. [default: torch's own]")] = None,
    backend: option.Backend = None,
    isolate: option.Isolate = None,
    allow_fallback: option.AllowFallback = False,
    time_limit: option.TimeLimit = 60.0,
    memory_limit: option.MemoryLimit = None,
    threads: option.Threads = None,
    data: option.Data = None,
    budget: option.Budget = 60.0,
    seed: option.Seed = 0,
    strict: option.Strict = False,
    strict_domains: option.StrictDomains = False,
    domain: option.Domain = None,
    atol: option.Atol = None,
    rtol: option.Rtol = None,
    noise_limit: option.NoiseLimit = None,
    dynamic: option.Dynamic = None,
    json: option.Json = None,
    no_explain: option.NoExplain = False,
    quiet: option.Quiet = False,
    verbose: option.Verbose = False,
    debug: option.Debug = False,
) -> int:
    """`onnxproof.export` from the command line."""
    policy = option.policy(Policy(), strict=strict, strict_domains=strict_domains, domain=domain, atol=atol, rtol=rtol, noise_limit=noise_limit)
    seconds, shapes = option.positive_budget(budget), option.dynamic_shapes(dynamic)
    serving = option.serving(isolate=isolate, allow_fallback=allow_fallback, time_limit=time_limit, memory_limit=memory_limit, threads=threads)

    def run(report: Report | None) -> "Proof":
        from onnxproof.exporter import export

        return export(subject, None, output, dynamic_shapes=shapes, opset=opset, data=data, backends=tuple(backend or ("ort",)), policy=policy,
                      budget_s=seconds, seed=seed, explain=not no_explain, serving=serving, progress=report)

    return deliver(run, Delivery(json=json, quiet=quiet, verbose=verbose))
