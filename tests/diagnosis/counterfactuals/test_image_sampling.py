"""Crops that are moved, and resizes that are done otherwise."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.fake_reference import FakeReference
from support.module_workbenches import file_of, node
from support.workbenches import without_tally, workbench

from onnxproof.diagnosis.counterfactuals.image_sampling import try_crops, try_resizes
from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench, attribute_value

IMAGE = np.random.default_rng(0).normal(size=(1, 3, 7, 9)).astype(np.float32)


def bench_of(folder: Path, file: Any, right: Any, located: list[str]) -> Workbench:
    """The workbench of a file; `right` says what it should do with an image."""
    inputs = {"x": IMAGE}
    reference = FakeReference(lambda given: [right(given["x"])], has_truth=False, example=inputs)
    return workbench(folder, file, right(IMAGE), inputs, reference=reference, nodes=located)


def cut(rows: slice, columns: slice) -> Any:
    return lambda image: np.ascontiguousarray(image[:, :, rows, columns])


def crop_bench(folder: Path, right: Any, **ends: list[int]) -> Workbench:
    constants = {name: np.array(numbers, np.int64) for name, numbers in ends.items()}
    file = file_of([node("Slice", "x", *constants)], {"x": IMAGE}, constants)
    return bench_of(folder, file, right, ["y"])


def moved(folder: Path, right: Any, **ends: list[int]) -> Tried | None:
    bench = crop_bench(folder, right, **ends)
    return try_crops(bench, "x", list(bench.nodes))


@pytest.mark.parametrize(
    ("rows", "columns", "where"),
    [
        (slice(1, 5), slice(2, 6), "the centre"),  # 3 and 5 are left over: rounded down
        (slice(2, 6), slice(3, 7), "the centre"),  # and rounded up
        (slice(3, 7), slice(5, 9), "the bottom right"),
    ],
)
def test_a_crop_is_right_from_elsewhere(
    rows: slice, columns: slice, where: str, tmp_path: Path
) -> None:
    tried = moved(tmp_path, cut(rows, columns), starts=[0, 0], ends=[4, 4], axes=[-2, -1])
    assert tried is not None
    assert tried.proven
    assert without_tally(tried.evidence) == (
        f"y cuts another part out of `x`; from {where} the answers are right"
    )
    assert tried.fix is not None
    assert tried.fix.what == f"cut the image from {where} in y"


def test_a_crop_of_another_size_is_not_mended_by_moving_it(tmp_path: Path) -> None:
    larger = cut(slice(1, 6), slice(2, 7))
    assert moved(tmp_path, larger, starts=[0, 0], ends=[4, 4], axes=[2, 3]) is None


@pytest.mark.parametrize(
    "ends",
    [
        {"starts": [0, 0], "ends": [4, 4], "axes": [2, 3], "steps": [2, 2]},
        {"starts": [0, 0], "ends": [7, 9], "axes": [2, 3]},
        {"starts": [0, 0, 0, 0], "ends": [1, 3, 4, 4]},
    ],
    ids=["with steps", "of the whole image", "without axes"],
)
def test_what_is_no_crop_is_left_alone(ends: dict[str, list[int]], tmp_path: Path) -> None:
    assert moved(tmp_path, cut(slice(1, 5), slice(2, 6)), **ends) is None


def test_ends_that_are_computed_are_left_alone(tmp_path: Path) -> None:
    inputs = {"x": IMAGE, "starts": np.array([0, 0])}
    constants = {"ends": np.array([4, 4]), "axes": np.array([2, 3])}
    file = file_of([node("Slice", "x", "starts", "ends", "axes")], inputs, constants)
    truth = np.ascontiguousarray(IMAGE[:, :, 1:5, 2:6])
    bench = workbench(tmp_path, file, truth, inputs, nodes=["y"])
    assert try_crops(bench, "x", list(bench.nodes)) is None


def test_two_crops_are_moved_together(tmp_path: Path) -> None:
    constants = {"s": [0], "e": [5], "rows": [2], "columns": [3]}
    arrays = {name: np.array(numbers) for name, numbers in constants.items()}
    nodes = [
        node("Slice", "x", "s", "e", "rows", output="part"),
        node("Slice", "part", "s", "e", "columns"),
    ]
    file = file_of(nodes, {"x": IMAGE}, arrays)
    bench = bench_of(tmp_path, file, cut(slice(1, 6), slice(2, 7)), ["part", "y"])
    tried = try_crops(bench, "x", list(bench.nodes))
    assert tried is not None
    assert tried.proven
    assert tried.evidence.startswith("part, y cut another part out of `x`; from the centre")


def resize_bench(folder: Path, right: Any, **attributes: Any) -> Workbench:
    sizes = {"sizes": np.array([1, 3, 5, 4], np.int64)}
    file = file_of([node("Resize", "x", "", "", "sizes", **attributes)], {"x": IMAGE}, sizes)
    return bench_of(folder, file, right, ["y"])


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"mode": "bilinear"}, "bilinear"),
        pytest.param({"mode": "bilinear", "antialias": True}, "bilinear with antialiasing"),
        pytest.param({"mode": "bicubic", "antialias": True}, "bicubic with antialiasing"),
        ({"mode": "nearest"}, "nearest"),
        ({"mode": "nearest-exact"}, "nearest to the middle of each pixel"),
        ({"mode": "bicubic"}, "bicubic"),
    ],
)
def test_a_resize_is_named_as_torch_does_it(
    options: dict[str, Any], name: str, tmp_path: Path
) -> None:
    def resize(image: Any) -> Any:
        return torch.nn.functional.interpolate(torch.from_numpy(image), (5, 4), **options).numpy()

    wrong: dict[str, Any] = {"mode": "cubic", "coordinate_transformation_mode": "asymmetric"}
    bench = resize_bench(tmp_path, resize, **wrong, cubic_coeff_a=-0.5)
    tried = try_resizes(bench, list(bench.nodes))
    assert tried is not None
    assert (tried.proven, tried.code) == (True, "attribute")
    assert tried.fix is not None
    assert tried.fix.what == f"let y resize {name}"
    assert tried.model is not None
    if "cubic" not in name:
        assert attribute_value(tried.model.graph.node[0], "cubic_coeff_a") is None


def test_a_difference_that_no_resize_makes_is_not_explained(tmp_path: Path) -> None:
    bench = resize_bench(tmp_path, lambda image: np.full((1, 3, 5, 4), 9.0), mode="nearest")
    assert try_resizes(bench, list(bench.nodes)) is None
    assert try_resizes(bench, []) is None
