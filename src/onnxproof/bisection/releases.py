"""Which releases lie between two: `1.20..1.31` of what pip's index has, or the very list that the user gives."""

import re
import subprocess
import sys
from collections.abc import Sequence

from onnxproof.errors import UsageError

_PATIENCE_S = 120
"""Seconds that pip's index has to answer. Not measured."""
_RELEASE = re.compile(r"\d+(\.\d+)*")
_MOST_OPSET = 99


def parse_versions(words: str) -> tuple[str, str]:
    """The package and its versions.

    >>> parse_versions("onnxruntime=1.20..1.31")
    ('onnxruntime', '1.20..1.31')
    """
    package, equals, versions = (part.strip() for part in words.partition("="))
    if not equals or not package or not versions:
        raise _misunderstood(words)
    return package, versions


def between(package: str, versions: str) -> list[str]:
    """The releases that are meant, the oldest first; `1.31` as an end means the last one of 1.31."""
    if ".." not in versions:
        return _listed(f"{package}={versions}", versions.split(","))
    low, _, high = (part.strip() for part in versions.partition(".."))
    for end in (low, high):
        if not _RELEASE.fullmatch(end):
            raise _misunderstood(f"{package}={versions}")
    available = _available(package)
    first, last = _numbers(low), _numbers(high)
    chosen = [
        version
        for version in available
        if _numbers(version) >= first and _numbers(version)[: len(last)] <= last
    ]
    if len(chosen) < 2:
        known = ", ".join(available) or "none"
        raise UsageError(
            "no-versions",
            f"fewer than two releases of {package} lie within {low}..{high}",
            notes=[f"pip's index has {known}"],
            help="give other ends",
        )
    return chosen


def parse_opsets(words: str) -> list[str]:
    """Opsets from low to high.

    >>> parse_opsets("17..20"), parse_opsets("17,21")
    (['17', '18', '19', '20'], ['17', '21'])
    """
    low, dots, high = words.partition("..")
    if not dots:
        chosen = words.split(",")
    elif low.strip().isdecimal() and high.strip().isdecimal() and int(high) <= _MOST_OPSET:
        chosen = [str(opset) for opset in range(int(low), int(high) + 1)]
    else:
        chosen = []
    numbers = [part.strip() for part in chosen]
    if len(numbers) < 2 or not all(map(str.isdecimal, numbers)):
        raise UsageError(
            "bad-opsets",
            f"`--opsets {words}` can't be understood",
            help="give the lowest and the highest, such as `--opsets 17..23`",
        )
    return sorted(numbers, key=int)


def _listed(words: str, versions: Sequence[str]) -> list[str]:
    chosen = [version.strip() for version in versions]
    if len(set(chosen)) < 2 or not all(map(_RELEASE.match, chosen)):
        raise _misunderstood(words)
    return sorted(dict.fromkeys(chosen), key=_numbers)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0]))


def _available(package: str) -> list[str]:
    """What pip's index has for this Python, the oldest first, without releases before a release."""
    command = [sys.executable, "-m", "pip", "index", "versions", package]
    try:
        done = subprocess.run(
            [*command, "--disable-pip-version-check"],
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _no_index(package, f"no answer within {_PATIENCE_S} s") from None
    line = re.search(r"^Available versions: (.*)$", done.stdout, re.MULTILINE)
    if line is None:
        raise _no_index(package, (done.stderr.splitlines() or ["it says nothing"])[-1])
    versions = [version.strip() for version in line[1].split(",")]
    return sorted(filter(_is_final, versions), key=_numbers)


def _is_final(version: str) -> bool:
    return _RELEASE.fullmatch(version.partition("+")[0]) is not None


def _no_index(package: str, why: str) -> UsageError:
    return UsageError(
        "no-index",
        f"pip's index does not tell the releases of {package}",
        notes=[why],
        help=f"name them: `--versions {package}=1.20.0,1.21.0,1.22.0`",
    )


def _misunderstood(words: str) -> UsageError:
    return UsageError(
        "bad-versions",
        f"`--versions {words}` can't be understood",
        help="give the package with both ends, or with all versions: `onnxruntime=1.20..1.31`, `torch=2.9.0,2.10.0`",
    )
