"""From the words of an option to its value; what makes no sense is an error that says what to write instead."""

import math
import re
from dataclasses import replace
from typing import Any

from onnxproof.errors import PolicyError, UsageError
from onnxproof.options import BundleOptions, Policy, Serving

_SUM = re.compile(r"[A-Za-z_]\w*([+-][A-Za-z_]\w*)+")
"""A dim that follows from others: `past+seq`."""
_MOST_BUNDLE_MB = BundleOptions().most_mb


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
    ops: list[str] | None = None,
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
        ops=tuple(ops or ()),
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


def bundle_size(value: float) -> float:
    """Megabytes of a bundle, if a case can fit into them."""
    if not 0 < value <= _MOST_BUNDLE_MB:
        raise UsageError(
            "bad-size",
            f"`--size {value:g}` makes no sense",
            help=f"give megabytes up to {_MOST_BUNDLE_MB:g}: more is never recorded",
        )
    return value


def dynamic_shapes(
    words: list[str] | None, *, sums: bool = False
) -> dict[str, dict[int, str]] | None:
    """`x:0=batch,x:1=seq` as the dict that torch.onnx.export takes; `sums` lets a dim follow from others.

    >>> dynamic_shapes(["x:0=batch,x:1=seq", "mask:0=batch"])
    {'x': {0: 'batch', 1: 'seq'}, 'mask': {0: 'batch'}}
    >>> dynamic_shapes(["mask:1=past+seq"], sums=True)
    {'mask': {1: 'past+seq'}}
    """
    shapes: dict[str, dict[int, str]] = {}
    for word in split_words(words):
        place, _, name = word.partition("=")
        tensor, _, axis = place.rpartition(":")
        if not tensor or not axis.isdigit() or not _is_dim(name, sums=sums):
            raise UsageError(
                "bad-dynamic",
                f"`--dynamic {word}` can't be understood",
                help="write input:axis=name, such as `--dynamic x:0=batch,x:1=seq`, or a sum such as `mask:1=past+seq`",
            )
        shapes.setdefault(tensor, {})[int(axis)] = name
    return shapes or None


def _is_dim(name: str, *, sums: bool) -> bool:
    return name.isidentifier() or (sums and _SUM.fullmatch(name) is not None)


def loop(words: list[str] | None, *, leave_out: bool) -> dict[str, str] | str | None:
    """`present_k=past_k` by output; `auto` where nothing is said, None where loops are left out.

    >>> loop(["present_k=past_k,present_v=past_v"], leave_out=False)
    {'present_k': 'past_k', 'present_v': 'past_v'}
    """
    if leave_out and words:
        raise UsageError(
            "bad-loop", "`--loop` and `--no-loop` exclude each other", help="give one of them"
        )
    if leave_out:
        return None
    pairs = {}
    for word in split_words(words):
        output, _, input = word.partition("=")
        if not output or not input:
            raise UsageError(
                "bad-loop",
                f"`--loop {word}` can't be understood",
                help="write output=input, such as `--loop present_k=past_k`",
            )
        pairs[output] = input
    return pairs or "auto"


def positive_steps(steps: int | None) -> int | None:
    """Calls of a rollout: at least one."""
    if steps is not None and steps < 1:
        raise UsageError(
            "bad-steps", f"`--steps {steps}` is no number of calls", help="give 1 or more"
        )
    return steps


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


def growth(words: str | None) -> float | None:
    """A largest rise of the perplexity: `2%` or `0.02`.

    >>> growth("2%"), growth(None)
    (0.02, None)
    """
    if words is None:
        return None
    divisor = 100 if words.endswith("%") else 1
    try:
        value = float(words.removesuffix("%")) / divisor
    except ValueError:
        value = -1.0
    if not value > 0:
        raise UsageError(
            "bad-perplexity",
            f"`--max-perplexity {words}` makes no sense",
            help="say `--max-perplexity 2%` or `--max-perplexity 0.02`",
        )
    return value


def file_size(words: str | None) -> int | None:
    """Bytes of a file: `900kB`, `1.5GB`, or a plain number.

    >>> file_size("1.5MB"), file_size("200")
    (1500000, 200)
    """
    if words is None:
        return None
    number = words.strip().lower().removesuffix("b")
    factor = {"k": 10**3, "m": 10**6, "g": 10**9}.get(number[-1:], 1)
    try:
        value = float(number.rstrip("kmg")) * factor
    except ValueError:
        value = 0.0
    if not value > 0:
        raise UsageError(
            "bad-size",
            f"`--max-size {words}` is no size of a file",
            help="say `--max-size 120MB`",
        )
    return int(value)


def positive(value: float | None, name: str) -> float | None:
    """A limit above 0, where one is given."""
    if value is not None and not value > 0:
        raise UsageError(
            "bad-limit", f"`--{name} {value:g}` can't be kept", help="give a number above 0"
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
