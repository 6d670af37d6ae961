"""Weights in blocks: what is packed is what runtimes read, what is rounded costs least, and bits go where they count."""

import itertools

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.language_model import language_model, token_ids

from onnxproof.quantization.blockwise.allocation import (
    Allocation,
    Choice,
    efficient,
    path,
    spend,
    worth,
)
from onnxproof.quantization.blockwise.assemble import assemble
from onnxproof.quantization.blockwise.form import Form
from onnxproof.quantization.blockwise.in_order import _corrected, round_in_order
from onnxproof.quantization.blockwise.matrices import find_matrices, split_gemms
from onnxproof.quantization.blockwise.rounding import (
    damp,
    nearest_blocks,
    product_error,
    round_matrix,
)
from onnxproof.quantization.blockwise.text_losses import TextJudge, language_shape
from onnxproof.quantization.float_graph import Index
from onnxproof.runtimes import ort
from onnxproof.runtimes.evaluator.contrib.blocks import dequantize_rows

FORMS = st.builds(
    Form,
    bits=st.sampled_from((2, 4, 8)),
    block=st.sampled_from((16, 32, 64)),
    zero_points=st.booleans(),
)
SAMPLES = [("texts", {"input_ids": token_ids()})]


def _weights(seed: int, rows: int, columns: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_t(4, (rows, columns)).astype(np.float32)


def _moments(seed: int, columns: int) -> np.ndarray:
    inputs = np.random.default_rng(seed).standard_normal((400, columns // 2))
    mixed = inputs @ np.random.default_rng(seed + 1).standard_normal((columns // 2, columns))
    return mixed.T @ mixed / len(mixed)


@given(form=FORMS, columns=st.integers(16, 100), seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_what_is_packed_is_what_the_evaluator_reads(form: Form, columns: int, seed: int) -> None:
    blocks = nearest_blocks(_weights(seed, 5, columns), form, np.ones(columns, np.float32))
    zeros = blocks.packed_zeros() if form.zero_points else None
    read = dequantize_rows(
        blocks.packed().reshape(5, -1),
        blocks.scales,
        zeros,
        columns=columns,
        bits=form.bits,
        block=form.block,
    )
    np.testing.assert_allclose(read, blocks.values(), rtol=1e-6)
    stored = [blocks.packed(), blocks.scales]
    if zeros is not None:
        stored.append(zeros)
    assert sum(array.nbytes for array in stored) == form.size(5, columns)


@given(form=FORMS, seed=st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_products_change_less_than_by_rounding_to_the_nearest(form: Form, seed: int) -> None:
    weights, moments = _weights(seed, 6, 64), _moments(seed, 64)
    weighing = damp(moments)
    nearest = nearest_blocks(weights, form, np.diagonal(weighing))
    rounded = round_matrix(weights, form, moments)
    assert product_error(weights, rounded, weighing) < product_error(weights, nearest, weighing)


def test_a_clipped_outlier_does_not_coarsen_its_block() -> None:
    weights = np.full((1, 32), 0.1, np.float32) * np.linspace(-1, 1, 32, dtype=np.float32)
    form = Form(bits=4, block=32, zero_points=True)
    importance = np.ones(32, np.float32)
    importance[0] = 1e-6
    weights[0, 0] = 1.0
    rounded = nearest_blocks(weights, form, importance).values()
    assert np.abs(rounded - weights)[0, 1:].max() < 0.04  # a range up to 1 has steps of 0.07
    assert abs(rounded[0, 0] - 1.0) > 0.2


def test_inputs_twice_as_large_halve_the_weights() -> None:
    weights, moments = _weights(0, 4, 32), np.eye(32)
    corrected = _corrected(weights, 4 * moments, 2 * moments)  # x' = 2 x
    np.testing.assert_allclose(corrected, weights / 2, rtol=0.02)


@pytest.mark.parametrize("tied", [False, True])
def test_the_runtime_computes_with_the_stored_weights(tied: bool) -> None:
    model = language_model(tied=tied)
    matrices = find_matrices(model)
    names = {matrix.name for matrix in matrices}
    assert names == ({"table", "first", "second"} if tied else {"table", "first", "second", "head"})
    forms = {name: Form(bits=4, block=16, zero_points=name == "first") for name in names}
    rounded = round_in_order(model, matrices, forms, SAMPLES, lambda what: None)
    changed = assemble(model, matrices, rounded)
    onnx.checker.check_model(changed)
    expected = onnx.ModelProto()
    expected.CopyFrom(model)
    index = Index(expected)
    for matrix in matrices:
        if matrix.table:
            index.store(matrix.table, rounded[matrix.name].values())
        if matrix.factor:
            index.store(matrix.factor, rounded[matrix.name].values().T)
    ids = {"input_ids": token_ids(3)}
    (found,) = ort.open(changed.SerializeToString()).run(ids)
    (wanted,) = ort.open(expected.SerializeToString()).run(ids)
    np.testing.assert_allclose(found, wanted, atol=1e-3)
    stored = [tensor.name for tensor in changed.graph.initializer]
    assert stored.count("table_blocks") == 1 and "head" not in stored


def test_a_gemm_is_not_passed_over() -> None:
    model = language_model(gemm=True)
    assert "first" not in {matrix.name for matrix in find_matrices(model)}
    split = split_gemms(model)
    assert {matrix.name for matrix in find_matrices(split)} == {"table", "first", "second", "head"}
    ids = {"input_ids": token_ids(3)}
    (found,) = ort.open(split.SerializeToString()).run(ids)
    (wanted,) = ort.open(model.SerializeToString()).run(ids)
    np.testing.assert_allclose(found, wanted, atol=1e-4)


def test_a_matrix_that_a_branch_reads_as_well_stays_float() -> None:
    model = language_model()
    double = onnx.helper.make_node("Add", ["head", "head"], ["doubled"])
    alone = onnx.helper.make_node("Identity", ["head"], ["alone"])
    kind = onnx.helper.make_tensor_value_info("doubled", onnx.TensorProto.FLOAT, [32, 64])
    other = onnx.helper.make_tensor_value_info("alone", onnx.TensorProto.FLOAT, [32, 64])
    branch = onnx.helper.make_node(
        "If",
        ["always"],
        ["chosen"],
        then_branch=onnx.helper.make_graph([double], "then", [], [kind]),
        else_branch=onnx.helper.make_graph([alone], "else", [], [other]),
    )
    model.graph.node.append(branch)
    assert {matrix.name for matrix in find_matrices(model)} == {"table", "first", "second"}


def test_making_up_for_earlier_matrices_keeps_more_of_the_text() -> None:
    model = language_model()
    matrices = find_matrices(model)
    forms = {matrix.name: Form(bits=4, block=32) for matrix in matrices}
    shape = language_shape(model, SAMPLES)
    assert shape is not None and (shape.logits, shape.tokens) == ("logits", "input_ids")
    judge = TextJudge(model, shape, [("held", {"input_ids": token_ids(40, seed=1)})])
    in_order = round_in_order(model, matrices, forms, SAMPLES, lambda what: None)
    alone = round_in_order(model, matrices, forms, [], lambda what: None)
    kl = [judge.losses(assemble(model, matrices, each)).mean_kl for each in (in_order, alone)]
    assert 0 < kl[0] < 0.7 * kl[1]


choice_lists = st.lists(
    st.builds(
        lambda bits, size, cost: Choice(form=Form(bits=bits, block=32), size=size, cost=cost),
        st.sampled_from((2, 4, 8)),
        st.integers(1, 1000),
        st.floats(0, 10),
    ),
    min_size=1,
    max_size=8,
)
shares = st.floats(0, 1)


@given(choices=choice_lists)
def test_every_step_of_a_matrix_buys_less_for_a_byte(choices: list[Choice]) -> None:
    hull = efficient(choices)
    assert hull[0].size == min(choice.size for choice in choices)
    assert min(choice.cost for choice in choices) == hull[-1].cost
    rates = [worth(one, other) for one, other in itertools.pairwise(hull)]
    assert rates == sorted(rates, reverse=True)


@given(choices=st.dictionaries(st.sampled_from("abcd"), choice_lists, min_size=1))
def test_a_path_spends_bytes_to_save_cost(choices: dict[str, list[Choice]]) -> None:
    steps = path(choices)
    for before, after in itertools.pairwise(steps):
        changed = [name for name in choices if before.choices[name] != after.choices[name]]
        assert len(changed) == 1
        assert after.size > before.size and after.cost < before.cost + 1e-9


def _problem(**matrices: list[tuple[int, float]]) -> dict[str, list[Choice]]:
    form = Form(bits=4, block=32)
    return {
        name: [Choice(form=form, size=size, cost=cost) for size, cost in pairs]
        for name, pairs in matrices.items()
    }


def _last_within(choices: dict[str, list[Choice]], most: int) -> Allocation:
    return [each for each in path(choices) if each.size <= most][-1]


def _sizes(allocation: Allocation) -> dict[str, int]:
    return {name: choice.size for name, choice in allocation.choices.items()}


def test_smaller_steps_behind_one_that_does_not_fit_are_taken() -> None:
    choices = _problem(
        table=[(1000, 100.0), (2000, 10.0)], first=[(100, 5.0), (200, 2.0)], second=[(100, 4.0)]
    )
    last = _last_within(choices, 1900)
    assert _sizes(last) == {"table": 1000, "first": 100, "second": 100}  # the table comes first
    assert _sizes(spend(choices, last, 1900)) == {"table": 1000, "first": 200, "second": 100}


def test_steps_that_were_taken_make_way_for_a_larger_one_that_saves_more() -> None:
    choices = _problem(
        table=[(1000, 100.0), (2000, 10.0)], small=[(100, 50.0), (300, 5.0)], rest=[(100, 1.0)]
    )
    last = _last_within(choices, 2200)
    assert _sizes(last) == {"table": 1000, "small": 300, "rest": 100}  # more for a byte
    assert _sizes(spend(choices, last, 2200)) == {"table": 2000, "small": 100, "rest": 100}


@given(choices=st.dictionaries(st.sampled_from("abc"), choice_lists, min_size=1), share=shares)
def test_what_is_left_is_spent_as_trying_everything_would(
    choices: dict[str, list[Choice]], share: float
) -> None:
    least, full = path(choices)[0].size, sum(max(c.size for c in each) for each in choices.values())
    most = round(least + share * (full - least))
    last = _last_within(choices, most)
    found = spend(choices, last, most)
    assert found.size <= most
    everything = [
        Allocation(choices=dict(zip(choices, each, strict=True)))
        for each in itertools.product(*choices.values())
    ]
    best = min(each.cost for each in everything if each.size <= most)
    assert found.cost == pytest.approx(best, rel=1e-9, abs=1e-9)
    assert found == spend(choices, last, most)


def test_sizes_that_are_too_fine_to_count_never_exceed_the_budget() -> None:
    choices = _problem(
        table=[(1_000_003, 100.0), (2_000_003, 10.0)],
        small=[(100_003, 50.0), (300_007, 5.0)],
        rest=[(100_019, 1.0), (100_151, 0.5)],
    )
    last = _last_within(choices, 2_201_000)
    found = _sizes(spend(choices, last, 2_201_000))
    assert found == {"table": 2_000_003, "small": 100_003, "rest": 100_151}
    assert _sizes(spend(choices, last, 2_200_000))["table"] == 1_000_003  # 25 bytes too few


def test_a_loss_is_that_of_the_planted_change() -> None:
    model = language_model()
    index = Index(model)
    shape = language_shape(model, SAMPLES)
    assert shape is not None
    judge = TextJudge(model, shape, SAMPLES)
    assert judge.losses(model).mean_kl == 0
    index.store("head", index.array("head") * 0)  # every token is as likely as any other
    losses = judge.losses(model)
    assert losses.perplexity == pytest.approx(64)
    metric = losses.kl_metric()
    assert metric.low <= losses.mean_kl <= metric.high and metric.samples == 40
