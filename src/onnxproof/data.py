"""The user's own inputs as a stream of cases: files, folders, iterables, DataLoaders; one case is held at a time."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from onnxproof import nest
from onnxproof.errors import InputError

Arrays = dict[str, np.ndarray[Any, Any]]
SUFFIXES = (".npz", ".npy", ".safetensors")


def stream(data: Any, names: Sequence[str]) -> Iterator[tuple[str, Arrays]]:
    """Pairs of a label and the arrays by input name; positions are taken in the order of `names`."""
    if data is None:
        return
    if isinstance(data, str | Path):
        for path in _files(Path(data)):
            yield path.name, _named(_read(path), names, str(path))
        return
    if isinstance(data, Mapping):
        yield "data", _named({str(k): v for k, v in data.items()}, names, "data")
        return
    if not isinstance(data, Iterable):
        raise InputError("bad-data", f"data is a {type(data).__name__}", help="give a file, a folder, a dict of arrays, or an iterable of inputs")
    for index, item in enumerate(data):
        yield str(index), _item(item, names, f"data[{index}]")


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        found = sorted(p for p in path.iterdir() if p.suffix in SUFFIXES)
        if not found:
            raise InputError("no-data", f"`{path}` holds no data file", help=f"files end in {', '.join(SUFFIXES)}")
        return found
    if not path.is_file():
        raise InputError("no-such-file", f"there is no file `{path}`", where=str(path))
    if path.suffix not in SUFFIXES:
        raise InputError("bad-data", f"`{path.name}` is not a data file", help=f"files end in {', '.join(SUFFIXES)}")
    return [path]


def _read(path: Path) -> dict[str, Any]:
    try:
        if path.suffix == ".npy":
            return {"": np.load(path, allow_pickle=False)}
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as archive:
                return {name: archive[name] for name in archive.files}
        from safetensors.numpy import load_file

        return dict(load_file(path))
    except Exception as why:  # damaged archives raise half a dozen classes
        raise InputError("bad-data", f"`{path.name}` can't be read: {why}", where=str(path), help="pickled arrays are not read; save plain ones") from why


def _item(item: Any, names: Sequence[str], where: str) -> Arrays:
    if isinstance(item, Mapping):
        return _named(dict(item), names, where)
    leaves = [leaf for _, leaf in nest.flatten(item)]
    if len(leaves) < len(names):
        raise InputError("data-too-short", f"{where} has {len(leaves)} arrays for {len(names)} inputs", notes=[f"the inputs are {', '.join(names)}"])
    return {name: _array(leaf) for name, leaf in zip(names, leaves, strict=False)}  # what follows the inputs is labels


def _named(item: dict[str, Any], names: Sequence[str], where: str) -> Arrays:
    leaves = {path: _array(leaf) for path, leaf in nest.flatten(item)}
    if set(leaves) == {""} or (len(names) == 1 and len(leaves) == 1 and names[0] not in leaves):
        return {names[0]: next(iter(leaves.values()))}
    missing = [name for name in names if name not in leaves]
    if missing:
        raise InputError("input-missing", f"the data has no input named `{missing[0]}`", where=where,
                         notes=[f"it has {', '.join(sorted(leaves))}", f"the model takes {', '.join(names)}"], help="rename it in the data file")
    return {name: leaves[name] for name in names}


def _array(leaf: Any) -> np.ndarray[Any, Any]:
    if hasattr(leaf, "detach"):
        from onnxproof.backends.torch import to_numpy

        return to_numpy(leaf)
    return np.asarray(leaf)
