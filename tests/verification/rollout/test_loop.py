"""Which output is which input's next value."""

import pytest

from onnxproof.verification.rollout.loop import find_loops
from onnxproof.verification.rollout.state_names import Tensor


def tensor(name: str, *shape: int, dtype: str = "float32") -> Tensor:
    return Tensor(name=name, aliases=(name,), dtype=dtype, shape=shape)


IDS = tensor("input_ids", 2, 3, dtype="int64")
LOGITS = tensor("logits", 2, 3, 64)


@pytest.mark.parametrize(
    ("input", "output"),
    [
        ("past_key_values.0.key", "present.0.key"),
        ("past_k0", "present_k0"),
        ("past_key_values.1.value", "present_key_values.1.value"),
        ("h_in", "h_out"),
        ("old_state", "new_state"),
        ("state", "state_out"),
        ("cache", "new_cache"),
        ("past_key_values.0.0", "past_key_values.0.0"),
        ("mems.0", "new_mems.0"),
    ],
)
def test_names_of_caches_and_states_are_paired(input: str, output: str):
    loops = find_loops([IDS, tensor(input, 2, 2, 4, 8)], [LOGITS, tensor(output, 2, 2, 7, 8)])
    (pair,) = loops[0].states
    assert (pair.input, pair.output, pair.grows, pair.by) == (input, output, 2, "name")


def test_layers_are_not_exchanged():
    inputs = [IDS, *[tensor(f"past.{k}.{w}", 2, 2, 4, 8) for k in (0, 1) for w in ("key", "value")]]
    outputs = [*[tensor(f"present.{k}.{w}", 2, 2, 7, 8) for w in ("value", "key") for k in (1, 0)]]
    (loop,) = find_loops(inputs, [LOGITS, *outputs])
    assert {pair.input.replace("past", "present") == pair.output for pair in loop.states} == {True}


def test_shapes_alone_are_a_guess():
    loops = find_loops([IDS, tensor("a", 2, 2, 4, 8)], [LOGITS, tensor("b", 2, 2, 7, 8)])
    assert loops[0].is_guessed


def test_states_that_only_the_inputs_name_are_paired_by_shape_in_order():
    inputs = [tensor("x", 2, 3, 6), tensor("h_in", 1, 2, 8), tensor("seen_in", 1, dtype="int64")]
    outputs = [tensor("0", 2, 3, 6), tensor("1", 1, 2, 8), tensor("2", 1, dtype="int64")]
    loop = find_loops(inputs, outputs)[0]
    assert loop.is_half_named
    assert not loop.is_guessed
    assert [(pair.input, pair.output) for pair in loop.states] == [("h_in", "1"), ("seen_in", "2")]


def test_keys_and_values_of_a_plain_attention_are_no_states():
    inputs = [tensor(name, 2, 3, 8) for name in ("query", "key", "value")]
    loops = find_loops(inputs, [tensor("0", 2, 3, 8), tensor("1", 2, 3, 3)])
    assert not any(loop.is_half_named for loop in loops)


def test_an_image_that_comes_out_as_it_went_in_is_no_loop():
    assert find_loops([tensor("x", 1, 3, 8, 8)], [tensor("y", 1, 3, 8, 8)]) == []


def test_a_loop_needs_an_answer_beside_its_states():
    inputs = [tensor("x", 2, 4), tensor("h_in", 2, 8)]
    assert find_loops(inputs, [tensor("h_out", 2, 8)]) == []
