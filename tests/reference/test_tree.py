"""Nested containers and arrays by name."""

from typing import NamedTuple

import numpy as np
import pytest

from onnxproof.reference import tree
from onnxproof.reference.leaf import drop_missing, leaves_of


class Pair(NamedTuple):
    first: int
    second: object


@pytest.mark.parametrize(
    ("value", "paths"),
    [
        (3, [""]),
        ((1, [2, {"k": 3}]), ["0", "1.0", "1.1.k"]),
        (Pair(1, (2,)), ["first", "second.0"]),
        ({"a": None, "b": 1}, ["b"]),
    ],
)
def test_leaves_have_paths_and_go_back_to_their_place(value: object, paths: list[str]) -> None:
    assert [path for path, _ in tree.flatten(value)] == paths
    rebuilt = tree.rebuild(value, {path: f"new {path}" for path in paths})
    assert type(rebuilt) is type(value) or paths == [""]
    assert [leaf for _, leaf in tree.flatten(rebuilt)] == [f"new {path}" for path in paths]


def test_leaves_describe_arrays() -> None:
    (leaf,) = leaves_of([("x", np.zeros((2, 3), np.float16))])
    assert (leaf.name, leaf.dtype, leaf.shape) == ("x", "float16", (2, 3))
    kept = drop_missing([None, np.ones(1), None])
    assert len(kept) == 1
