"""Sizes of the example in the place of a case's own: in the traced module, and in constants of the file."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from support.module_workbenches import case_of, file_of, module_workbench, node
from support.workbenches import workbench

from onnxproof.diagnosis.counterfactuals.example_sizes import (
    sizes_in_file,
    traced_on_example,
    with_own_sizes,
)
from onnxproof.diagnosis.counterfactuals.workbench import Workbench
from onnxproof.diagnosis.trial_cases import TrialCase, same_scene
from onnxproof.results import DimInfo

RNG = np.random.default_rng(0)
SHORT, LONG, LONGER = ({"x": RNG.normal(size=(2, size)).astype(np.float32)} for size in (4, 9, 16))


class Mean(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum(1, keepdim=True) / int(x.shape[1])


class Branch(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] > 5:
            return torch.exp(x)
        return torch.sin(x)


class Reshaped(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(int(x.shape[0]), int(x.shape[1])) * 2


class Untraceable(torch.nn.Module):
    """It asks whether it is being traced, as code that has a way of its own for exports does."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.jit.is_tracing():
            raise RuntimeError("not to be traced")
        return x * 2


def bench_of(folder: Path, module: torch.nn.Module, file: onnx.ModelProto) -> Workbench:
    """The witness has nine columns, the example four."""
    bench = module_workbench(folder, module, file, LONG, example=SHORT)
    (port,) = bench.scene.signature.inputs
    signature = replace(
        bench.scene.signature,
        dims=(DimInfo(name="rows", example=2), DimInfo(name="columns", example=4)),
        inputs=(replace(port, dims=("rows", "columns")),),
    )
    bench.scene = replace(bench.scene, signature=signature)
    return bench


def divided(*constants: float, elements: int = 1) -> onnx.ModelProto:
    """The sum of each row, divided by each of these numbers."""
    nodes = [node("ReduceSum", "x", "axes", output="sum0")]
    weights: dict[str, Any] = {"axes": np.array([1])}
    for place, number in enumerate(constants):
        output = "y" if place + 1 == len(constants) else f"sum{place + 1}"
        nodes.append(node("Div", f"sum{place}", f"n{place}", output=output))
        weights[f"n{place}"] = np.full(elements, number, np.float32)
    return file_of(nodes, LONG, weights)


def answered(bench: Workbench, inputs: Any) -> TrialCase:
    scene = same_scene(bench.scene, case_of(inputs))
    assert scene is not None
    outputs = bench.run(inputs=inputs)
    return TrialCase(scene=scene, outputs=outputs, before=scene.error(outputs))


def test_the_traced_module_keeps_the_examples_size_on_every_case(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, Mean(), divided(4))
    counterfactual = traced_on_example(bench)
    assert counterfactual is not None
    assert counterfactual.in_reference
    for inputs in (SHORT, LONG, LONGER):
        error = counterfactual.error(answered(bench, inputs))
        assert error is not None
        assert error < 1e-6
    assert answered(bench, LONG).fails
    assert not answered(bench, SHORT).fails


def test_the_traced_module_keeps_the_examples_branch(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, Branch(), file_of([node("Sin", "x")], LONG))
    counterfactual = traced_on_example(bench)
    assert counterfactual is not None
    error = counterfactual.error(answered(bench, LONG))
    assert error is not None
    assert error < 1e-6


def test_a_file_with_another_fault_is_not_what_tracing_gives(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, Mean(), divided(5))
    counterfactual = traced_on_example(bench)
    assert counterfactual is not None
    error = counterfactual.error(answered(bench, LONG))
    assert error == pytest.approx(0.25, rel=1e-5)  # divided by 4 and by 5: over the smaller


@pytest.mark.parametrize(("shape", "error"), [([2, 4], 0.0), ([-1, 9], math.inf)])
def test_sizes_that_both_refuse_are_explained_and_those_that_one_refuses_are_not(
    shape: list[int], error: float, tmp_path: Path
) -> None:
    nodes = [node("Reshape", "x", "shape", output="flat"), node("Add", "flat", "flat")]
    bench = bench_of(tmp_path, Reshaped(), file_of(nodes, LONG, {"shape": np.array(shape)}))
    counterfactual = traced_on_example(bench)
    assert counterfactual is not None
    assert counterfactual.error(answered(bench, LONG)) == error


def test_what_can_not_be_traced_gives_no_counterfactual(tmp_path: Path) -> None:
    file = file_of([node("Add", "x", "x")], LONG)
    assert traced_on_example(bench_of(tmp_path, Untraceable(), file)) is None
    assert traced_on_example(workbench(tmp_path, file, LONG["x"], LONG)) is None


@pytest.mark.parametrize("number", [4, 1 / 4, 3, 5, 2, 1 / 2, 8])
def test_constants_that_hold_the_examples_size_or_a_formula_of_it_are_found(
    number: float, tmp_path: Path
) -> None:
    bench = bench_of(tmp_path, Mean(), divided(number))
    ((constant,),) = sizes_in_file(bench, "columns")
    assert (constant.node, constant.place, constant.dim) == ("y", 1, "columns")
    assert constant.formula(4) == pytest.approx(number)


@pytest.mark.parametrize(("number", "elements"), [(7, 1), (4.001, 1), (1 / 4, 2), (4, 9)], ids=str)
def test_other_numbers_formulas_in_a_shape_and_long_constants_are_no_sizes(
    number: float, elements: int, tmp_path: Path
) -> None:
    bench = bench_of(tmp_path, Mean(), divided(number, elements=elements))
    assert list(sizes_in_file(bench, "columns")) == []


def test_each_constant_is_tried_alone_then_all_together(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, Mean(), divided(4, 2))
    groups = [[constant.node for constant in group] for group in sizes_in_file(bench, "columns")]
    assert groups == [["sum1"], ["y"], ["sum1", "y"]]  # 2 is the root of 4


def test_the_file_with_each_cases_own_size_is_right_on_all_of_them(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, Mean(), divided(4))
    (constants,) = sizes_in_file(bench, "columns")
    counterfactual = with_own_sizes(bench, constants)
    assert not counterfactual.in_reference
    for inputs in (SHORT, LONG, LONGER):
        error = counterfactual.error(answered(bench, inputs))
        assert error is not None
        assert error < 1e-6
    assert bench.model == onnx.load(bench.scene.path)


def test_a_formula_of_the_size_follows_each_case(tmp_path: Path) -> None:
    class RootMean(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.sum(1, keepdim=True) / int(x.shape[1]) ** 0.5

    bench = bench_of(tmp_path, RootMean(), divided(2))
    errors = []
    for constants in sizes_in_file(bench, "columns"):
        counterfactual = with_own_sizes(bench, constants)
        errors.append([counterfactual.error(answered(bench, x)) for x in (LONG, LONGER)])
    assert any(max(group) < 1e-6 for group in errors)
