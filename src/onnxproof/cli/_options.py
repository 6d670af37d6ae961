"""The options that several commands share, and what their words mean.

A group of options is a dataclass; `folded` lets a command take one as a single argument. A new option of all commands is a new
field here.
"""

import functools
import inspect
import math
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from onnxproof.errors import PolicyError, UsageError
from onnxproof.options import Policy, Serving

if TYPE_CHECKING:
    from onnxproof.results.proof import Proof

Backend = Annotated[
    list[str] | None,
    typer.Option(
        "--backend",
        "-b",
        metavar="NAME",
        help="A runtime to try, such as ort, ort:basic, openvino or ort@1.23.2; may be repeated. [default: ort]",
    ),
]
Isolate = Annotated[
    bool | None,
    typer.Option(
        "--isolate/--no-isolate",
        help="Run every runtime in a process of its own, or none. [default: those that may crash]",
        show_default=False,
    ),
]
AllowFallback = Annotated[
    bool,
    typer.Option(
        "--allow-fallback",
        help="Report a provider that is missing, or nodes that run elsewhere, instead of failing.",
    ),
]
TimeLimit = Annotated[
    float,
    typer.Option("--time-limit", metavar="SECONDS", help="For one forward pass of a runtime."),
]
MemoryLimit = Annotated[
    float | None,
    typer.Option(
        "--memory-limit", metavar="GB", help="For a runtime. [default: 3/4 of the machine's]"
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads", metavar="N", help="Threads for each runtime. [default: the runtime's own]"
    ),
]
Data = Annotated[
    str | None,
    typer.Option(
        "--data",
        metavar="PATH",
        help="Your own inputs: .npz, .npy, .safetensors, or a folder of them.",
    ),
]
Budget = Annotated[
    float,
    typer.Option(
        "--budget",
        metavar="SECONDS",
        help="Time for cases and explanation; the most telling cases come first.",
    ),
]
Seed = Annotated[int, typer.Option("--seed", help="The same seed gives the same cases.")]
Strict = Annotated[bool, typer.Option("--strict", help="Drift fails too.")]
StrictDomains = Annotated[
    bool,
    typer.Option(
        "--strict-domains",
        help="Notes (NaN, infinities, ties, empty tensors, what a mask hides) count.",
    ),
]
Domain = Annotated[
    str | None,
    typer.Option(
        "--domain",
        metavar="finite|all",
        help="Leave NaN, infinities, ties, empty tensors and masks that hide everything out, or look there too. [default: all]",
    ),
]
Atol = Annotated[
    float | None,
    typer.Option(
        "--atol",
        help="Classical tolerance: within it, a difference beyond noise is drift. [default: 1e-4]",
    ),
]
Rtol = Annotated[
    float | None, typer.Option("--rtol", help="The relative part of it. [default: 1e-3]")
]
NoiseLimit = Annotated[
    float | None,
    typer.Option(
        "--noise-limit",
        metavar="TIMES",
        help="How many times the rounding noise still counts as faithful. [default: 12]",
    ),
]
Only = Annotated[
    list[str] | None,
    typer.Option("--case", metavar="NAME", help="Run this case only; may be repeated."),
]
Dynamic = Annotated[
    list[str] | None,
    typer.Option(
        "--dynamic",
        metavar="x:0=batch,x:1=seq",
        help="Dims that may vary: input, axis and a name; may be repeated.",
    ),
]
Static = Annotated[
    list[str] | None,
    typer.Option(
        "--static",
        metavar="x:1,y:0",
        help="Dims that must stay as they are in the example; may be repeated.",
    ),
]
Ranges = Annotated[
    list[str] | None,
    typer.Option(
        "--dim",
        metavar="seq=1..512",
        help="Sizes that a named dim will ever have; may be repeated.",
    ),
]
Pipeline = Annotated[
    str | None,
    typer.Option(
        "--pipeline",
        metavar="deploy.py:preprocess",
        help="The preprocessing of the deployment, verified from raw inputs on.",
    ),
]
TrustRemoteCode = Annotated[
    bool,
    typer.Option(
        "--trust-remote-code",
        help="Run the code that a Hugging Face folder brings with it; refused otherwise.",
    ),
]
NoExplain = Annotated[
    bool, typer.Option("--no-explain", help="Don't look for the node and the cause.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Only the verdict.")]
Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose",
        "-v",
        help="Also how inputs and outputs were paired, dims, versions, dropped cases, all rows.",
    ),
]
Debug = Annotated[bool, typer.Option("--debug", help="Show Python's traceback of an error.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """What counts as faithful."""

    strict: Strict = False
    strict_domains: StrictDomains = False
    domain: Domain = None
    atol: Atol = None
    rtol: Rtol = None
    noise_limit: NoiseLimit = None

    def policy(self, base: Policy | None = None) -> Policy:
        """The base (the default, or that of a stored proof) with what the user said."""
        return policy(
            base or Policy(), **{field.name: getattr(self, field.name) for field in fields(self)}
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """What is run, and for how long."""

    backend: Backend = None
    isolate: Isolate = None
    allow_fallback: AllowFallback = False
    time_limit: TimeLimit = 60.0
    memory_limit: MemoryLimit = None
    threads: Threads = None
    data: Data = None
    budget: Budget = 60.0
    seed: Seed = 0

    def arguments(self) -> dict[str, Any]:
        """The same as arguments of `verify`, `diff` and `export`."""
        served = serving(
            isolate=self.isolate,
            allow_fallback=self.allow_fallback,
            time_limit=self.time_limit,
            memory_limit=self.memory_limit,
            threads=self.threads,
        )
        return {
            "data": self.data,
            "backends": tuple(self.backend or ("ort",)),
            "budget_s": positive_budget(self.budget),
            "seed": self.seed,
            "serving": served,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """A baseline that the noise may not leave."""

    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline",
            metavar="LOCK.json",
            help="Fail when the noise ratio of an output or a node grew since this file was written.",
        ),
    ] = None
    update_baseline: Annotated[
        bool,
        typer.Option("--update-baseline", help="Write the baseline anew, if the verdict passes."),
    ] = False
    baseline_factor: Annotated[
        float | None,
        typer.Option(
            "--baseline-factor",
            metavar="TIMES",
            help="How many times the stored noise ratio is too much. [default: 4]",
        ),
    ] = None

    def checked(self) -> "Lock":
        """Itself, if the three make sense together."""
        if self.baseline is None and (self.update_baseline or self.baseline_factor is not None):
            raise UsageError(
                "usage",
                "`--update-baseline` and `--baseline-factor` need `--baseline`",
                help="onnxproof verify SUBJECT MODEL --baseline proofs/model.json",
            )
        if (
            self.baseline is not None
            and not self.update_baseline
            and not Path(self.baseline).is_file()
        ):
            raise UsageError(
                "no-baseline",
                f"there is no baseline `{self.baseline}` yet",
                where=self.baseline,
                help="write it once with `--update-baseline`",
            )
        if self.baseline is not None and not Path(self.baseline).absolute().parent.is_dir():
            raise UsageError(
                "cannot-write",
                f"there is no folder `{Path(self.baseline).parent}` to write the baseline to",
                help="make the folder first",
            )
        if self.baseline_factor is not None and not (
            math.isfinite(self.baseline_factor) and self.baseline_factor > 1
        ):
            raise PolicyError(
                "bad-threshold",
                f"`--baseline-factor {self.baseline_factor:g}` makes no sense",
                help="give a number above 1",
            )
        return self

    def apply(self, proof: "Proof") -> "Proof":
        """The proof with what changed since the baseline among its findings; or the baseline written anew."""
        from onnxproof.verification import baseline

        if self.baseline is None:
            return proof
        if self.update_baseline:
            return baseline.update(proof, self.baseline)
        return baseline.check(proof, self.baseline, factor=self.baseline_factor or baseline.FACTOR)


def reference(words: str, *, trust_remote_code: bool) -> Any:
    """The subject as the command's function takes it: its words, or these with leave to run a folder's code."""
    if not trust_remote_code:
        return words
    from onnxproof.reference.subject import Subject

    return Subject(source=words, trust_remote_code=True)


def profiled(lock: Lock, html: str | None) -> bool:
    """Whether somebody will look at the noise along the graph."""
    return lock.baseline is not None or html is not None


def folded(command: Callable[..., int]) -> Callable[..., int]:
    """A command whose parameters of a dataclass type become one option for each field, for typer to read."""
    signature, kinds = inspect.signature(command), get_type_hints(command, include_extras=True)
    groups = {name: kinds[name] for name in signature.parameters if is_dataclass(kinds[name])}
    plain = [
        p.replace(annotation=kinds[n], kind=inspect.Parameter.KEYWORD_ONLY)
        for n, p in signature.parameters.items()
        if n not in groups
    ]
    made = [
        *plain,
        *(_parameter(group, field) for group in groups.values() for field in fields(group)),
    ]

    @functools.wraps(command)
    def call(**given: Any) -> int:
        packed = {
            name: group(**{field.name: given.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        return command(**given, **packed)

    call.__signature__ = inspect.Signature(made)  # type: ignore[attr-defined]
    call.__annotations__ = {p.name: p.annotation for p in made}
    return call


def _parameter(group: Any, field: Any) -> inspect.Parameter:
    default = inspect.Parameter.empty if field.default is MISSING else field.default
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=get_type_hints(group, include_extras=True)[field.name],
    )


def policy(
    base: Policy,
    *,
    strict: bool = False,
    strict_domains: bool = False,
    domain: str | None = None,
    atol: float | None = None,
    rtol: float | None = None,
    noise_limit: float | None = None,
) -> Policy:
    """The base with what the user said; the limit for the worst element keeps its proportion to the other."""
    changes: dict[str, Any] = {}
    for name, value in (("atol", atol), ("rtol", rtol), ("noise_limit", noise_limit)):
        if value is not None:
            changes[name] = _positive(name, value)
    if noise_limit is not None:
        changes |= {
            name: noise_limit * getattr(base, name) / base.noise_limit
            for name in ("worst_limit", "bias_limit")
        }
    if domain not in (None, "finite", "all"):
        raise PolicyError(
            "unknown-domain",
            f"`--domain {domain}` is not known",
            help="say `--domain finite` or `--domain all`",
        )
    if domain is not None:
        changes["domains"] = () if domain == "finite" else Policy().domains
    return replace(
        base,
        strict=base.strict or strict,
        strict_domains=base.strict_domains or strict_domains,
        **changes,
    )


def _positive(name: str, value: float) -> float:
    least = 1.0 if name == "noise_limit" else 0.0
    if not (math.isfinite(value) and value >= least):
        raise PolicyError(
            "bad-threshold",
            f"`--{name.replace('_', '-')} {value:g}` makes no sense",
            help=f"give a number of at least {least:g}",
        )
    return value


def serving(
    *,
    isolate: bool | None,
    allow_fallback: bool,
    time_limit: float,
    memory_limit: float | None,
    threads: int | None = None,
) -> Serving:
    """How backends are run, if the numbers are ones that can be kept to."""
    for name, value in (
        ("time-limit", time_limit),
        ("memory-limit", memory_limit),
        ("threads", threads),
    ):
        if value is not None and not value > 0:
            raise UsageError(
                "bad-limit",
                f"`--{name} {value:g}` lets nothing run",
                help="give a number above 0, or leave it out",
            )
    return Serving(
        isolate=isolate,
        allow_fallback=allow_fallback,
        time_s=time_limit,
        memory_gb=memory_limit,
        threads=threads,
    )


def positive_budget(value: float) -> float:
    """The budget, if it is one."""
    if not value > 0:
        raise UsageError(
            "bad-budget",
            f"`--budget {value:g}` leaves no time for a single case",
            help="give seconds, such as `--budget 60`",
        )
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
            raise UsageError(
                "bad-dynamic",
                f"`--dynamic {word}` can't be understood",
                help="write input:axis=name, such as `--dynamic x:0=batch,x:1=seq`",
            )
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
            raise UsageError(
                "bad-static",
                f"`--static {word}` can't be understood",
                help="write input:axis, such as `--static x:1`",
            )
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
        ends = (
            [int(end) if end else None for end in (low, high)]
            if dots and all(end.isdigit() or not end for end in (low, high))
            else []
        )
        if (
            not name.isidentifier()
            or not ends
            or (ends[0] or 0) > (ends[1] if ends[1] is not None else 1 << 62)
        ):
            raise UsageError(
                "bad-dim",
                f"`--dim {word}` can't be understood",
                help="write name=from..to, such as `--dim seq=1..512`",
            )
        found[name] = (ends[0], ends[1])
    return found


def _words(words: list[str] | None) -> list[str]:
    return [word.strip() for word in ",".join(words or ()).split(",") if word.strip()]
