"""The user's own inputs in a verification: opened before anything runs, with findings on what was not compared as it is."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from onnxproof.errors import InputError
from onnxproof.inputs import data_stream as streams
from onnxproof.inputs.space import as_dtype
from onnxproof.numerics.array_files import read_arrays
from onnxproof.reference import tree
from onnxproof.results import Case, Dropped, Finding, InputInfo

Array = np.ndarray[Any, Any]
_FEW = 3
"""Names and cases that one finding lists; the proof's JSON has every case that was dropped."""
_NUMBERS = "biufc"
_PLAIN_TYPES = (int, float, bool, complex, list, tuple)


class RereadableIterator:
    """An iterator that can be read again: what was taken from it is remembered, and the rest stays where it is."""

    def __init__(self, source: Iterator[Any]) -> None:
        self._source = source
        self._taken: list[Any] = []

    def __iter__(self) -> Iterator[Any]:
        place = 0
        while True:
            if place == len(self._taken):
                try:
                    self._taken.append(next(self._source))
                except StopIteration:
                    return
            yield self._taken[place]
            place += 1


def open_data(data: Any) -> Any:
    """The data, after its first item was read: a file that isn't there, or nothing at all, is an error now and not a silent pass later.

    Raises:
        InputError: `no-such-file`, `not-a-file`, `no-data` or `bad-data`.
    """
    if data is None:
        return None
    if isinstance(data, str | Path):
        read_arrays(streams.data_files(Path(data))[0])
        return data
    if isinstance(data, Mapping):
        if not data:
            raise InputError(
                "no-data",
                "the data is an empty dict",
                help="give arrays by the names of the inputs, or leave `data` out",
            )
        return data
    if not isinstance(data, Iterable):
        raise InputError(
            "bad-data",
            f"data is a {type(data).__name__}",
            help="give a file, a folder, a dict of arrays, or an iterable of inputs",
        )
    items = data
    if isinstance(data, Iterator):
        items = RereadableIterator(data)
    first = next(iter(items), None)
    if first is None:
        raise InputError(
            "no-data",
            "the data has no item",
            notes=["an iterator that was read before has none left"],
            help="give at least one input, or leave `data` out",
        )
    for _, leaf in tree.flatten(first):
        if not _is_array_like(leaf):
            raise InputError(
                "bad-data",
                f"the first item of the data holds a {type(leaf).__name__}",
                help="give arrays or tensors",
            )
    return items


def _is_array_like(leaf: Any) -> bool:
    is_array = hasattr(leaf, "__array__") or hasattr(leaf, "detach")
    return is_array or isinstance(leaf, _PLAIN_TYPES)


class UserData:
    """The data of one run, opened already: what was read of it, what had to be cast, what was left out and why."""

    def __init__(self, data: Any) -> None:
        self._data = data
        self._read: list[str] = []
        self._all_tried = False
        self._names = streams.NameRecord()
        self._casts: dict[tuple[str, str, str], None] = {}
        self._unfit: dict[str, str] = {}

    def stream(self, inputs: Sequence[InputInfo]) -> Iterator[tuple[str, dict[str, Array]]]:
        """Labels and arrays, without the items that don't fit the inputs' dtypes."""
        names = [info.name for info in inputs]
        aliases = {info.onnx_name: info.name for info in inputs if info.onnx_name}
        self._names = streams.NameRecord(aliases=aliases)
        for label, arrays in streams.stream(self._data, names, self._names):
            self._read.append(label)
            reasons = (_unfit(arrays[info.name], info) for info in inputs)
            why = next(filter(None, reasons), "")
            if why:
                self._unfit[label] = why
                continue
            for info in inputs:
                dtype = str(arrays[info.name].dtype)
                if dtype != info.dtype:
                    self._casts[info.name, dtype, info.dtype] = None
            yield label, arrays

    def guard(
        self, planned: Iterable[Case], compared: Collection[str], dropped: Sequence[Dropped]
    ) -> Iterator[Case]:
        """The planned cases; an error as soon as all of the data was tried and none of it could be compared."""
        for case in planned:
            if case.group not in ("ordinary", "data"):
                self._all_tried = True
                self._check(compared, dropped)
            yield case
        self._check(compared, dropped)

    def owed(self, compared: Collection[str]) -> bool:
        """True until one item of the data was compared, or all were tried: that is done however little time there is."""
        return self._data is not None and not self._all_tried and not _has_data(compared)

    def findings(
        self,
        compared: Collection[str],
        dropped: Sequence[Dropped],
    ) -> list[Finding]:
        """What the user should know of the data: casts, drops, arrays that no input takes, data that was never reached."""
        self._check(compared, dropped)
        findings = [
            Finding(
                code="data-cast",
                what=f"your data for `{name}` is {old}, and the model takes {new}: the values were cast",
                help=f"runtimes refuse {old}: serve `{name}.astype('{new}')`, or save it as {new}",
            )
            for name, old, new in self._casts
        ]
        findings += self._name_findings()
        left = self._left_out(compared, dropped)
        if left:
            reasons = "; ".join(_reasons(left))
            if len(left) > _FEW:
                reasons += f"; and {len(left) - _FEW} more"
            findings.append(
                Finding(
                    code="data-dropped",
                    what=f"{len(left)} of {len(self._read)} items of your data were not compared: {reasons}",
                    help="give inputs that the reference takes: names, shapes and dtypes",
                )
            )
        if self._data is not None and not _has_data(compared):
            findings.append(
                Finding(
                    code="data-not-compared",
                    what="none of your data was compared: the time was over before",
                    fails=True,
                    help="give more time: `--budget`",
                )
            )
        return findings

    def _name_findings(self) -> list[Finding]:
        """Arrays under a name that no input has."""
        findings = [
            Finding(
                code="data-renamed",
                what=f"your data has no `{name}`: its only array, `{given}`, was taken for the model's only input",
                help=f"a runtime that is fed by name refuses `{given}`: call it `{name}` in the data, and where you serve",
            )
            for given, name in self._names.renamed.items()
        ]
        unused = sorted(self._names.unused)
        if unused:
            names = ", ".join(f"`{name}`" for name in unused[:_FEW])
            what = f"no input takes these arrays of your data: {names}"
            findings.append(Finding(code="data-unused", what=what))
        return findings

    def _left_out(
        self,
        compared: Collection[str],
        dropped: Sequence[Dropped],
    ) -> dict[str, str]:
        """Items that were not compared, with the reason: our own, or the reference's."""
        refused = {
            drop.case.removeprefix("data-"): f"the reference refuses it: {drop.reason}"
            for drop in dropped
            if drop.case.startswith("data-")
        }
        left_out = dict(self._unfit)
        for label, why in refused.items():
            if label in self._read and f"data-{label}" not in compared:
                left_out[label] = why
        return left_out

    def _check(
        self,
        compared: Collection[str],
        dropped: Sequence[Dropped],
    ) -> None:
        left = self._left_out(compared, dropped)
        if self._read and len(left) == len(set(self._read)):
            raise InputError(
                "data-unusable",
                f"none of the {len(self._read)} items of your data can be compared",
                notes=_reasons(left),
                help="give inputs that the reference takes: names, shapes and dtypes",
            )


def _has_data(compared: Collection[str]) -> bool:
    """Whether an item of the data is among the cases that were compared."""
    return any(name.startswith("data-") for name in compared)


def _reasons(left_out: Mapping[str, str]) -> list[str]:
    """The first few items that were not compared, with the reason."""
    return [f"`{label}`: {why}" for label, why in list(left_out.items())[:_FEW]]


def _unfit(array: Array, info: InputInfo) -> str:
    """Why an array can't be cast to the input's dtype without losing more than digits; empty where it can."""
    if array.dtype.kind in "SUO":
        return f"`{info.name}` holds {array.dtype}, not numbers"
    if str(array.dtype) == info.dtype or array.size == 0:
        return ""
    if array.dtype.kind not in _NUMBERS or info.dtype not in np.sctypeDict:
        return ""  # bfloat16 and its like are cast as they are
    dtype = np.dtype(info.dtype)
    if dtype.kind not in _NUMBERS:
        return ""
    loss = _loss_by_cast(array, dtype)
    if not loss:
        return ""
    return f"`{info.name}` is {array.dtype} and the model takes {info.dtype}: {loss}"


def _loss_by_cast(array: Array, dtype: np.dtype[Any]) -> str:
    """What a cast would lose besides digits; empty where it is nothing."""
    if array.dtype.kind == "c" and dtype.kind != "c":
        return "the imaginary part would be lost"
    cast = as_dtype(array, dtype)
    if dtype.kind in "biu":
        if (cast.astype(array.dtype) == array).all():
            return ""
        return "values would change"
    with np.errstate(all="ignore"):
        lost = np.isfinite(array.astype(np.complex128)) & ~np.isfinite(cast)
    if lost.any():
        return "values are too large for it"
    return ""
