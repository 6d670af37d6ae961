"""A recurrent layer of two directions whose weights belong to each other."""

from pathlib import Path

import numpy as np
import pytest
from support.module_workbenches import file_of, node
from support.workbenches import without_tally, workbench

from onnxproof.diagnosis.counterfactuals.misplaced_weights import try_directions

RNG = np.random.default_rng(3)
X = {"x": RNG.normal(size=(4, 2, 3)).astype(np.float32)}
W, R = (RNG.normal(size=(2, 5, size)).astype(np.float32) for size in (3, 5))
LAYER = [node("RNN", "x", "w", "r", hidden_size=5, direction="bidirectional")]


@pytest.mark.parametrize(
    ("constants", "places"),
    [({"w": W[::-1], "r": R}, [1]), ({"w": W, "r": R[::-1]}, [2])],
    ids=["weights", "recurrence"],
)
def test_directions_that_are_exchanged_are_named(
    constants: dict[str, np.ndarray], places: list[int], tmp_path: Path
) -> None:
    wrong = {name: np.ascontiguousarray(array) for name, array in constants.items()}
    right = file_of(LAYER, X, {"w": W, "r": R})
    bench = workbench(tmp_path, file_of(LAYER, X, wrong), right, X, nodes=["y"])
    tried = try_directions(bench)
    assert tried is not None
    assert (tried.proven, tried.code) == (True, "weight-layout")
    assert without_tally(tried.evidence) == (
        f"with the two directions of operands {places} of y (RNN) exchanged the answers are right"
    )


def test_weights_that_are_merely_other_ones_are_not_exchanged(tmp_path: Path) -> None:
    right = file_of(LAYER, X, {"w": W + 1, "r": R})
    bench = workbench(tmp_path, file_of(LAYER, X, {"w": W, "r": R}), right, X, nodes=["y"])
    assert try_directions(bench) is None
