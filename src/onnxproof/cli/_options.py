"""The options that several commands share; `_parsing` says what their words mean.

A group of options is a dataclass; `folded` lets a command take one as a single argument. A new option of all commands is a new
field here.
"""

import functools
import inspect
import math
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from onnxproof.cli import _parsing as parsing
from onnxproof.cli._subject_options import InputOptions as InputOptions
from onnxproof.cli._subject_options import SubjectOptions as SubjectOptions
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
Operators = Annotated[
    list[str] | None,
    typer.Option(
        "--ops",
        metavar="LIBRARY",
        help="Your own operators: a library for ONNX Runtime (.so), or a Python file with OPERATORS for the standard's evaluator; may be repeated.",
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
Target = Annotated[
    str | None,
    typer.Option(
        "--target",
        metavar="fp16|bf16|tf32",
        help="The precision of the device that will run the file: what it would lose there decides the verdict.",
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
Pipeline = Annotated[
    str | None,
    typer.Option(
        "--pipeline",
        metavar="deploy.py:preprocess",
        help="The preprocessing of the deployment, verified from raw inputs on.",
    ),
]
Bundle = Annotated[
    str | None,
    typer.Option(
        "--bundle",
        metavar="PATH",
        help="Write the most telling cases for `onnxproof replay` on the machine that will serve the model.",
    ),
]
NoExplain = Annotated[
    bool, typer.Option("--no-explain", help="Don't look for the node and the cause.")
]
LoopPairs = Annotated[
    list[str] | None,
    typer.Option(
        "--loop",
        metavar="OUT=IN",
        help="An output that is an input of the next call; may be repeated. [default: found by itself]",
    ),
]
NoLoop = Annotated[
    bool, typer.Option("--no-loop", help="Don't roll a model out that feeds itself.")
]
Steps = Annotated[
    int | None,
    typer.Option(
        "--steps", metavar="N", help="Calls after the prompt in the longest rollout. [default: 68]"
    ),
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
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return parsing.policy(base or Policy(), **values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Where runtimes run, and what they may take."""

    isolate: Isolate = None
    allow_fallback: AllowFallback = False
    time_limit: TimeLimit = 60.0
    memory_limit: MemoryLimit = None
    threads: Threads = None
    ops: Operators = None

    def serving(self) -> Serving:
        """The same as the runtimes take it."""
        return parsing.serving(
            isolate=self.isolate,
            allow_fallback=self.allow_fallback,
            time_limit=self.time_limit,
            memory_limit=self.memory_limit,
            threads=self.threads,
            ops=self.ops,
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
    ops: Operators = None
    data: Data = None
    budget: Budget = 60.0
    seed: Seed = 0
    loop: LoopPairs = None
    no_loop: NoLoop = False
    steps: Steps = None

    def arguments(self) -> dict[str, Any]:
        """The same as arguments of `verify`, `diff` and `export`."""
        limits = Limits(**{field.name: getattr(self, field.name) for field in fields(Limits)})
        return {
            "serving": limits.serving(),
            "data": self.data,
            "backends": tuple(self.backend or ("ort",)),
            "budget_s": parsing.positive_budget(self.budget),
            "seed": self.seed,
            "loop": parsing.loop(self.loop, leave_out=self.no_loop),
            "steps": parsing.positive_steps(self.steps),
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
        if self.baseline is not None:
            self._check_path(self.baseline)
        elif self.update_baseline or self.baseline_factor is not None:
            raise UsageError(
                "usage",
                "`--update-baseline` and `--baseline-factor` need `--baseline`",
                help="onnxproof verify SUBJECT MODEL --baseline proofs/model.json",
            )
        factor = self.baseline_factor
        if factor is not None and not (math.isfinite(factor) and factor > 1):
            raise PolicyError(
                "bad-threshold",
                f"`--baseline-factor {factor:g}` makes no sense",
                help="give a number above 1",
            )
        return self

    def _check_path(self, baseline: str) -> None:
        path = Path(baseline)
        if not self.update_baseline and not path.is_file():
            raise UsageError(
                "no-baseline",
                f"there is no baseline `{baseline}` yet",
                where=baseline,
                help="write it once with `--update-baseline`",
            )
        if not path.absolute().parent.is_dir():
            raise UsageError(
                "cannot-write",
                f"there is no folder `{path.parent}` to write the baseline to",
                help="make the folder first",
            )

    def apply(self, proof: "Proof") -> "Proof":
        """The proof with what changed since the baseline among its findings; or the baseline written anew."""
        from onnxproof.verification import baseline

        if self.baseline is None:
            return proof
        if self.update_baseline:
            return baseline.update(proof, self.baseline)
        return baseline.check(proof, self.baseline, factor=self.baseline_factor or baseline.FACTOR)


def needs_profile(lock: Lock, html: str | None) -> bool:
    """Whether the noise along the graph is compared with a baseline or shown."""
    return lock.baseline is not None or html is not None


def folded(command: Callable[..., int]) -> Callable[..., int]:
    """A command whose parameters of a dataclass type become one option for each field, for typer to read."""
    kinds = get_type_hints(command, include_extras=True)
    parameters: list[inspect.Parameter] = []
    groups: dict[str, Any] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        kind = kinds[name]
        if is_dataclass(kind):
            groups[name] = kind
        else:
            parameters.append(
                parameter.replace(annotation=kind, kind=inspect.Parameter.KEYWORD_ONLY)
            )
    for group in groups.values():
        parameters += [_parameter(group, field) for field in fields(group)]

    @functools.wraps(command)
    def call(**arguments: Any) -> int:
        for name, group in groups.items():
            values = {field.name: arguments.pop(field.name) for field in fields(group)}
            arguments[name] = group(**values)
        return command(**arguments)

    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def _parameter(group: Any, field: Any) -> inspect.Parameter:
    default = inspect.Parameter.empty if field.default is MISSING else field.default
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=get_type_hints(group, include_extras=True)[field.name],
    )
