"""The user's own inputs as a stream of cases: files, folders, iterables, DataLoaders; one case is held at a time."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from onnxproof.errors import InputError
from onnxproof.numerics.array_files import SUFFIXES, read_arrays
from onnxproof.reference import tree
from onnxproof.system.user_files import require_regular

Arrays = dict[str, np.ndarray[Any, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class NameRecord:
    """How the names of the data went with those of the inputs."""

    aliases: Mapping[str, str] = field(default_factory=dict)
    """Other names that the data may use, such as the file's, with the input's own."""
    unused: set[str] = field(default_factory=set)
    """Arrays that no input takes."""
    renamed: dict[str, str] = field(default_factory=dict)
    """Arrays of another name, with the input that took them: there was one of each."""


def stream(
    data: Any, names: Sequence[str], record: NameRecord | None = None
) -> Iterator[tuple[str, Arrays]]:
    """Pairs of a label and the arrays by input name; positions are taken in the order of `names`.

    What did not go by name is put into the record.
    """
    record = record or NameRecord()
    if data is None:
        return
    if isinstance(data, str | Path):
        for path in data_files(Path(data)):
            yield path.name, _named(read_arrays(path), names, str(path), record)
        return
    if isinstance(data, Mapping):
        by_name = {str(name): value for name, value in data.items()}
        yield "data", _named(by_name, names, "data", record)
        return
    if not isinstance(data, Iterable):
        raise InputError(
            "bad-data",
            f"data is a {type(data).__name__}",
            help="give a file, a folder, a dict of arrays, or an iterable of inputs",
        )
    for index, item in enumerate(data):
        yield str(index), _item(item, names, f"data[{index}]", record)


def data_files(path: Path) -> list[Path]:
    """The data files of a folder, sorted by name, or the one file itself.

    Raises:
        InputError: `no-data`, `bad-data`, `no-such-file` or `not-a-file`.
    """
    if path.is_dir():
        files = [file for file in path.iterdir() if file.suffix.lower() in SUFFIXES]
        if not files:
            raise InputError(
                "no-data",
                f"`{path}` holds no data file",
                help=f"files end in {', '.join(SUFFIXES)}",
            )
        return sorted(require_regular(file, InputError) for file in files)
    require_regular(path, InputError)
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(
            "bad-data",
            f"`{path.name}` is not a data file",
            help=f"files end in {', '.join(SUFFIXES)}",
        )
    return [path]


def _item(
    item: Any,
    names: Sequence[str],
    where: str,
    record: NameRecord,
) -> Arrays:
    if isinstance(item, Mapping):
        return _named(dict(item), names, where, record)
    leaves = [leaf for _, leaf in tree.flatten(item)]
    if len(leaves) < len(names):
        raise InputError(
            "data-too-short",
            f"{where} has {len(leaves)} arrays for {len(names)} inputs",
            notes=[f"the inputs are {', '.join(names)}"],
        )
    inputs = zip(names, leaves, strict=False)  # what follows the inputs is labels
    return {name: _array(leaf) for name, leaf in inputs}


def _named(
    item: dict[str, Any],
    names: Sequence[str],
    where: str,
    record: NameRecord | None = None,
) -> Arrays:
    record = record or NameRecord()
    leaves = _by_input_names(item, names, record.aliases)
    if _is_single_array(leaves, names):
        given, array = next(iter(leaves.items()))
        if given:
            record.renamed[given] = names[0]
        return {names[0]: array}
    missing = [name for name in names if name not in leaves]
    if missing:
        raise InputError(
            "input-missing",
            f"the data has no input named `{missing[0]}`",
            where=where,
            notes=[f"it has {', '.join(sorted(leaves))}", f"the model takes {', '.join(names)}"],
            help="rename it in the data file",
        )
    record.unused.update(name for name in leaves if name not in names)
    return {name: leaves[name] for name in names}


def _by_input_names(
    item: dict[str, Any], names: Sequence[str], aliases: Mapping[str, str]
) -> Arrays:
    """The arrays of an item by their paths; an alias that is no input's own name gives way to the name that it stands for."""
    leaves = {path: _array(leaf) for path, leaf in tree.flatten(item)}
    for alias, name in aliases.items():
        if alias in leaves and alias not in names and name not in leaves:
            leaves[name] = leaves.pop(alias)
    return leaves


def _is_single_array(leaves: Arrays, names: Sequence[str]) -> bool:
    """Whether there is one array and one input, so that the array's name does not matter."""
    if set(leaves) == {""}:
        return True
    return len(names) == 1 and len(leaves) == 1 and names[0] not in leaves


def _array(leaf: Any) -> np.ndarray[Any, Any]:
    if hasattr(leaf, "detach"):
        from onnxproof.reference.torch_session import to_numpy

        return to_numpy(leaf)
    return np.asarray(leaf)
