"""Which inputs hide what they mask is tried on the reference: a name, a dtype or an example of zeros is not enough."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from onnxproof.inputs.roles import Hides, confirm_roles, hidden_places, how_it_hides, with_hidden
from onnxproof.inputs.space import Array, Role, Slot, Space
from onnxproof.results import InputInfo, Signature

RNG = np.random.default_rng(4)
Inputs = Mapping[str, Array]


def slot(name: str, example: Array, role: Role, **other: Any) -> Slot:
    info = InputInfo(
        name=name, dtype=str(example.dtype), shape=example.shape, dims=example.shape, onnx_name=name
    )
    return Slot(info=info, role=role, example=example, **other)


def space_of(*slots: Slot) -> Space:
    return Space(signature=Signature(inputs=tuple(s.info for s in slots), outputs=()), slots=slots)


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def attention(x: Array, hidden: Array, *, fill: float = -np.inf, causal: bool = False) -> Array:
    """Softmax over the places that are not hidden; a row that sees nothing gives zeros."""
    scores = np.einsum("bqd,bkd->bqk", x, x).astype(np.float64)
    covered = np.broadcast_to(hidden[:, None], scores.shape).copy()
    if causal:
        covered |= ~np.tri(x.shape[1], dtype=bool)
    scores = np.where(covered, fill, scores)
    top = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isfinite(top), top, 0.0))
    total = weights.sum(-1, keepdims=True)
    return np.einsum("bqk,bkd->bqd", weights / np.where(total > 0, total, 1.0), x).astype(
        np.float32
    )


X = slot("x", normal(2, 7, 5), Role.FLOAT)
ONES = np.ones((2, 7), np.int64)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("example", "hides", "wanted"),
    [
        (ONES, lambda mask: mask == 0, Hides.ZERO),
        (ONES.astype(bool), lambda mask: ~mask, Hides.ZERO),
        (~ONES.astype(bool), lambda mask: mask, Hides.ONE),
        (ONES, lambda mask: mask != 0, Hides.ONE),
    ],
)
def test_the_value_that_hides_is_found_out(
    example: Array, hides: Callable[[Array], Array], wanted: Hides, causal: bool
) -> None:
    mask = slot("m", example, Role.MASK)
    assert (
        how_it_hides(
            space_of(X, mask), mask, lambda i: [attention(i["x"], hides(i["m"]), causal=causal)]
        )
        is wanted
    )


def test_an_additive_mask_is_believed_whatever_it_is_called() -> None:
    bias = slot("b", np.zeros((2, 7), np.float32), Role.FLOAT, additive=True)
    space = space_of(X, bias)
    assert confirm_roles(space, lambda i: [attention(i["x"], i["b"] < -1e3)]) == space


def test_a_mask_over_a_cache_and_what_follows_it_is_tried_on_either() -> None:
    past, new, mask = (
        slot("past", normal(2, 5, 4), Role.FLOAT),
        slot("new", normal(2, 2, 4), Role.FLOAT),
        slot("m", ONES, Role.MASK),
    )

    def run(i: Inputs) -> list[Array]:
        return [attention(np.concatenate([i["past"], i["new"]], 1), i["m"] == 0)[:, 5:]]

    assert how_it_hides(space_of(past, new, mask), mask, run) is Hides.ZERO


def cell(i: Inputs) -> list[Array]:
    """A recurrent cell: minus infinity in its state leaves its answer finite, and hides nothing."""
    with np.errstate(all="ignore"):
        gate = 1 / (1 + np.exp(-(i["x"] + i["h"] @ WEIGHT)))
    state = gate * i["c"] + (1 - gate) * np.tanh(i["x"])
    return [(gate * np.tanh(state)).astype(np.float32), state.astype(np.float32)]


WEIGHT = normal(6, 6)


@pytest.mark.parametrize("name", ["c", "h", "attention_mask"])
def test_a_recurrent_state_of_zeros_is_no_mask_even_if_it_is_called_one(name: str) -> None:
    zeros = np.zeros((3, 6), np.float32)
    slots = [
        slot("x", normal(3, 6), Role.FLOAT),
        *(slot(n, zeros, Role.FLOAT, additive=True) for n in ("h", "c")),
    ]

    def run(i: Inputs) -> list[Array]:
        return cell(
            {"x": i["x"], "h": i.get("h", i.get(name, zeros)), "c": i.get("c", i.get(name, zeros))}
        )

    if name == "attention_mask":
        slots[2] = slot(name, zeros, Role.FLOAT, additive=True)
    assert [s.additive for s in confirm_roles(space_of(*slots), run).slots] == [False, False, False]


def test_a_float_that_spoils_the_reference_is_no_mask() -> None:
    x, weights = slot("x", np.zeros((2, 7), np.float32), Role.FLOAT, additive=True), normal(7, 3)
    with np.errstate(all="ignore"):
        assert not confirm_roles(space_of(x), lambda i: [i["x"] @ weights]).slots[0].additive


def test_an_input_that_is_ignored_or_weighs_softly_hides_nothing() -> None:
    mask = slot("m", ONES, Role.MASK)
    space = space_of(X, mask)
    nothing = np.zeros((2, 7), bool)
    assert how_it_hides(space, mask, lambda i: [attention(i["x"], nothing)]) is None
    assert how_it_hides(space, mask, lambda i: [attention(i["x"], i["m"] == 0, fill=-3.0)]) is None


def test_a_reference_that_refuses_a_mask_is_not_asked_further() -> None:
    def run(i: Inputs) -> list[Array]:
        raise ValueError("no")

    mask = slot("m", ONES, Role.MASK)
    assert how_it_hides(space_of(X, mask), mask, run) is None


@pytest.mark.parametrize("how", list(Hides))
def test_hidden_places_are_written_and_read_back(how: Hides) -> None:
    hidden = RNG.random((4, 6)) < 0.5
    array = np.zeros((4, 6), np.float32 if how is Hides.LOW else np.int64)
    written = with_hidden(array, how, hidden)
    assert (hidden_places(written, how) == hidden).all() and written.dtype == array.dtype
    if how is Hides.LOW:
        low = np.where(hidden, np.float32(-1e9), np.float32(0))
        assert (with_hidden(low, how, hidden) == low).all(), (
            "a place that was hidden keeps its value"
        )
