"""What is wrong with a weight of a few bits is said in words, and put right."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from support.block_files import block_model

from onnxproof.quantization import block_parameters
from onnxproof.verification import block_reading
from onnxproof.verification.block_weights import BlockWeight

Damage = Callable[[BlockWeight], BlockWeight]


def _row_times_three(weight: BlockWeight) -> BlockWeight:
    scales = weight.scales.copy()
    scales[5] *= 3
    return replace(weight, scales=scales)


def _nibbles(weight: BlockWeight) -> BlockWeight:
    return replace(weight, packed=(weight.packed >> 4 | weight.packed << 4).astype(np.uint8))


DAMAGES: dict[str, tuple[bool, Damage, str]] = {
    "rolled blocks": (
        False,
        lambda w: replace(w, scales=np.roll(w.scales, 1, axis=1)),
        "the scales of its blocks are in another order",
    ),
    "row": (False, _row_times_three, "row 5 is 3 times what it should be"),
    "nibbles": (False, _nibbles, "the two numbers of each byte are exchanged"),
    "zero points": (
        True,
        lambda w: replace(w, zeros=np.clip(w.zeros + 2, 0, 15)),  # type: ignore[operator]
        "zero points are off by +2",
    ),
    "no zero points": (True, lambda w: replace(w, zeros=None), "it has no zero points"),
    "rows": (
        False,
        lambda w: replace(w, packed=np.roll(w.packed, 1, axis=0)),
        "its rows are in another order",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_told_and_put_right(name: str) -> None:
    zeros, damage, words = DAMAGES[name]
    model, plain = block_model(24, 96, block=16, zeros=zeros, seed=7)
    (weight,) = block_reading.find(model)
    assert block_parameters.find_repairs([weight], {"w": plain}) == []
    (repair,) = block_parameters.find_repairs([damage(weight)], {"w": plain})
    assert words in repair.what
    assert block_parameters.misfit(repair.weight, plain) < 1.0
    (again,) = block_reading.find(block_parameters.apply_repairs(model, [repair]))
    np.testing.assert_allclose(again.floats, repair.weight.floats, atol=1e-6)


def test_a_dropped_group_index_is_found_again() -> None:
    groups = np.random.default_rng(5).permutation(np.arange(96) // 16)
    model, plain = block_model(24, 96, block=16, seed=7, groups=groups)
    (weight,) = block_reading.find(model)
    assert block_parameters.find_repairs([weight], {"w": plain}) == []
    (repair,) = block_parameters.find_repairs([replace(weight, groups=None)], {"w": plain})
    assert repair.what == "its `g_idx` is missing"
    assert (repair.weight.groups == groups).mean() > 0.95


def test_other_numbers_are_rounded_anew() -> None:
    model, plain = block_model(24, 96, block=16, seed=7)
    (weight,) = block_reading.find(model)
    packed = np.random.default_rng(0).integers(0, 256, weight.packed.shape).astype(np.uint8)
    (repair,) = block_parameters.find_repairs([replace(weight, packed=packed)], {"w": plain})
    assert repair.what == "its numbers are not those of `w`"
    assert block_parameters.misfit(repair.weight, plain) < 1.0
