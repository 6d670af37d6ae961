"""The options that several commands share, and what their words mean."""

import math
from dataclasses import replace
from typing import Annotated, Any

import typer

from onnxproof.errors import PolicyError, UsageError
from onnxproof.types import Policy

Backend = Annotated[list[str] | None, typer.Option(
    "--backend", "-b", metavar="NAME", help="A runtime to try, such as ort, ort:basic or reference; may be repeated. [default: ort]")]
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
Static = Annotated[list[str] | None, typer.Option("--static", metavar="x:1,y:0", help="Dims that must stay as they are in the example; may be repeated.")]
Ranges = Annotated[list[str] | None, typer.Option("--dim", metavar="seq=1..512", help="Sizes that a named dim will ever have; may be repeated.")]
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
    for word in _words(words):
        place, _, name = word.partition("=")
        tensor, _, axis = place.rpartition(":")
        if not tensor or not axis.isdigit() or not name.isidentifier():
            raise UsageError("bad-dynamic", f"`--dynamic {word}` can't be understood",
                             help="write input:axis=name, such as `--dynamic x:0=batch,x:1=seq`")
        found.setdefault(tensor, {})[int(axis)] = name
    return found or None


def static_dims(words: list[str] | None) -> dict[str, tuple[int, ...]]:
    """`x:1,y:0` by input.

    >>> static_dims(["x:1,y:0", "x:2"])
    {'x': (1, 2), 'y': (0,)}
    """
    found: dict[str, tuple[int, ...]] = {}
    for word in _words(words):
        tensor, _, axis = word.rpartition(":")
        if not tensor or not axis.isdigit():
            raise UsageError("bad-static", f"`--static {word}` can't be understood", help="write input:axis, such as `--static x:1`")
        found[tensor] = (*found.get(tensor, ()), int(axis))
    return found


def dim_ranges(words: list[str] | None) -> dict[str, tuple[int | None, int | None]]:
    """`seq=1..512` by the dim's name; either end may be left out.

    >>> dim_ranges(["seq=1..512", "batch=..8"])
    {'seq': (1, 512), 'batch': (None, 8)}
    """
    found: dict[str, tuple[int | None, int | None]] = {}
    for word in _words(words):
        name, _, sizes = word.partition("=")
        low, dots, high = sizes.partition("..")
        ends = [int(end) if end else None for end in (low, high)] if dots and all(end.isdigit() or not end for end in (low, high)) else []
        if not name.isidentifier() or not ends or (ends[0] or 0) > (ends[1] if ends[1] is not None else 1 << 62):
            raise UsageError("bad-dim", f"`--dim {word}` can't be understood", help="write name=from..to, such as `--dim seq=1..512`")
        found[name] = (ends[0], ends[1])
    return found


def _words(words: list[str] | None) -> list[str]:
    return [word.strip() for word in ",".join(words or ()).split(",") if word.strip()]
