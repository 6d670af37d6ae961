"""Prove that an ONNX file says what a PyTorch module says."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onnxproof.cli import _options as option
from onnxproof.cli._deliver import Delivery, deliver
from onnxproof.cli._progress import Report
from onnxproof.errors import UsageError
from onnxproof.types import Policy

if TYPE_CHECKING:
    from onnxproof.proof import Proof


def command(
    subject: Annotated[str | None, typer.Argument(
        help="The reference: file.py:factory, package.module:factory, .pt2, TorchScript, .onnx, a Hugging Face folder.")] = None,
    model: Annotated[str | None, typer.Argument(help="The ONNX file.")] = None,
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
    case: option.Only = None,
    dynamic: option.Dynamic = None,
    stored: Annotated[str | None, typer.Option("--from", metavar="PROOF.json", help="Judge a stored proof again; nothing is run.")] = None,
    json: option.Json = None,
    no_explain: option.NoExplain = False,
    quiet: option.Quiet = False,
    verbose: option.Verbose = False,
    debug: option.Debug = False,
) -> int:
    """`onnxproof.verify` from the command line, or a stored proof judged again."""
    where = Delivery(json=json, quiet=quiet, verbose=verbose)
    wishes: dict[str, Any] = {"strict": strict, "strict_domains": strict_domains, "domain": domain, "atol": atol, "rtol": rtol, "noise_limit": noise_limit}
    if stored is not None:
        if subject is not None:
            raise UsageError("usage", "`--from` judges a stored proof, so it takes no SUBJECT and no MODEL", help="onnxproof verify --from proof.json --strict")
        return deliver(lambda _: _judge_again(Path(stored), wishes), where)
    if subject is None or model is None:
        raise UsageError("usage", "SUBJECT and MODEL are needed", help="onnxproof verify model.py:build model.onnx")
    policy, shapes = option.policy(Policy(), **wishes), option.dynamic_shapes(dynamic)
    seconds = option.positive_budget(budget)
    serving = option.serving(isolate=isolate, allow_fallback=allow_fallback, time_limit=time_limit, memory_limit=memory_limit, threads=threads)

    def run(report: Report | None) -> "Proof":
        from onnxproof.prove import verify

        return verify(subject, model, dynamic_shapes=shapes, data=data, backends=tuple(backend or ("ort",)), policy=policy, budget_s=seconds, seed=seed,
                      explain=not no_explain, only=tuple(case or ()), serving=serving, progress=report)

    return deliver(run, where)


def _judge_again(path: Path, wishes: dict[str, Any]) -> "Proof":
    from onnxproof.report import json_writer

    proof = json_writer.read(path)
    return proof.judged(option.policy(proof.policy, **wishes))
