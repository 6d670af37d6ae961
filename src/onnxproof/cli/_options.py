"""The options that several commands share, and what their words mean."""

import math
from dataclasses import replace
from typing import Annotated, Any

import typer

from onnxproof.errors import PolicyError, UsageError
from onnxproof.types import Policy, Serving

Backend = Annotated[list[str] | None, typer.Option(
    "--backend", "-b", metavar="NAME", help="A runtime to try, such as ort, ort:basic, openvino or ort@1.23.2; may be repeated. [default: ort]")]
Isolate = Annotated[bool | None, typer.Option(
    "--isolate/--no-isolate", help="Run every runtime in a process of its own, or none. [default: those that may crash]", show_default=False)]
AllowFallback = Annotated[bool, typer.Option(
    "--allow-fallback", help="Report a provider that is missing, or nodes that run elsewhere, instead of failing.")]
TimeLimit = Annotated[float, typer.Option("--time-limit", metavar="SECONDS", help="For one forward pass in a process of its own.")]
MemoryLimit = Annotated[float | None, typer.Option("--memory-limit", metavar="GB", help="For a runtime's own process. [default: 3/4 of the machine's]")]
Threads = Annotated[int | None, typer.Option("--threads", metavar="N", help="Threads for each runtime. [default: the runtime's own]")]
Data = Annotated[str | None, typer.Option("--data", metavar="PATH", help="Your own inputs: .npz, .npy, .safetensors, or a folder of them.")]
Budget = Annotated[float, typer.Option("--budget", metavar="SECONDS", help="Time for the cases; the most telling come first.")]
Seed = Annotated[int, typer.Option("--seed", help="The same seed gives the same cases.")]
Strict = Annotated[bool, typer.Option("--strict", help="Drift fails too.")]
StrictDomains = Annotated[bool, typer.Option("--strict-domains", help="Notes (NaN, infinities, ties, empty tensors) count.")]
Domain = Annotated[str | None, typer.Option(
    "--domain", metavar="finite|all", help="Leave NaN, infinities, ties and empty tensors out, or look there too. [default: all]")]
Atol = Annotated[float | None, typer.Option("--atol", help="Classical tolerance: within it, a difference beyond noise is drift. [default: 1e-4]")]
Rtol = Annotated[float | None, typer.Option("--rtol", help="The relative part of it. [default: 1e-3]")]
NoiseLimit = Annotated[float | None, typer.Option(
    "--noise-limit", metavar="TIMES", help="How many times the rounding noise still counts as faithful. [default: 12]")]
Only = Annotated[list[str] | None, typer.Option("--case", metavar="NAME", help="Run this case only; may be repeated.")]
Dynamic = Annotated[list[str] | None, typer.Option(
    "--dynamic", metavar="x:0=batch,x:1=seq", help="Dims that may vary: input, axis and a name; may be repeated.")]
Json = Annotated[str | None, typer.Option("--json", metavar="PATH", help="Write the proof as JSON; - is standard output.")]
NoExplain = Annotated[bool, typer.Option("--no-explain", help="Don't look for the node and the cause.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Only the verdict.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Also how inputs and outputs were paired, dims, versions, dropped cases.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show Python's traceback of an error.")]


def policy(base: Policy, *, strict: bool = False, strict_domains: bool = False, domain: str | None = None, atol: float | None = None, rtol: float | None = None,
           noise_limit: float | None = None) -> Policy:
    """The base with what the user said; the limit for the worst element keeps its proportion to the other."""
    changes: dict[str, Any] = {}
    for name, value in (("atol", atol), ("rtol", rtol), ("noise_limit", noise_limit)):
        if value is not None:
            changes[name] = _positive(name, value)
    if noise_limit is not None:
        changes["worst_limit"] = noise_limit * base.worst_limit / base.noise_limit
    if domain not in (None, "finite", "all"):
        raise PolicyError("unknown-domain", f"`--domain {domain}` is not known", help="say `--domain finite` or `--domain all`")
    if domain is not None:
        changes["domains"] = () if domain == "finite" else Policy().domains
    return replace(base, strict=base.strict or strict, strict_domains=base.strict_domains or strict_domains, **changes)


def _positive(name: str, value: float) -> float:
    least = 1.0 if name == "noise_limit" else 0.0
    if not (math.isfinite(value) and value >= least):
        raise PolicyError("bad-threshold", f"`--{name.replace('_', '-')} {value:g}` makes no sense", help=f"give a number of at least {least:g}")
    return value


def serving(*, isolate: bool | None, allow_fallback: bool, time_limit: float, memory_limit: float | None, threads: int | None = None) -> Serving:
    """How backends are run, if the numbers are ones that can be kept to."""
    for name, value in (("time-limit", time_limit), ("memory-limit", memory_limit), ("threads", threads)):
        if value is not None and not value > 0:
            raise UsageError("bad-limit", f"`--{name} {value:g}` lets nothing run", help="give a number above 0, or leave it out")
    return Serving(isolate=isolate, allow_fallback=allow_fallback, time_s=time_limit, memory_gb=memory_limit, threads=threads)


def positive_budget(value: float) -> float:
    """The budget, if it is one."""
    if not value > 0:
        raise UsageError("bad-budget", f"`--budget {value:g}` leaves no time for a single case", help="give seconds, such as `--budget 60`")
    return value


def dynamic_shapes(words: list[str] | None) -> dict[str, dict[int, str]] | None:
    """`x:0=batch,x:1=seq` as the dict that torch.onnx.export takes.

    >>> dynamic_shapes(["x:0=batch,x:1=seq", "mask:0=batch"])
    {'x': {0: 'batch', 1: 'seq'}, 'mask': {0: 'batch'}}
    """
    found: dict[str, dict[int, str]] = {}
    for word in ",".join(words or ()).split(","):
        if not word.strip():
            continue
        place, _, name = word.strip().partition("=")
        tensor, _, axis = place.rpartition(":")
        if not tensor or not axis.isdigit() or not name.isidentifier():
            raise UsageError("bad-dynamic", f"`--dynamic {word.strip()}` can't be understood",
                             help="write input:axis=name, such as `--dynamic x:0=batch,x:1=seq`")
        found.setdefault(tensor, {})[int(axis)] = name
    return found or None
