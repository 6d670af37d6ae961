"""What the generators know: the signature, the example's values, what each input is for, and the sizes dims may take."""

import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as dataclass_replace
from enum import StrEnum
from typing import Any

import numpy as np

from onnxproof.inputs.decisions import NO_DECISIONS, Decisions
from onnxproof.inputs.rules import Rules
from onnxproof.numerics import measure
from onnxproof.results import Case, DimInfo, Domain, InputInfo, Signature

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]
Sizes = Mapping[str, int]
"""The size of every open dim, by its name."""
Inputs = Mapping[str, Array]
"""Arrays by the name of the input."""
NO_RULES = Rules()
"""Nothing was said."""
_LARGEST = 1 << 22
"""Elements of one generated input at the most, unless the example itself is larger (not measured)."""


_FEW_TOKENS = 8
"""Tokens of most cases of a large model. BERT-base takes a third of the time with 3 x 8 of them that it takes with 3 x 32."""


class Role(StrEnum):
    """What an input is for, as far as dtype, name, values and use tell."""

    FLOAT = "float"
    MASK = "mask"
    IDS = "ids"
    INTEGER = "integer"
    TEXT = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One input with its role and the range of its integers."""

    info: InputInfo
    role: Role
    example: Array
    high: int | None = None
    """Ids lie below this: the rows of the table they look up, where the graph shows one."""
    additive: bool = False
    """A float mask that is added to scores: 0 keeps, minus infinity hides, and both are ordinary values of it."""
    high_dims: tuple[str, ...] = ()
    """Or below the size of one of these dims, where they index another input."""
    tables: tuple[int, ...] = ()
    """The rows of every table that the graph looks up with it: columns of one input may have tables of their own."""
    texts: tuple[str, ...] = ()
    """Strings that mean something to the models: those of the example, of encoders and of the graph's own tables."""
    differing_rows: tuple[int, ...] = ()
    """Rows in which a table of the file differs from the module's parameter of that name."""

    @property
    def name(self) -> str:
        """The input's name."""
        return self.info.name

    @property
    def dtype(self) -> np.dtype[Any]:
        """Its numpy dtype."""
        return np.dtype(self.example.dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """The input space that generators draw from."""

    signature: Signature
    slots: tuple[Slot, ...]
    seed: int = 0
    constants: tuple[float, ...] = ()
    """Small constants of the graph: thresholds and bounds are among them."""
    bounds: tuple[float, ...] = ()
    """The constants that the graph compares values with."""
    domains: tuple[Domain, ...] = tuple(Domain)
    data: Iterable[tuple[str, Inputs]] = ()
    relations: Mapping[str, str] = field(default_factory=dict)
    """Dims that follow from others: `{"total": "past + seq"}`; a dim tied to another has its bare name."""
    pinned: frozenset[str] = frozenset()
    """Dims of which the reference refuses other sizes."""
    rules: Rules = NO_RULES
    """What the user said that inputs are."""
    decisions: Decisions = NO_DECISIONS
    """Where the reference decides, for a model of tables."""
    large_model: bool = False
    """Whether a pass takes long enough that most cases are short: a count of weights, so that a busy machine makes no other cases."""
    deciding: Mapping[str, int] = field(default_factory=dict)
    """Inputs of one integer by which a dim is computed, with the example's values: `sizes` hold them beside the dims."""

    def rng(self, name: str) -> np.random.Generator:
        """Random numbers that depend on the seed and the case's name alone, so that any case can be replayed by itself."""
        checksum = zlib.crc32(name.encode())
        return np.random.default_rng([self.seed, checksum])

    @property
    def free_dims(self) -> list[DimInfo]:
        """Dims that can be set one by one."""
        return [
            dim
            for dim in self.signature.dims
            if dim.name not in self.relations and dim.name not in self.pinned
        ]

    def sizes(self, **changed: int) -> dict[str, int]:
        """A size for every dim: the example's, the given ones, and what follows from them."""
        sizes = {dim.name: dim.example for dim in self.signature.dims} | dict(self.deciding)
        sizes |= changed
        for name, expression in self.relations.items():
            sizes[name] = evaluate(expression, sizes)
        return sizes

    def roomy(self) -> dict[str, int]:
        """The example's sizes, with a batch of at least three where the leading dim may vary: one odd row needs neighbours.

        Of a large model three rows, and few tokens: what a case of odd values shows does not depend on its length, and other cases vary that.
        """
        changed = {}
        for dim in self.free_dims:
            if dim.name in self._leading:
                rows = self.admitted(dim.name, min(3, dim.maximum or 3))
                changed[dim.name] = rows if self.large_model else max(dim.example, rows)
            elif self.large_model and dim.name in self._token_dims:
                tokens = min(dim.example, max(_FEW_TOKENS, dim.minimum or 0))
                changed[dim.name] = self.admitted(dim.name, tokens)
        return self.sizes(**changed)

    @property
    def _leading(self) -> set[int | str]:
        return {info.dims[0] for info in self.signature.inputs if info.dims}

    @property
    def _token_dims(self) -> set[int | str]:
        """The dims along which ids are counted."""
        return {dim for slot in self.of_role(Role.IDS) for dim in slot.info.dims[1:]}

    def admitted(self, name: str, size: int) -> int:
        """The size of a dim that is nearest to one and that the user's words allow."""
        rule = self.rules.sizes.get(name)
        if rule is None or rule.follows:
            return size
        return rule.nearest(size)

    def next_size(self, dim: DimInfo) -> int:
        """A size just above the example's."""
        rule = self.rules.sizes.get(dim.name)
        if rule is None:
            return dim.example + 1
        larger = [size for size in rule.sizes if size > dim.example]
        return self.admitted(dim.name, min(larger, default=dim.example + rule.step))

    def refusal(self, case: Case) -> str:
        """Why a case has sizes that the user ruled out; empty where it has none."""
        if not self.rules.sizes:
            return ""
        sizes = {name: int(np.asarray(case.inputs[name]).reshape(-1)[0]) for name in self.deciding}
        for info in self.signature.inputs:
            shape = np.shape(case.inputs[info.name])
            named = zip(info.dims, shape, strict=False)
            sizes |= {dim: size for dim, size in named if isinstance(dim, str)}
        for name, rule in self.rules.sizes.items():
            if rule.follows and sizes[name] != evaluate(rule.follows, sizes):
                return f"{name} is {sizes[name]}, and {rule.follows} is declared"
            if not rule.allows(sizes[name]):
                return f"{name} is {sizes[name]}, which is not declared"
        return ""

    def fitted(self, case: Case) -> Case:
        """The case with values that the user's words allow; the user's own data stays as it is."""
        if case.group == "data" or not self.rules.inputs:
            return case
        return dataclass_replace(case, inputs=self.rules.fit(case.inputs))

    def shape(self, info: InputInfo, sizes: Sizes) -> Shape:
        """The shape of an input at these sizes."""
        return tuple(sizes[dim] if isinstance(dim, str) else dim for dim in info.dims)

    def fits(self, sizes: Sizes) -> bool:
        """True when no dim leaves its declared range and no input grows out of hand."""
        for dim in self.signature.dims:
            size = sizes[dim.name]
            too_large = dim.maximum is not None and size > dim.maximum
            if size < dim.minimum or too_large or self.admitted(dim.name, size) != size:
                return False
        for slot in self.slots:
            elements = _count(self.shape(slot.info, sizes))
            if elements > max(_LARGEST, slot.example.size):
                return False
        return True

    def values(self, name: str, sizes: Sizes, *, scale: float = 1.0) -> dict[str, Array]:
        """Ordinary values for all inputs at these sizes."""
        rng = self.rng(name)
        arrays = {}
        for slot in self.slots:
            shape = self.shape(slot.info, sizes)
            rule = self.rules.inputs.get(slot.name)
            if slot.name in self.deciding:
                value = sizes.get(slot.name, self.deciding[slot.name])
                arrays[slot.name] = np.full(shape, value, slot.dtype)
            elif rule is not None and rule.bounded:
                arrays[slot.name] = _scaled(rule.draw(shape, rng, slot.dtype), scale)
            else:
                arrays[slot.name] = ordinary(slot, shape, rng, sizes, scale=scale)
        return arrays

    def case(
        self,
        name: str,
        group: str,
        about: str,
        sizes: Sizes,
        *,
        replace: Inputs | None = None,
        scale: float = 1.0,
        **flags: Any,
    ) -> Case:
        """A case of ordinary values in which some inputs are replaced, as far as the user's words allow."""
        inputs = self.values(name, sizes, scale=scale)
        for key, array in (replace or {}).items():
            if key not in self.deciding:
                inputs[key] = as_dtype(array, inputs[key].dtype)
        sizes = {dim: size for dim, size in sizes.items() if dim not in self.deciding}
        case = Case(name=name, group=group, about=about, inputs=inputs, sizes=sizes, **flags)
        return self.fitted(case)

    def of_role(self, *roles: Role) -> list[Slot]:
        """The inputs of these roles."""
        return [slot for slot in self.slots if slot.role in roles]

    def real_floats(self) -> list[Slot]:
        """The float inputs that are not complex."""
        return [slot for slot in self.of_role(Role.FLOAT) if slot.dtype.kind != "c"]


def as_dtype(array: Array, dtype: np.dtype[Any]) -> Array:
    """Convert without a warning for values that only the wider type holds."""
    if dtype.kind == "U":  # a dtype of strings has a length, which must not cut others off
        return np.asarray(array).astype(np.str_)
    with np.errstate(all="ignore"):
        return np.asarray(array).astype(dtype)


def ordinary(
    slot: Slot,
    shape: Shape,
    rng: np.random.Generator,
    sizes: Sizes,
    *,
    scale: float = 1.0,
) -> Array:
    """Values like the example's: floats of its mean and spread, ids of its table, masks mostly set."""
    if slot.role is Role.TEXT:
        return rng.choice(np.array(slot.texts, np.str_), shape)
    if slot.role is Role.MASK:
        return _mask(slot, shape, rng)
    if slot.role is Role.IDS:
        rows = max(1, upper(slot, sizes))
        return rng.integers(0, rows, shape).astype(slot.dtype)
    if slot.role is Role.INTEGER:
        low, high = _integer_range(slot)
        return rng.integers(low, high + 1, shape).astype(slot.dtype)
    if slot.dtype.kind == "c":
        real = rng.standard_normal(shape)
        imaginary = rng.standard_normal(shape)
        return ((real + 1j * imaginary) * scale).astype(slot.dtype)
    mean, spread = _moments(slot.example)
    return as_dtype((mean + spread * rng.standard_normal(shape)) * scale, slot.dtype)


def _scaled(array: Array, scale: float) -> Array:
    """Floats times a factor; any other as they are."""
    if scale == 1 or not is_float(array.dtype):
        return array
    return as_dtype(array.astype(np.float64) * scale, array.dtype)


def upper(slot: Slot, sizes: Sizes) -> int:
    """One past the largest id that is valid at these sizes."""
    bounds = [sizes[dim] for dim in slot.high_dims if dim in sizes]
    if slot.high is not None:
        bounds.append(slot.high)
    if not bounds:
        return int(slot.example.max(initial=0)) + 1
    return min(bounds)


def _mask(
    slot: Slot,
    shape: Shape,
    rng: np.random.Generator,
) -> Array:
    """Right-padded rows of random lengths, each with at least one true element."""
    if not shape or 0 in shape:
        return np.ones(shape, slot.dtype)
    width = shape[-1]
    lengths = rng.integers(1, width + 1, shape[:-1])
    mask = np.arange(width) < lengths[..., None]
    return mask.astype(slot.dtype)


def _integer_range(slot: Slot) -> tuple[int, int]:
    """The smallest and the largest value like the example's; 0 and 1 are always among them."""
    if not slot.example.size:
        return 0, 1
    low = int(slot.example.min())
    high = int(slot.example.max())
    return min(low, 0), max(high, low + 1, 1)


def _moments(example: Array) -> tuple[float, float]:
    """Mean and standard deviation of the finite values; 0 and 1 where they do not vary."""
    wide = example.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    if finite.size < 2 or float(finite.std()) == 0.0:
        return 0.0, 1.0
    return float(finite.mean()), float(finite.std())


def is_float(dtype: np.dtype[Any]) -> bool:
    """True for every real float dtype."""
    return measure.is_float_dtype(dtype)


def evaluate(expression: str, sizes: Sizes) -> int:
    """A sum, difference, product or whole quotient of dims: nothing else is ever read from a file.

    >>> evaluate("past + seq", {"past": 6, "seq": 4}), evaluate("4*sr//125", {"sr": 16000})
    (10, 512)
    """
    total = 0
    sign = 1
    for token in re.findall(r"[+-]|[^+\-\s]+", expression):
        if token == "-":
            sign = -1
        elif token == "+":
            sign = 1
        else:
            total += sign * _product(token, sizes)
            sign = 1
    return total


def _product(token: str, sizes: Sizes) -> int:
    """The product of numbers and dims, divided by others: `2*seq`, `seq//4`."""
    numerator, *divisors = token.split("//")
    product = 1
    for divisor in divisors:
        product *= max(1, _product(divisor, sizes))
    if divisors:
        return _product(numerator, sizes) // product
    for factor in token.split("*"):
        if factor.isdigit():
            product *= int(factor)
        else:
            product *= sizes[factor]
    return product


def _count(shape: Sequence[int]) -> int:
    return int(np.prod(shape, dtype=np.int64))
