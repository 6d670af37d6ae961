"""The cause `rounding`: another rule by which fractions become whole."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import TensorProto
from support.module_workbenches import file_of, module_workbench, node, without_line

from onnxproof.diagnosis.causes import rounding
from onnxproof.diagnosis.counterfactuals.workbench import Tried

X = {"x": np.array([[-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.3, -3.7]], np.float32)}
HALF = {"half": np.array(0.5, np.float32), "three": np.array(3, np.float32)}


class Round(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.round(x)


class Divide(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.div(x, 3, rounding_mode="floor")


class Remainder(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.remainder(x, 3)


def tried_on(folder: Path, module: torch.nn.Module, nodes: list[Any], call: str) -> Tried | str:
    file = file_of(nodes, X, HALF)
    return rounding.test(module_workbench(folder, module, file, X, located={"y": call}))


HALF_UP = [node("Add", "x", "half", output="moved"), node("Floor", "moved")]
HALF_AWAY = [
    node("Abs", "x", output="size"),
    node("Add", "size", "half", output="moved"),
    node("Floor", "moved", output="whole"),
    node("Sign", "x", output="sign"),
    node("Mul", "whole", "sign"),
]


@pytest.mark.parametrize(
    ("nodes", "rule"), [(HALF_UP, "half up"), (HALF_AWAY, "half away from zero")]
)
def test_the_rule_for_halves_is_named(nodes: list[Any], rule: str, tmp_path: Path) -> None:
    tried = tried_on(tmp_path, Round(), nodes, "round")
    assert isinstance(tried, Tried)
    assert (tried.proven, tried.in_reference) == (True, True)
    assert without_line(tried.evidence) == (
        f"the module with `round` by the rule `{rule}` gives what the candidate gives"
    )


def test_another_rounding_operator_is_put_right(tmp_path: Path) -> None:
    tried = tried_on(tmp_path, Round(), [node("Ceil", "x")], "round")
    assert isinstance(tried, Tried)
    assert without_line(tried.evidence) == ("y is Ceil; with Round the answers are right")
    assert tried.fix is not None
    assert tried.fix.what == "make y a Round"


def test_a_division_that_is_cut_for_one_that_is_floored_is_named(tmp_path: Path) -> None:
    nodes = [
        node("Div", "x", "three", output="quotient"),
        node("Cast", "quotient", output="whole", to=TensorProto.INT64),
        node("Cast", "whole", to=TensorProto.FLOAT),
    ]
    tried = tried_on(tmp_path, Divide(), nodes, "div")
    assert isinstance(tried, Tried)
    assert without_line(tried.evidence) == (
        "the module with `div` rounded by `trunc` instead of `floor` gives what the candidate gives"
    )


def test_a_remainder_with_the_sign_of_the_other_operand_is_an_attribute(tmp_path: Path) -> None:
    tried = tried_on(tmp_path, Remainder(), [node("Mod", "x", "three", fmod=1)], "remainder")
    assert isinstance(tried, Tried)
    assert tried.code == "attribute"
    assert tried.proven
    assert without_line(tried.evidence).endswith(
        "with the sign of the other operand gives what the candidate gives"
    )


def test_values_that_are_rounded_to_a_coarser_grid_have_no_other_rule(tmp_path: Path) -> None:
    nodes = [
        node("Div", "x", "three", output="quotient"),
        node("Round", "quotient", output="whole"),
        node("Mul", "whole", "three"),
    ]
    tried = tried_on(tmp_path, Round(), nodes, "round")
    assert tried == "no other operator of the family mends a named node"
