"""What a mask hides is a note where opening the mask makes the two agree; a mask that the file reads wrongly is a fault on every case."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

import onnxproof
from bench.attention import MODELS, export
from onnxproof.inputs.roles import Hides
from onnxproof.inputs.space import Role, Slot, Space
from onnxproof.options import Policy
from onnxproof.results import Domain, Gap, InputInfo, Signature, Status, Verdict
from onnxproof.results.judging import judge_gap
from onnxproof.verification.masked import Masks, agree_with_wider_masks, finding

Array = np.ndarray[Any, Any]
HIDDEN = ("mask-attention_mask-all false", "mask-attention_mask-one row false")
LEFT = ("mask-attention_mask-left-padded",)

# --- real models -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["bert", "gpt2"])
def exported(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Any, Path, Any, Any]]:
    torch.set_num_threads(1)
    name = request.param
    module, inputs, dims = MODELS[name].build("sdpa")
    path = tmp_path_factory.mktemp("masked") / f"{name}.onnx"
    export(module, inputs, dims, path)
    yield name, module, path, inputs, dims


def verify(
    exported: tuple[str, Any, Path, Any, Any], path: Path | None = None, **other: Any
) -> onnxproof.Proof:
    _, module, healthy, inputs, dims = exported
    return onnxproof.verify(
        module, path or healthy, inputs, dynamic_shapes=dims, explain=False, budget_s=60, **other
    )


def test_a_healthy_file_is_faithful_with_a_note_and_the_figure_of_the_rest(
    exported: tuple[str, Any, Path, Any, Any],
) -> None:
    proof = verify(exported, only=("example", *HIDDEN, *LEFT))
    assert proof.verdict is Verdict.FAITHFUL, proof.sentence()
    noted = {note.case for note in proof.notes}
    assert {note.domain for note in proof.notes} == {Domain.MASKED} and set(HIDDEN) <= noted
    assert (LEFT[0] in noted) == (exported[0] == "gpt2"), (
        "only under a causal mask do the first places of a left-padded row see nothing"
    )
    row = next(gap for gap in proof.gaps if gap.case == HIDDEN[1])
    whole = next(gap for gap in proof.gaps if gap.case == "example")
    assert (
        row.domain is Domain.MASKED
        and row.compared > 0
        and row.noise_ratio < proof.policy.noise_limit
        and whole.domain is None
    )
    assert all(gap.compared == 0 for gap in proof.gaps if gap.case == HIDDEN[0]), (
        "nothing is left to compare"
    )
    assert any(
        found.code == "masked" and "times the noise there" in found.what for found in proof.findings
    )
    assert proof.judged(replace(proof.policy, strict_domains=True)).verdict is Verdict.DIVERGED


def test_where_everything_is_hidden_nothing_is_proven(
    exported: tuple[str, Any, Path, Any, Any],
) -> None:
    assert verify(exported, only=HIDDEN[:1]).verdict is Verdict.VACUOUS


def test_strict_domains_count_it(exported: tuple[str, Any, Path, Any, Any]) -> None:
    assert (
        verify(exported, only=HIDDEN, policy=Policy(strict_domains=True)).verdict
        is Verdict.DIVERGED
    )


# --- planted faults --------------------------------------------------------------------------------------------------

ONE = helper.make_node(
    "Constant", [], ["one_"], value=numpy_helper.from_array(np.array([[1]], np.int64))
)


def _node(op: str, inputs: list[str], output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs, [output], name=f"planted_{output}", **attributes)


def _numbers(name: str, *values: int) -> onnx.NodeProto:
    return helper.make_node(
        "Constant", [], [name], value=numpy_helper.from_array(np.array(values, np.int64))
    )


def _ignored(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    return [_node("Max", ["attention_mask", "one_"], "mask_")]


def _inverted(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    return [_node("Sub", ["one_", "attention_mask"], "mask_")]


def _off_by_one(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    ends = [
        _numbers("zero_", 0),
        _numbers("last_", -1),
        _numbers("first_", 1),
        _numbers("axis_", 1),
    ]
    return [
        *ends,
        _node("Slice", ["attention_mask", "zero_", "first_", "axis_"], "edge_"),
        _node("Max", ["edge_", "one_"], "ones_"),
        _node("Slice", ["attention_mask", "zero_", "last_", "axis_"], "others_"),
        _node("Concat", ["ones_", "others_"], "mask_", axis=1),
    ]


def planted(
    source: Path, target: Path, nodes: Callable[[onnx.GraphProto], list[onnx.NodeProto]]
) -> Path:
    """The file with its mask changed on the way in: every consumer of `attention_mask` takes `mask_`."""
    model = onnx.load(source)
    for node in model.graph.node:
        for place, name in enumerate(node.input):
            if name == "attention_mask":
                node.input[place] = "mask_"
    for node in reversed([ONE, *nodes(model.graph)]):
        model.graph.node.insert(0, node)
    onnx.save(model, target)
    return target


def too_weak(source: Path, target: Path) -> Path:
    """The file in which a hidden place is only four below the others."""
    model, changed = onnx.load(source), 0
    for tensor in [
        *model.graph.initializer,
        *(a.t for node in model.graph.node for a in node.attribute if a.name == "value"),
    ]:
        array = numpy_helper.to_array(tensor)
        if array.dtype == np.float32 and array.size == 1 and float(array.reshape(-1)[0]) < -1e30:
            tensor.CopyFrom(numpy_helper.from_array(np.full_like(array, -4.0), tensor.name))
            changed += 1
    assert changed, "the exporter writes its fill value otherwise: plant it anew"
    onnx.save(model, target)
    return target


def every_case_is_diverged(proof: onnxproof.Proof) -> bool:
    """Each case by itself: none may be excused because another one shows the fault."""
    bad = {gap.case for gap in proof.gaps if judge_gap(gap, proof.policy) is Verdict.DIVERGED}
    return bool(bad) and bad == {gap.case for gap in proof.gaps} and not proof.notes


@pytest.mark.parametrize("fault", [_ignored, _inverted, _off_by_one])
def test_a_mask_that_is_read_wrongly_is_diverged_on_every_case(
    exported: tuple[str, Any, Path, Any, Any], tmp_path: Path, fault: Any
) -> None:
    proof = verify(
        exported, planted(exported[2], tmp_path / "m.onnx", fault), only=(*HIDDEN, *LEFT)
    )
    assert every_case_is_diverged(proof), (proof.sentence(), proof.notes)


def test_a_fill_value_that_is_too_weak_is_diverged_on_every_case(
    exported: tuple[str, Any, Path, Any, Any], tmp_path: Path
) -> None:
    proof = verify(exported, too_weak(exported[2], tmp_path / "m.onnx"), only=(*HIDDEN, *LEFT))
    assert every_case_is_diverged(proof), (proof.sentence(), proof.notes)


def with_blank_rows(source: Path, target: Path, *, whole: bool, nan: bool) -> Path:
    """The file that adds NaN or 0.01 where a row of the mask hides everything: to that row, or to all of the batch."""
    model = onnx.load(source)
    output = model.graph.output[0].name
    for node in model.graph.node:
        for place, name in enumerate(node.output):
            if name == output:
                node.output[place] = "before_"
        for place, name in enumerate(node.input):
            if name == output:
                node.input[place] = "before_"
    small = helper.make_node(
        "Constant",
        [],
        ["small_"],
        value=numpy_helper.from_array(np.array(np.nan if nan else 0.01, np.float32)),
    )
    zero = helper.make_node(
        "Constant", [], ["none_"], value=numpy_helper.from_array(np.array(0.0, np.float32))
    )
    axes = _numbers("axes_", *((0, 1) if whole else (1,)))
    blank = [
        _node("ReduceMax", ["attention_mask", "along_"], "seen_", keepdims=1),
        _node("Equal", ["seen_", "nothing_"], "blank_"),
        _node("Cast", ["blank_"], "count_", to=onnx.TensorProto.INT64),
        _node("ReduceMax", ["count_", "axes_"], "any_", keepdims=1),
        _node("Cast", ["any_"], "hit_", to=onnx.TensorProto.BOOL),
        _node("Where", ["hit_", "small_", "none_"], "added_"),
        _node("Unsqueeze", ["added_", "end_"], "wide_"),
        _node("Add", ["before_", "wide_"], output),
    ]
    model.graph.node.extend(
        [
            small,
            zero,
            axes,
            _numbers("along_", 1),
            _numbers("nothing_", 0),
            _numbers("end_", 2),
            *blank,
        ]
    )
    onnx.save(model, target)
    return target


def test_what_no_mask_hides_must_still_agree(
    exported: tuple[str, Any, Path, Any, Any], tmp_path: Path
) -> None:
    only_there = verify(
        exported,
        with_blank_rows(exported[2], tmp_path / "a.onnx", whole=False, nan=False),
        only=HIDDEN[1:],
    )
    assert only_there.verdict is Verdict.FAITHFUL and only_there.notes
    beside = verify(
        exported,
        with_blank_rows(exported[2], tmp_path / "b.onnx", whole=True, nan=False),
        only=HIDDEN[1:],
    )
    assert beside.verdict is Verdict.DIVERGED


def test_nan_against_a_finite_number_stays_diverged(
    exported: tuple[str, Any, Path, Any, Any], tmp_path: Path
) -> None:
    proof = verify(
        exported,
        with_blank_rows(exported[2], tmp_path / "m.onnx", whole=False, nan=True),
        only=HIDDEN[1:],
    )
    assert proof.verdict is Verdict.DIVERGED and any(gap.lost for gap in proof.gaps)


# --- the trial alone, on masks of every kind ---------------------------------------------------------------------------


def attend(x: Array, hidden: Array, *, empty: str, causal: bool, window: int) -> Array:
    """Attention in which a query that sees nothing gets zeros, the mean, or an unmasked answer."""
    scores = np.einsum("bqd,bkd->bqk", x, x)
    width = x.shape[1]
    apart = np.arange(width)[:, None] - np.arange(width)[None]
    covered = (
        np.broadcast_to(hidden[:, None], scores.shape)
        | (causal & (apart < 0))
        | (causal & (apart >= window))
    )
    blank = covered.all(-1, keepdims=True)
    filled = {"zeros": -np.inf, "mean": 0.0, "unmasked": scores}[empty]
    scores = np.where(blank, filled, np.where(covered, -np.inf, scores))
    weights = np.exp(
        scores - np.where(blank & (empty == "zeros"), 0.0, scores.max(-1, keepdims=True))
    )
    return np.asarray(
        np.einsum("bqk,bkd->bqd", weights / np.maximum(weights.sum(-1, keepdims=True), 1e-30), x)
    )


READ = {
    "ignored": np.zeros_like,
    "inverted": np.logical_not,
    "off by one": lambda hidden: np.roll(hidden, 1, -1),
}
ROWS = st.integers(4, 7).flatmap(
    lambda width: st.lists(
        st.lists(st.booleans(), min_size=width, max_size=width), min_size=2, max_size=2
    )
)


def masks_of(example: Array) -> Masks:
    info = InputInfo(
        name="m", dtype="int64", shape=example.shape, dims=example.shape, onnx_name="m"
    )
    space = Space(
        signature=Signature(inputs=(info,), outputs=()),
        slots=(Slot(info=info, role=Role.MASK, example=example),),
    )
    masks = Masks(space, lambda inputs: [])
    masks.__dict__["ways"] = {"m": Hides.ZERO}
    return masks


def agrees(
    hidden: Array, read: Callable[[Array], Array], empty: str, *, causal: bool, window: int
) -> bool:
    x = np.random.default_rng(1).standard_normal((*hidden.shape, 4))
    masks = masks_of((~hidden).astype(np.int64))

    def agree(inputs: Any) -> bool:
        covered = inputs["m"] == 0
        one = attend(x, covered, empty="zeros", causal=causal, window=window)
        other = attend(x, read(covered), empty=empty, causal=causal, window=window)
        beside = ~masks.excused(inputs, {}, one.shape)
        return bool(
            np.allclose(one, other) or (beside.any() and np.allclose(one[beside], other[beside]))
        )

    return agree_with_wider_masks(masks, {"m": (~hidden).astype(np.int64)}, agree)


@settings(max_examples=60, deadline=None)
@given(
    rows=ROWS,
    empty=st.sampled_from(["mean", "unmasked"]),
    causal=st.booleans(),
    window=st.sampled_from([4, 9]),
)
def test_another_answer_to_nothing_agrees_once_the_mask_is_opened(
    rows: list[list[bool]], empty: str, causal: bool, window: int
) -> None:
    hidden = np.array(rows)
    hidden[0, 0] = True
    assert agrees(hidden, lambda covered: covered, empty, causal=causal, window=window)


@settings(max_examples=60, deadline=None)
@given(rows=ROWS, fault=st.sampled_from(sorted(READ)), causal=st.booleans())
def test_a_mask_that_is_read_wrongly_never_agrees(
    rows: list[list[bool]], fault: str, causal: bool
) -> None:
    hidden = np.array(rows)
    hidden[0, 0] = True
    assert not agrees(hidden, READ[fault], "zeros", causal=causal, window=99)


@pytest.mark.parametrize(
    ("shape", "wanted"),
    [
        ((2, 3, 4), [[1, 0, 0], [1, 1, 1]]),
        ((2, 4), [[0], [1]]),
        ((2, 5, 3, 4), [[1, 0, 0], [1, 1, 1]]),
        ((7,), [[1], [1]]),
    ],
)
def test_hidden_places_and_rows_that_see_nothing_are_meant(
    shape: tuple[int, ...], wanted: list[list[int]]
) -> None:
    mask = np.array([[0, 1, 1], [0, 0, 0]])
    region = masks_of(mask).excused({"m": mask}, {}, shape)
    assert region.shape == shape
    for row, places in enumerate(wanted):
        for place, meant in enumerate(places):
            here = (
                region
                if len(shape) == 1
                else region[row]
                if len(places) == 1
                else np.take(region[row], place, -2)
            )
            assert (here == bool(meant)).all()


def test_a_mask_over_a_cache_ends_with_the_new_places() -> None:
    mask = np.array([[0, 0, 0, 0, 1], [1, 1, 1, 1, 1]])
    masks = masks_of(mask)
    info = replace(masks.space.signature.inputs[0], dims=("batch", "total"))
    space = replace(
        masks.space,
        signature=Signature(inputs=(info,), outputs=()),
        relations={"total": "past + new"},
    )
    longer = Masks(space, lambda inputs: [])
    longer.__dict__["ways"] = {"m": Hides.ZERO}
    region = longer.excused({"m": mask}, {"past": 3, "new": 2, "total": 5}, (2, 2, 8))
    assert region[0, 0].all() and not region[0, 1].any() and not region[1].any()


def test_the_finding_counts_cases_and_says_what_was_left() -> None:
    def gap(case: str, compared: int, domain: Domain | None = Domain.MASKED) -> Gap:
        return Gap(
            case=case,
            group="masks",
            backend="ort",
            output="y",
            status=Status.COMPARED,
            compared=compared,
            noise_ratio=1.25,
            domain=domain,
        )

    assert not list(finding([gap("a", 3, None), gap("b", 3, Domain.TIES)]))
    some, nothing = finding([gap("a", 3), gap("b", 0)]), finding([gap("a", 0)])
    assert "in 2 cases; all else is at most 1.2 times the noise there" in next(some).what
    assert "in 1 case; nothing else was there to compare" in next(nothing).what
