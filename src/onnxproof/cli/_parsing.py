"""From the words of an option to its value; what makes no sense is an error that says what to write instead."""

import math
from dataclasses import replace
from typing import Any

from onnxproof.errors import PolicyError, UsageError
from onnxproof.options import Policy, Serving


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
            changes[name] = _threshold(name, value)
    if noise_limit is not None:
        for name in ("worst_limit", "bias_limit"):
            changes[name] = noise_limit * getattr(base, name) / base.noise_limit
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


def _threshold(name: str, value: float) -> float:
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
    shapes: dict[str, dict[int, str]] = {}
    for word in split_words(words):
        place, _, name = word.partition("=")
        tensor, _, axis = place.rpartition(":")
        if not tensor or not axis.isdigit() or not name.isidentifier():
            raise UsageError(
                "bad-dynamic",
                f"`--dynamic {word}` can't be understood",
                help="write input:axis=name, such as `--dynamic x:0=batch,x:1=seq`",
            )
        shapes.setdefault(tensor, {})[int(axis)] = name
    return shapes or None


def static_dims(words: list[str] | None) -> dict[str, tuple[int, ...]]:
    """`x:1,y:0` by input.

    >>> static_dims(["x:1,y:0", "x:2"])
    {'x': (1, 2), 'y': (0,)}
    """
    axes: dict[str, tuple[int, ...]] = {}
    for word in split_words(words):
        tensor, _, axis = word.rpartition(":")
        if not tensor or not axis.isdigit():
            raise UsageError(
                "bad-static",
                f"`--static {word}` can't be understood",
                help="write input:axis, such as `--static x:1`",
            )
        axes[tensor] = (*axes.get(tensor, ()), int(axis))
    return axes


def dim_ranges(words: list[str] | None) -> dict[str, tuple[int | None, int | None]]:
    """The smallest and the largest size of each dim of `--dim`; either end may be left out.

    >>> dim_ranges(["seq=1..512", "batch=..8", "width=32,64", "total=past+seq"])
    {'seq': (1, 512), 'batch': (None, 8), 'width': (32, 64)}
    """
    from onnxproof.inputs.rules import SizeRule

    ranges: dict[str, tuple[int | None, int | None]] = {}
    for name, sizes in dims(words).items():
        rule = SizeRule.parse(sizes)
        if rule.sizes:
            ranges[name] = (rule.sizes[0], rule.sizes[-1])
        elif not rule.follows:
            ranges[name] = (rule.low or None, rule.high)
    return ranges


def dims(words: list[str] | None) -> dict[str, str]:
    """`seq=1..512` by the dim's name; a list may go on after a comma.

    >>> dims(["seq=1..512,batch=1,2", "total=past+seq"])
    {'seq': '1..512', 'batch': '1,2', 'total': 'past+seq'}
    """
    sizes: dict[str, str] = {}
    last = ""
    for word in split_words(words):
        name, equals, rest = word.partition("=")
        if not equals and last and name.isdigit():
            sizes[last] += f",{name}"
        elif name.isidentifier() and rest.strip():
            last = name
            sizes[name] = rest.strip()
        else:
            raise _bad_dim(word)
    for name, rest in sizes.items():
        _check_sizes(name, rest)
    return sizes


def _check_sizes(name: str, words: str) -> None:
    from onnxproof.inputs.rules import SizeRule

    try:
        SizeRule.parse(words)
    except UsageError as why:
        raise _bad_dim(f"{name}={words}") from why


def _bad_dim(word: str) -> UsageError:
    return UsageError(
        "bad-dim",
        f"`--dim {word}` can't be understood",
        help="write name=from..to, such as `--dim seq=1..512`; 8..512:8, 128,256 or total=past+seq",
    )


def share(words: str | None) -> float | None:
    """A largest drop: `0.5%` or `0.005`.

    >>> share("0.5%"), share("0.25"), share(None)
    (0.005, 0.25, None)
    """
    if words is None:
        return None
    divisor = 100 if words.endswith("%") else 1
    try:
        value = float(words.removesuffix("%")) / divisor
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise UsageError(
            "bad-drop",
            f"`--max-drop {words}` makes no sense",
            help="say `--max-drop 0.5%` or `--max-drop 0.005`",
        )
    return value


def confidence(value: float) -> float:
    """The share that an interval covers, if it is one."""
    if not 0 <= value < 1:
        raise UsageError(
            "bad-confidence",
            f"`--confidence {value:g}` makes no sense",
            help="say a share below 1, such as 0.95",
        )
    return value


def batch_sizes(words: str | None) -> tuple[int, ...]:
    """`1,8,32` as numbers.

    >>> batch_sizes("1, 8")
    (1, 8)
    """
    parts = [part.strip() for part in (words or "").split(",") if part.strip()]
    if not all(part.isdigit() and int(part) > 0 for part in parts):
        raise UsageError(
            "bad-batch",
            f"`--batch {words}` can't be understood",
            help="give sizes, such as `--batch 1,8,32`",
        )
    return tuple(map(int, parts))


def split_words(words: list[str] | None) -> list[str]:
    """Comma-separated words of an option that may be repeated."""
    return [word.strip() for word in ",".join(words or ()).split(",") if word.strip()]
