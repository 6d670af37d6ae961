"""The cause `baked-dimension`: sizes at which the file is right, and sizes at which it is wrong."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from support.module_workbenches import case_of, file_of, module_workbench, node
from support.workbenches import without_tally

from onnxproof.diagnosis.causes import baked_dimension
from onnxproof.diagnosis.counterfactuals.workbench import ComparedCases, Tried, Workbench
from onnxproof.results import DimInfo, Gap, Status

RNG = np.random.default_rng(0)
SHORT, SHORT_TOO, OTHER_SHORT, LONG = (
    RNG.normal(size=(1, size)).astype(np.float32) for size in (4, 4, 4, 7)
)
NOTHING = "no dim separates the cases that agree from those that don't"
TRACED = (
    "the module traced on its example, whose sizes and branches it then keeps, "
    "gives what the candidate gives"
)


class Branch(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] > 5:
            return torch.sin(x)
        return x * 2


class Same(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


class PythonMean(torch.nn.Module):
    """The size is a number of Python, which tracing freezes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum(1, keepdim=True) / int(x.shape[1])


class CacheMean(torch.nn.Module):
    def forward(self, past_key: torch.Tensor) -> torch.Tensor:
        return past_key.sum(1, keepdim=True) / int(past_key.shape[1])


class TensorMean(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean(1, keepdim=True)


class Reshaped(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(1, int(x.shape[1])) * 2


def bench_of(
    folder: Path,
    sizes: Mapping[int, bool],
    *,
    module: torch.nn.Module | None = None,
    file: onnx.ModelProto | None = None,
    name: str = "x",
    dim: Mapping[str, Any] | None = None,
    ordinary: bool = True,
    gap: Gap | None = None,
) -> Workbench:
    """Cases by the size of `n`, and whether each is wrong; the example has four, the witness seven."""
    inputs = {name: LONG}
    cases = ComparedCases(
        sizes={f"n{size}": {"n": size} for size in sizes},
        beyond_noise={f"n{size}": wrong for size, wrong in sizes.items()},
        ordinary={f"n{size}": ordinary for size in sizes},
        agreeing=[
            case_of({name: array}, name=f"short {place}")
            for place, array in enumerate((SHORT_TOO, OTHER_SHORT))
        ],
    )
    bench = module_workbench(
        folder,
        module or Same(),
        file or file_of([node("Add", name, name)], inputs),
        inputs,
        example={name: SHORT},
        cases=cases,
    )
    (port,) = bench.scene.signature.inputs
    signature = replace(
        bench.scene.signature,
        dims=(DimInfo(**{"name": "n", "example": 4, **(dim or {})}),),
        inputs=(replace(port, dims=(1, "n")),),
    )
    bench.scene = replace(bench.scene, signature=signature, gap=gap)
    return bench


def quarter_of_sum(name: str = "x") -> onnx.ModelProto:
    """The mean of four, whatever the size."""
    nodes = [node("ReduceSum", name, "axes", output="sum"), node("Div", "sum", "four")]
    constants = {"axes": np.array([1]), "four": np.array(4, np.float32)}
    return file_of(nodes, {name: LONG}, constants)


ONE_SIZE = {3: True, 4: False, 5: True, 7: True}


def test_a_size_that_tracing_freezes_stands_in_the_file(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, ONE_SIZE, module=PythonMean(), file=quarter_of_sum())
    tried = baked_dimension.test(bench)
    assert isinstance(tried, Tried)
    assert (tried.proven, tried.in_reference, tried.code) == (True, True, "")
    assert without_tally(tried.evidence) == TRACED


def test_a_size_that_only_the_file_has_frozen_is_named_with_its_node(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, ONE_SIZE, module=TensorMean(), file=quarter_of_sum())
    tried = baked_dimension.test(bench)
    assert isinstance(tried, Tried)
    assert (tried.proven, tried.in_reference, tried.code) == (True, False, "")
    assert without_tally(tried.evidence) == (
        "y holds a size of the example; "
        "with each case's own size in its place the answers are right"
    )


def test_sizes_that_separate_the_cases_are_a_likeness_where_no_size_is_found(
    tmp_path: Path,
) -> None:
    thrice = file_of([node("Mul", "x", "n")], {"x": LONG}, {"n": np.array(3, np.float32)})
    tried = baked_dimension.test(bench_of(tmp_path, ONE_SIZE, file=thrice))
    assert isinstance(tried, Tried)
    assert (tried.proven, tried.code) == (False, "")
    assert tried.evidence == "right at n=4, wrong at 3, 5, 7: every case of those sizes"


def test_a_dim_that_only_a_cache_has_is_a_matter_of_the_cache(tmp_path: Path) -> None:
    file = quarter_of_sum("past_key")
    sizes = {4: False, 5: True, 7: True}
    bench = bench_of(tmp_path, sizes, module=CacheMean(), file=file, name="past_key")
    tried = baked_dimension.test(bench)
    assert isinstance(tried, Tried)
    assert (tried.proven, tried.code) == (True, "cache")


ONE_SIDE = {3: False, 4: False, 6: True, 7: True}


def test_right_on_one_side_is_a_frozen_branch_where_the_module_takes_another_way(
    tmp_path: Path,
) -> None:
    tried = baked_dimension.test(bench_of(tmp_path, ONE_SIDE, module=Branch()))
    assert isinstance(tried, Tried)
    assert (tried.proven, tried.code) == (True, "baked-branch")
    assert without_tally(tried.evidence) == TRACED


def test_right_on_one_side_is_a_likeness_where_the_module_has_one_way(tmp_path: Path) -> None:
    thrice = file_of([node("Mul", "x", "n")], {"x": LONG}, {"n": np.array(3, np.float32)})
    tried = baked_dimension.test(bench_of(tmp_path, ONE_SIDE, file=thrice))
    assert isinstance(tried, Tried)
    assert (tried.proven, tried.code) == (False, "baked-branch")
    assert tried.evidence == "right at n=3, 4, wrong at 6, 7"


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


def test_a_size_that_the_file_refuses_as_the_traced_module_does_is_named(tmp_path: Path) -> None:
    nodes = [node("Reshape", "x", "shape", output="flat"), node("Add", "flat", "flat")]
    file = file_of(nodes, {"x": LONG}, {"shape": np.array([1, 4])})
    sizes = {4: False, 7: True}
    bench = bench_of(tmp_path, sizes, module=Reshaped(), file=file, gap=REFUSED)
    tried = baked_dimension.test(bench)
    assert isinstance(tried, Tried)
    assert tried.proven
    assert without_tally(tried.evidence) == TRACED


def test_sizes_that_the_file_refuses_are_a_likeness(tmp_path: Path) -> None:
    thrice = file_of([node("Mul", "x", "n")], {"x": LONG}, {"n": np.array(3, np.float32)})
    tried = baked_dimension.test(bench_of(tmp_path, {4: False, 5: True}, file=thrice, gap=REFUSED))
    assert isinstance(tried, Tried)
    assert not tried.proven
    assert tried.evidence == (
        "the file refuses sizes that the module takes (n: 5) and takes others"
    )


@pytest.mark.parametrize("sizes", [{4: True, 5: True}, {4: False}])
def test_a_file_that_refuses_all_sizes_or_none_is_no_matter_of_sizes(
    sizes: dict[int, bool], tmp_path: Path
) -> None:
    assert baked_dimension.test(bench_of(tmp_path, sizes, gap=REFUSED)) == NOTHING


class OtherPathMean(torch.nn.Module):
    """Longer inputs take one more step, which changes nothing."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] > 5:
            x = torch.relu(x) - torch.relu(-x)
        return x.sum(1, keepdim=True) / int(x.shape[1])


def test_a_size_in_the_file_is_no_branch_although_the_module_takes_another_path(
    tmp_path: Path,
) -> None:
    bench = bench_of(tmp_path, ONE_SIZE, module=OtherPathMean(), file=quarter_of_sum())
    tried = baked_dimension.test(bench)
    assert isinstance(tried, Tried)
    assert (tried.proven, tried.in_reference, tried.code) == (True, False, "")
    assert tried.evidence.startswith("y holds a size of the example")
