"""Layers that differ in training, and state between calls: on modules of a few lines."""

from typing import Any

import torch
from torch import Tensor, nn

from onnxproof.exporter.example import Example, enlarge_ones
from onnxproof.exporter.modes import find_state, find_training_layers
from onnxproof.exporter.naming import DimNames
from onnxproof.reference import subject


def example_of(module: nn.Module, *inputs: Tensor) -> Example:
    return Example(subject.load(module, inputs))


class Pairs(nn.Module):
    """Reads its flag, and returns a list of tuples whatever it is."""

    def forward(self, x: Tensor) -> list[tuple[Tensor, Tensor]]:
        if self.training:
            return [(x, x + 1)]
        return [(x, 1 + x)]


class Outer(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Any:
        output = self.inner(x)
        return output[0][0] if isinstance(output, list) else output


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * self.calls


def test_a_dropout_differs_and_is_named() -> None:
    layers = find_training_layers(example_of(Outer(nn.Dropout(0.5)).eval(), torch.ones(4, 8)))
    assert layers.layers == ("inner (Dropout)",)
    assert layers.warnings == []  # the module came in eval mode, and that is what is exported


def test_a_dropout_of_a_module_in_training_is_a_warning() -> None:
    example = example_of(Outer(nn.Dropout(0.5)).train(), torch.ones(4, 8))
    assert "inner (Dropout)" in find_training_layers(example).warnings[0]


def test_a_list_of_tuples_that_stays_the_same_is_no_difference() -> None:
    layers = find_training_layers(example_of(Outer(Pairs()), torch.ones(4, 8)))
    assert layers.layers == ()
    assert layers.warnings == []


def test_a_buffer_that_counts_is_state() -> None:
    findings = find_state(example_of(Counter(), torch.ones(2)))
    assert "the buffer `calls`" in findings[0].what
    assert "answers differently" in findings[0].what
    assert find_state(example_of(nn.Linear(2, 2), torch.ones(3, 2))) == []


def test_dims_of_size_one_are_enlarged_where_the_module_accepts_it() -> None:
    example = example_of(nn.Linear(1, 2), torch.ones(1, 1))
    assert enlarge_ones(example, []) == {("input", 0): 3}
    assert enlarge_ones(example, [("input", 0)]) == {}


def test_dims_are_named_by_their_position_and_the_users_names_win() -> None:
    example = example_of(nn.Conv2d(3, 2, 3), torch.ones(2, 3, 8, 8))
    places = {axis: [("input", axis)] for axis in (0, 2, 3)}
    assert list(DimNames(example, {}).assign(places).values()) == ["batch", "height", "width"]
    names = DimNames(example, {("input", 2): "rows"}).assign(places)
    assert list(names.values()) == ["batch", "rows", "width"]
