"""Damage of the user's own data, for `--data`."""

import json
import random
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
KINDS = (
    "data-missing-name",
    "data-other-shape",
    "data-other-dtype",
    "data-pickled",
    "data-truncated",
    "data-empty",
    "data-odd-values",
    "data-header-odd",
    "data-folder-odd",
    "data-not-there",
    "data-safetensors-odd",
    "data-sound",
)


def write(example: Mapping[str, Array], kind: str, folder: Path, source: random.Random) -> str:
    """Write the data that is damaged in this way; the path to give to `--data`."""
    arrays = {name: value for name, value in example.items() if value.dtype.kind != "O"} or {
        "x": np.zeros(3, np.float32)
    }
    path = folder / "data.npz"
    if kind == "data-not-there":
        return source.choice(
            [
                "nope.npz",
                "nope",
                "",
                ".",
                "/",
                "a" * 5000 + ".npz",
                "nope.txt",
                "data.npz/x",
                "nul\x00.npz",
            ]
        )
    if kind == "data-safetensors-odd":
        return _safetensors(folder, source)
    if kind == "data-folder-odd":
        return _folder(arrays, folder, source)
    if kind == "data-header-odd":
        return _npy(folder, source)
    np.savez(path, **_changed(arrays, kind, source))
    if kind == "data-truncated":
        path.write_bytes(path.read_bytes()[: source.randrange(path.stat().st_size)])
    elif kind == "data-empty":
        path.write_bytes(b"")
    return path.name


def _changed(arrays: dict[str, Array], kind: str, source: random.Random) -> dict[str, Any]:
    name = source.choice(sorted(arrays))
    value = arrays[name]
    if kind == "data-missing-name":
        return source.choice(
            [
                {},
                {"other": value},
                {**arrays, "more": value},
                {"\x1b[31m": value},
                {key: v for key, v in arrays.items() if key != name},
            ]
        )
    if kind == "data-other-shape":
        return {
            **arrays,
            name: source.choice(
                [
                    value[None],
                    value.reshape(-1),
                    value[:0],
                    np.float32(3),
                    np.zeros((0,)),
                    np.zeros((2,) * 12, value.dtype),
                    value[..., :1],
                ]
            ),
        }
    if kind == "data-other-dtype":
        return {
            **arrays,
            name: value.astype(
                source.choice(
                    [
                        "float64",
                        "int8",
                        "bool",
                        "complex64",
                        "U8",
                        "S3",
                        "float16",
                        "uint64",
                        "M8[s]",
                    ]
                )
            ),
        }
    if kind == "data-pickled":
        return {**arrays, name: np.array([None, {"a": 1}], dtype=object)}
    if kind == "data-odd-values" and value.dtype.kind == "f":
        return {**arrays, name: np.full_like(value, source.choice([np.nan, np.inf, 6e4, 1e-40]))}
    if kind == "data-odd-values":
        return {
            **arrays,
            name: np.full_like(value, source.choice([-1, 10**6, np.iinfo(value.dtype).min])),
        }
    return arrays


def _folder(arrays: dict[str, Array], folder: Path, source: random.Random) -> str:
    inside = folder / "data"
    inside.mkdir()
    choice = source.choice(["empty", "mixed", "link-loop", "text", "folder"])
    if choice == "mixed":
        np.savez(inside / "a.npz", **arrays)  # type: ignore[arg-type]
        (inside / "b.npz").write_bytes(b"not a zip")
    elif choice == "link-loop":
        (inside / "a.npz").symlink_to("a.npz")
    elif choice == "text":
        (inside / "readme.txt").write_text("nothing")
    elif choice == "folder":
        (inside / "a.npz").mkdir()
    return inside.name


def _npy(folder: Path, source: random.Random) -> str:
    header = source.choice(
        [
            "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,), }",
            "{'descr': '|O', 'fortran_order': False, 'shape': (3,), }",
            "{",
            "[]" * 50,
            "{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 3), }",
            "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999, 2), }",
        ]
    ).encode()
    (folder / "data.npy").write_bytes(
        b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(16)
    )
    return "data.npy"


def _safetensors(folder: Path, source: random.Random) -> str:
    entry = source.choice(
        [
            {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]},
            {"dtype": "F32", "shape": [10**12], "data_offsets": [0, 16]},
            {"dtype": "Q9", "shape": [1], "data_offsets": [0, 4]},
            {"dtype": "F32", "shape": [-1], "data_offsets": [0, 16]},
            {"dtype": "F32", "shape": [4], "data_offsets": [8, 4]},
            {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]},
            5,
        ]
    )
    header = json.dumps({"x": entry}).encode()
    length = source.choice([len(header), len(header), 2**63 - 1, 0, 10**9])
    (folder / "data.safetensors").write_bytes(struct.pack("<Q", length) + header + bytes(16))
    return "data.safetensors"
