"""What the user said that inputs are: the values they may have, and the sizes of their dims.

Generators draw what keeps to the rules, `fit` brings everything else to the nearest value that does, and the reference refuses what
still breaks one. So no case that is compared, searched, shrunk or made for a diagnosis leaves them.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from onnxproof.errors import InputError, UsageError
from onnxproof.numerics.array_files import read_arrays
from onnxproof.options import Input
from onnxproof.results import InputInfo, Signature

Array = np.ndarray[Any, Any]
_MOST_VALUES = 4096
"""Different integers of sample data up to which they are all that is allowed; beyond it, their range is (not measured)."""
_NAME = re.compile(r"[A-Za-z_]\w*")
_TERM = rf"(?:{_NAME.pattern}|\d+)"
_RELATION = re.compile(rf"{_TERM}(?:(?:\+|-|\*|//){_TERM})*")
"""Sums, differences, products and whole quotients of dims and numbers."""
_FEW = 6
"""Values that a message lists."""


class RuledOut(ValueError):
    """Inputs that the user said never come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The values of one input."""

    name: str
    values: Array | None = None
    """All that is allowed, sorted; None where any number of the range is."""
    low: float = -math.inf
    high: float = math.inf
    avoid: Array | None = None
    samples: Array | None = None

    @classmethod
    def of(cls, name: str, declared: Input, example: Array | None = None) -> "Rule | None":
        """The rule that a declaration makes; None where it says nothing of values. The example's are as real as those of samples."""
        samples = _samples(name, declared.samples)
        values = None
        low, high = declared.range or (None, None)
        if declared.values:
            values = np.unique(np.asarray(declared.values))
        elif samples is not None:
            known = samples if example is None else np.append(samples, example)
            low, high, values = _extent(known, low, high)
        avoid = np.asarray(declared.avoid) if declared.avoid else None
        if values is None and avoid is None and low is None and high is None:
            return None
        return cls(
            name=name,
            values=values,
            low=-math.inf if low is None else low,
            high=math.inf if high is None else high,
            avoid=avoid,
            samples=samples,
        )

    @property
    def bounded(self) -> bool:
        """Whether values can be drawn from the rule alone."""
        return self.values is not None or (math.isfinite(self.low) and math.isfinite(self.high))

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator, dtype: np.dtype[Any]) -> Array:
        """Values like the samples, one of the allowed ones, or anything of the range; the rule is `bounded`."""
        if self.samples is not None and self.samples.size:
            drawn = _draw_samples(self.samples, shape, rng)
        elif self.values is not None:
            drawn = rng.choice(self.values, shape)
        elif dtype.kind in "iu":
            drawn = rng.integers(math.ceil(self.low), math.floor(self.high), shape, endpoint=True)
        else:
            drawn = rng.uniform(self.low, self.high, shape)
        return self.fit(np.asarray(drawn).astype(dtype))

    def fit(self, array: Array) -> Array:
        """The array with every element at the nearest allowed value; the same array where all are allowed."""
        if not array.size or not self.breach(array):
            return array
        wide = array if array.dtype.kind in "biu" else np.nan_to_num(array.astype(np.float64))
        if self.values is not None:
            fitted = _nearest(wide, self.values)
        else:
            fitted = np.clip(wide, *self._ends(array.dtype))
        if self.avoid is not None:
            fitted = np.where(np.isin(fitted, self.avoid), self._substitute(fitted), fitted)
        return np.asarray(fitted).astype(array.dtype)

    def _ends(self, dtype: np.dtype[Any]) -> tuple[float, float]:
        """The ends of the range as the dtype holds them: a float16 next to 0.1 must not lie beyond it."""
        low, high = self.low, self.high
        if dtype.kind in "iu":
            limits = np.iinfo(dtype)
            low = max(math.ceil(low), limits.min) if math.isfinite(low) else limits.min
            high = min(math.floor(high), limits.max) if math.isfinite(high) else limits.max
        return low, high

    def _substitute(self, array: Array) -> Any:
        """A value that is allowed, near the smallest of the array: tokens are mostly avoided at the ends of a vocabulary."""
        assert self.avoid is not None
        if self.values is not None:
            allowed = self.values[~np.isin(self.values, self.avoid)]
            return allowed[0] if allowed.size else self.values[0]
        avoided = set(self.avoid.reshape(-1).tolist())
        largest, smallest = array.max(initial=0), max(self.low, 0)
        candidates = range(int(smallest), int(min(largest, self.high)) + len(avoided) + 2)
        return next((value for value in candidates if value not in avoided), int(smallest))

    def breach(self, array: Array) -> str:
        """Why an array breaks the rule; empty where it keeps to it."""
        if not array.size:
            return ""
        wide = array if array.dtype.kind in "biu" else array.astype(np.float64)
        outside = np.zeros(array.shape, bool)
        expected = ""
        if self.values is not None:
            outside |= ~_is_among(wide, self.values, array.dtype)
            expected = f"{_listed(self.values)} are declared"
        else:
            slack = _rounding(array.dtype)
            low = self.low - abs(self.low) * slack if math.isfinite(self.low) else self.low
            high = self.high + abs(self.high) * slack if math.isfinite(self.high) else self.high
            outside |= ~((wide >= low) & (wide <= high))
            expected = f"{self.low:g} to {self.high:g} is declared"
        if self.avoid is not None:
            avoided = np.isin(wide, self.avoid)
            if avoided.any() and not outside.any():
                expected = f"{_listed(self.avoid)} are to be avoided"
            outside |= avoided
        if not outside.any():
            return ""
        first = np.asarray(wide)[outside].reshape(-1)[0]
        return f"`{self.name}` holds {first:g}, and {expected}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeRule:
    """The sizes of one dim."""

    low: int = 0
    high: int | None = None
    step: int = 1
    sizes: tuple[int, ...] = ()
    """All that are allowed, sorted; empty where any of the range is."""
    follows: str = ""
    """How it follows from other dims, and from inputs of one integer."""

    @classmethod
    def parse(cls, words: str) -> "SizeRule":
        """From `1..512`, `8..512:8`, `128,256`, or `past + seq`.

        >>> SizeRule.parse("8..512:8").nearest(13), SizeRule.parse("128,256").nearest(1)
        (16, 128)
        """
        text = "".join(words.split())
        if ".." in text:
            return cls._parse_range(text, words)
        if text and all(part.isdigit() for part in text.split(",")):
            return cls(sizes=tuple(sorted({int(part) for part in text.split(",")})))
        if not _RELATION.fullmatch(text) or not _NAME.search(text):
            raise _bad_size(words)
        return cls(follows=text)

    @classmethod
    def _parse_range(cls, text: str, words: str) -> "SizeRule":
        ends, _, step = text.partition(":")
        low, _, high = ends.partition("..")
        if not all(part.isdigit() or not part for part in (low, high, step)):
            raise _bad_size(words)
        rule = cls(low=int(low or 0), high=int(high) if high else None, step=int(step or 1))
        if rule.step < 1 or (rule.high is not None and rule.low > rule.high):
            raise _bad_size(words)
        return rule

    def nearest(self, size: int) -> int:
        """The allowed size that is nearest to one; the larger of two."""
        if self.sizes:
            return min(self.sizes, key=lambda allowed: (abs(allowed - size), -allowed))
        start = self.low or self.step
        bounded = max(size, self.low)
        if self.high is not None:
            bounded = min(bounded, self.high)
        if self.step == 1 or size == 0:
            return bounded
        steps = max(0, (bounded - start + self.step // 2) // self.step)
        nearest = start + steps * self.step
        if self.high is not None and nearest > self.high:
            nearest -= self.step
        return nearest

    def allows(self, size: int) -> bool:
        """Whether a dim may have this size."""
        return bool(self.follows) or self.nearest(size) == size


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """All that was said about the inputs of one model, by the reference's own names."""

    inputs: Mapping[str, Rule] = field(default_factory=dict)
    sizes: Mapping[str, SizeRule] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether anything was said."""
        return bool(self.inputs or self.sizes)

    @property
    def relations(self) -> dict[str, str]:
        """Dims that follow from others."""
        return {name: rule.follows for name, rule in self.sizes.items() if rule.follows}

    def deciding(self, example: Mapping[str, Array]) -> dict[str, int]:
        """Inputs of one integer by which a dim is computed, with their values in the example."""
        words = set(_NAME.findall(" ".join(self.relations.values())))
        return {
            name: int(array.reshape(-1)[0])
            for name, array in example.items()
            if name in words and array.size == 1 and array.dtype.kind in "iu"
        }

    def narrow(self, signature: Signature) -> Signature:
        """The signature with the ends of the declared sizes."""
        dims = []
        for dim in signature.dims:
            rule = self.sizes.get(dim.name, SizeRule())
            low, high = rule.low, rule.high
            if rule.sizes:
                low, high = rule.sizes[0], rule.sizes[-1]
            ends = [end for end in (dim.maximum, high) if end is not None]
            least, most = max(dim.minimum, low), min(ends, default=None)
            dims.append(replace(dim, minimum=least, maximum=most))
        return replace(signature, dims=tuple(dims))

    def check(self, arrays: Mapping[str, Array]) -> None:
        """Refuse inputs that break a rule.

        Raises:
            RuledOut: with the input, its value and what was declared.
        """
        for name, rule in self.inputs.items():
            if name in arrays and (breach := rule.breach(np.asarray(arrays[name]))):
                raise RuledOut(breach)

    def fit(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """The same inputs with every value brought to what is allowed."""
        fitted = dict(arrays)
        for name, rule in self.inputs.items():
            if name in fitted:
                fitted[name] = rule.fit(np.asarray(fitted[name]))
        return fitted


def resolve(
    declared: Mapping[str, Input],
    dims: Mapping[str, str],
    signature: Signature,
    example: Mapping[str, Array],
) -> Rules:
    """The rules by the names of the signature; the file's own names of inputs are understood too.

    Raises:
        InputError: `unknown-input` or `unknown-dim`.
    """
    names = {info.onnx_name or info.name: info.name for info in signature.inputs}
    names |= {info.name: info.name for info in signature.inputs}
    inputs: dict[str, Rule] = {}
    for name, said in declared.items():
        if name not in names:
            raise InputError(
                "unknown-input",
                f"the model has no input `{name}`",
                notes=[f"its inputs are {_named(info.name for info in signature.inputs)}"],
                help="`--input`, `--values`, `--range` and `--avoid` begin with the name of an input",
            )
        rule = Rule.of(names[name], said, example.get(names[name]))
        if rule is not None:
            inputs[names[name]] = rule
    return Rules(inputs=inputs, sizes=_resolve_sizes(dims, signature))


def _resolve_sizes(dims: Mapping[str, str], signature: Signature) -> dict[str, SizeRule]:
    sizes = {name: SizeRule.parse(words) for name, words in dims.items()}
    known = [dim.name for dim in signature.dims]
    unknown = _unknown_names(sizes, known, signature.inputs)
    if unknown:
        raise InputError(
            "unknown-dim",
            f"no open dim is called `{unknown[0]}`",
            notes=[f"the open dims are {_named(known) or 'none'}"],
            help="name a dim as the file does, or by `--dynamic x:1=seq`",
        )
    return sizes


def _unknown_names(
    sizes: Mapping[str, SizeRule], known: Sequence[str], inputs: Sequence[InputInfo]
) -> list[str]:
    """Names that are no dim's, and terms that are neither a dim's nor that of an input of one integer."""
    counts = [info.name for info in inputs if _is_one_integer(info)]
    terms = [term for rule in sizes.values() for term in _NAME.findall(rule.follows)]
    unknown = [name for name in sizes if name not in known]
    return unknown + [term for term in terms if term not in (*known, *counts)]


def _is_one_integer(info: InputInfo) -> bool:
    return math.prod(info.shape) == 1 and info.dtype.startswith(("int", "uint"))


def _bad_size(words: str) -> UsageError:
    return UsageError(
        "bad-dim",
        f"`{words}` can't be understood as the sizes of a dim",
        help="write 1..512, 8..512:8 (in steps of 8), 128,256, or past+seq",
    )


def _samples(name: str, source: Any) -> Array | None:
    """The array itself, or that of an input's name in a file."""
    if not isinstance(source, str | Path):
        return None if source is None else np.asarray(source)
    arrays = read_arrays(Path(source))
    if name not in arrays:
        raise InputError(
            "input-missing",
            f"`{source}` has no array `{name}`",
            where=str(source),
            notes=[f"it has {_named(arrays)}"],
        )
    return arrays[name]


def _extent(
    samples: Array, low: float | None, high: float | None
) -> tuple[float | None, float | None, Array | None]:
    """The range of sample data, and its values where these are a few integers."""
    if samples.dtype.kind in "biu":
        values = np.unique(samples)
        if values.size <= _MOST_VALUES:
            return low, high, values
    finite = samples[np.isfinite(samples.astype(np.float64))]
    if not finite.size:
        return low, high, None
    least, most = float(finite.min()), float(finite.max())
    return (least if low is None else low), (most if high is None else high), None


def _draw_samples(samples: Array, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Whole rows where they have the shape that is asked for; single elements otherwise."""
    if len(shape) > 0 and samples.ndim == len(shape) and samples.shape[1:] == shape[1:]:
        return np.asarray(samples[rng.integers(0, len(samples), shape[0])])
    return np.asarray(rng.choice(samples.reshape(-1), shape))


def _nearest(array: Array, values: Array) -> Array:
    right = np.clip(np.searchsorted(values, array), 0, len(values) - 1)
    left = np.maximum(right - 1, 0)
    is_left = np.abs(array - values[left]) < np.abs(values[right] - array)
    return np.where(is_left, values[left], values[right])


def _is_among(array: Array, values: Array, dtype: np.dtype[Any]) -> Array:
    """Whether each element is one of the values, as far as its dtype holds them."""
    nearest = _nearest(array, values)
    return np.asarray(np.abs(array - nearest) <= np.abs(nearest) * _rounding(dtype))


def _rounding(dtype: np.dtype[Any]) -> float:
    """How far a value may be off because the dtype does not hold it."""
    if dtype.kind in "biu":
        return 0.0
    return {2: 2.0**-7, 4: 2.0**-22}.get(dtype.itemsize, 0.0)


def _listed(values: Array) -> str:
    shown = ", ".join(f"{value:g}" for value in values.reshape(-1)[:_FEW])
    if values.size > _FEW:
        shown += f" and {values.size - _FEW} more"
    return shown


def _named(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
