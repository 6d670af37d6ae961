"""Integer constants are matched with the float arrays they come from."""

import numpy as np
from support.tiny_qdq import make_model

from onnxproof.quantization.qdq import Weight, find_biases
from onnxproof.quantization.weight_matching import find_original, is_saturated


def weight(integers: list[list[int]]) -> Weight:
    return Weight(
        name="w_quantized",
        result="w_dequantized",
        integers=np.asarray(integers, np.int8),
        scale=np.asarray(0.1),
        zero=np.asarray(0),
        axis=0,
    )


FLOATS = np.asarray([[1.01, -0.52], [0.33, 0.78]], np.float32)


def test_the_nearest_array_is_found_as_it_lies_or_transposed() -> None:
    here = find_original(weight([[10, -5], [3, 8]]), {"other": FLOATS * 9, "w": FLOATS})
    there = find_original(weight([[10, 3], [-5, 8]]), {"w": FLOATS})
    assert here is not None and np.allclose(here, FLOATS)
    assert there is not None and np.allclose(there, FLOATS.T)


def test_an_array_that_is_too_different_is_found_by_its_name_alone() -> None:
    candidates = {"w": -FLOATS}
    assert find_original(weight([[10, -5], [3, 8]]), candidates) is None
    assert find_original(weight([[10, -5], [3, 8]]), candidates, by_name=True) is not None


def test_saturated_values_are_not_compared() -> None:
    bias = find_biases(make_model())[0]
    assert is_saturated(bias.integers).tolist() == [False, True]
    original = find_original(bias, {"b": np.asarray([2.5, 1e12])})
    assert original is not None and original.tolist() == [2.5, 1e12]
