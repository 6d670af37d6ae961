"""The cause `baked-dimension`: sizes at which the file is right, and sizes at which it is wrong."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.module_workbenches import file_of, module_workbench, node

from onnxproof.diagnosis.causes import baked_dimension
from onnxproof.diagnosis.counterfactuals.workbench import ComparedCases, Tried, Workbench
from onnxproof.results import DimInfo, Gap, Status

SHORT = np.ones((1, 4), np.float32)
LONG = np.ones((1, 7), np.float32)
NOTHING = "no dim separates the cases that agree from those that don't"


class Branch(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] > 5:
            return torch.sin(x)
        return x * 2


class Same(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


def bench_of(
    folder: Path,
    sizes: Mapping[int, bool],
    *,
    module: torch.nn.Module | None = None,
    name: str = "x",
    dim: Mapping[str, Any] | None = None,
    ordinary: bool = True,
    gap: Gap | None = None,
) -> Workbench:
    """Cases by the size of `n`, and whether each is wrong; the example has four."""
    inputs = {"x": LONG}
    file = file_of([node("Add", "x", "x")], inputs)
    cases = ComparedCases(
        sizes={f"n{size}": {"n": size} for size in sizes},
        beyond_noise={f"n{size}": wrong for size, wrong in sizes.items()},
        ordinary={f"n{size}": ordinary for size in sizes},
    )
    bench = module_workbench(
        folder, module or Same(), file, inputs, example={"x": SHORT}, cases=cases
    )
    (port,) = bench.scene.signature.inputs
    signature = replace(
        bench.scene.signature,
        dims=(DimInfo(**{"name": "n", "example": 4, **(dim or {})}),),
        inputs=(replace(port, name=name, dims=(1, "n")),),
    )
    bench.scene = replace(bench.scene, signature=signature, gap=gap)
    return bench


def test_a_file_that_is_right_at_the_examples_size_alone_has_it_baked_in(tmp_path: Path) -> None:
    tried = baked_dimension.test(bench_of(tmp_path, {3: True, 4: False, 5: True, 7: True}))
    assert isinstance(tried, Tried)
    assert (tried.proven, tried.code) == (True, "")
    assert tried.evidence == "right at n=4, wrong at 3, 5, 7: every case of those sizes"


def test_a_dim_that_only_a_cache_has_is_a_matter_of_the_cache(tmp_path: Path) -> None:
    tried = baked_dimension.test(bench_of(tmp_path, {4: False, 5: True, 7: True}, name="past_key"))
    assert isinstance(tried, Tried)
    assert (tried.proven, tried.code) == (True, "cache")


@pytest.mark.parametrize(("module", "proven"), [(Branch(), True), (Same(), False)])
def test_right_on_one_side_is_a_frozen_branch_only_if_the_module_takes_another_way(
    module: torch.nn.Module, proven: bool, tmp_path: Path
) -> None:
    sizes = {3: False, 4: False, 6: True, 7: True}
    tried = baked_dimension.test(bench_of(tmp_path, sizes, module=module))
    assert isinstance(tried, Tried)
    assert (tried.proven, tried.code) == (proven, "baked-branch")
    assert tried.evidence.startswith("right at n=3, 4, wrong at 6, 7, and the module takes")


@pytest.mark.parametrize(
    "sizes",
    [
        {4: False, 7: True},  # one wrong size may be an accident
        {4: True, 5: True, 7: True},  # the example is wrong itself
        {3: False, 4: False, 5: True, 6: False, 7: True},  # neither one size nor one side
        {},
    ],
)
def test_sizes_that_separate_nothing_are_no_cause(sizes: dict[int, bool], tmp_path: Path) -> None:
    assert baked_dimension.test(bench_of(tmp_path, sizes)) == NOTHING


def test_odd_values_and_dims_that_follow_from_others_say_nothing(tmp_path: Path) -> None:
    sizes = {4: False, 5: True, 7: True}
    assert baked_dimension.test(bench_of(tmp_path, sizes, ordinary=False)) == NOTHING
    derived = bench_of(tmp_path, sizes, dim={"derived": "past + seq"})
    assert baked_dimension.test(derived) == NOTHING


REFUSED = Gap(case="n5", group="shapes", backend="ort", output="y", status=Status.REFUSED)


def test_sizes_that_the_file_refuses_are_named(tmp_path: Path) -> None:
    tried = baked_dimension.test(bench_of(tmp_path, {4: False, 5: True}, gap=REFUSED))
    assert isinstance(tried, Tried)
    assert tried.proven
    assert tried.evidence == (
        "the file refuses sizes that the module takes (n: 5) and takes others: "
        "sizes of the example stand in it"
    )


@pytest.mark.parametrize("sizes", [{4: True, 5: True}, {4: False}])
def test_a_file_that_refuses_all_sizes_or_none_is_no_matter_of_sizes(
    sizes: dict[int, bool], tmp_path: Path
) -> None:
    tried = baked_dimension.test(bench_of(tmp_path, sizes, gap=REFUSED))
    assert tried == "the file refuses, and sizes alone don't say when"
