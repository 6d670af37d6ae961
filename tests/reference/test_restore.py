"""A pass leaves no trace in a module: whatever it writes is put back, and named."""

from typing import Any

import pytest
import torch
from torch import nn

from onnxproof.reference.restore import RestoreModule


class Writes(nn.Module):
    """Does to itself what `action` does."""

    def __init__(self, action: Any) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(2))
        self.weight = nn.Parameter(torch.ones(2))
        self.cache = [1, {"k": 2}]
        self.action = action


@pytest.mark.parametrize(
    ("action", "named"),
    [
        (lambda m: m.count.add_(1), "a buffer written in place"),
        (lambda m: m.weight.data.add_(1), "the parameter `weight`"),
        (lambda m: m.cache.append(3), "`cache`"),
        (lambda m: m.cache[1].update(k=5), "`cache`"),
        (lambda m: setattr(m, "seen", True), "`seen`"),
    ],
)
def test_what_a_pass_writes_is_put_back_and_named(action: Any, named: str) -> None:
    module = Writes(action).train()
    restore = RestoreModule(module)
    with restore, torch.no_grad():
        assert not module.training
        module.action(module)
    assert restore.changed == {named}
    assert module.training and module.count.tolist() == [0, 0] and module.weight.tolist() == [1, 1]  # type: ignore[operator]
    assert module.cache == [1, {"k": 2}] and not hasattr(module, "seen")


@pytest.mark.parametrize(
    "action",
    [
        lambda m: m.weight.data.add_(1),
        lambda m: m.weight.data[:1].copy_(torch.zeros(1)),
        lambda m: torch.add(m.weight, 1, out=m.weight.data),
    ],
)
def test_a_parameter_of_a_large_model_is_copied_when_it_is_written(
    action: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onnxproof.reference.restore.LARGE", 0)
    module = Writes(action)
    restore = RestoreModule(module)
    for _ in range(2):
        with restore, torch.no_grad():
            module.action(module)
        assert module.weight.tolist() == [1, 1]
    assert restore.changed == {"the parameter `weight`"}
    assert restore.written == {"weight"}


def test_random_numbers_are_the_same_in_each_pass_and_the_state_is_put_back() -> None:
    restore = RestoreModule(nn.Identity())
    before = torch.random.get_rng_state()
    with restore:
        first = torch.rand(3)
    with restore:
        second = torch.rand(3)
    assert torch.equal(first, second) and restore.drew
    assert torch.equal(torch.random.get_rng_state(), before)
