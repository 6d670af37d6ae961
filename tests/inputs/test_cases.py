"""Generators: unique names, right shapes and dtypes, one seed one case, inside what was promised; and the user's own data."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import save_file

from onnxproof import api
from onnxproof.errors import InputError
from onnxproof.inputs import data_stream, generators, inference
from onnxproof.inputs.decisions import Decisions
from onnxproof.inputs.rules import Rule, Rules
from onnxproof.inputs.search import climb
from onnxproof.inputs.space import Role, Slot, Space, as_dtype, evaluate, upper
from onnxproof.onnxmodel import onnx_file
from onnxproof.reference import subject
from onnxproof.results import Case, DimInfo, Domain, InputInfo, Signature

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
DIMS = (DimInfo(name="batch", example=2), DimInfo(name="seq", example=6))
EXAMPLES: dict[str, tuple[tuple[str | int, ...], Array]] = {
    "x": (("batch", "seq", 4), RNG.standard_normal((2, 6, 4)).astype(np.float32)),
    "other": (("batch", "seq", 4), RNG.standard_normal((2, 6, 4)).astype(np.float32)),
    "half": (("batch", 3), RNG.standard_normal((2, 3)).astype(np.float16)),
    "mask": (("batch", "seq"), np.ones((2, 6), bool)),
    "ids": (("batch", "seq"), RNG.integers(0, 9, (2, 6))),
    "count": (("batch",), np.array([37, -12])),
    "small": (("batch", 2), np.array([[3, 250], [9, 4]], np.uint8)),
    "level": ((), np.array(0.5, np.float32)),
}
ROLES = {
    "x": Role.FLOAT,
    "other": Role.FLOAT,
    "half": Role.FLOAT,
    "mask": Role.MASK,
    "ids": Role.IDS,
    "count": Role.INTEGER,
    "small": Role.INTEGER,
    "level": Role.FLOAT,
}


def space(*names: str, dims: tuple[DimInfo, ...] = DIMS, rows: int = 30, **other: Any) -> Space:
    """A space of the inputs above."""
    names = names or tuple(EXAMPLES)
    infos = {
        n: InputInfo(
            name=n,
            dtype=str(EXAMPLES[n][1].dtype),
            shape=EXAMPLES[n][1].shape,
            dims=EXAMPLES[n][0],
            onnx_name=n,
        )
        for n in names
    }
    slots = tuple(
        Slot(
            info=infos[n],
            role=ROLES[n],
            example=EXAMPLES[n][1],
            high=rows if ROLES[n] is Role.IDS else None,
        )
        for n in names
    )
    used = {d for info in infos.values() for d in info.dims}
    signature = Signature(
        inputs=tuple(infos.values()), outputs=(), dims=tuple(d for d in dims if d.name in used)
    )
    return Space(signature=signature, slots=slots, **{"constants": (0.25, 6.0), **other})


def made(given: Space, name: str) -> list[Case]:
    if name == "declared" and {"x", "count"} <= {slot.name for slot in given.slots}:
        rules = {
            "x": Rule(name="x", low=0.0, high=1.0),
            "count": Rule(name="count", values=np.array([3, 5])),
        }
        given = replace(given, rules=Rules(inputs=rules))
    if name == "tables":
        given = replace(given, decisions=Decisions(thresholds={0: (0.5, 0.1), 1: (-0.25,)}))
    return list(generators.generators()[name](given))


def same(first: Case, second: Case) -> bool:
    return first.name == second.name and all(
        np.array_equal(a, second.inputs[n], equal_nan=a.dtype.kind == "f")
        for n, a in first.inputs.items()
    )


GENERATORS = sorted(generators.generators())
ROWS = [(str(k), {n: e[:1] if e.ndim else e for n, (_, e) in EXAMPLES.items()}) for k in range(3)]


LONG = (DimInfo(name="batch", example=16), DimInfo(name="seq", example=128))


def test_cases_of_a_large_model_have_few_rows_and_tokens() -> None:
    small, large = (
        space("ids", "mask", dims=LONG, large_model=is_large) for is_large in (False, True)
    )
    assert small.roomy() == {"batch": 16, "seq": 128}
    assert large.roomy() == {"batch": 3, "seq": 8}
    assert large.sizes() == {"batch": 16, "seq": 128}, "the example keeps its own"
    sizes = {(case.sizes["batch"], case.sizes["seq"]) for case in made(large, "shapes")}
    assert {(1, 128), (16, 64)} <= sizes, "lengths are varied all the same"


def test_what_is_no_length_of_tokens_keeps_its_size_in_a_large_model() -> None:
    assert space("x", dims=LONG, large_model=True).roomy() == {"batch": 3, "seq": 128}
    short = (DimInfo(name="batch", example=1), DimInfo(name="seq", example=5))
    assert space("ids", dims=short, large_model=True).roomy() == {"batch": 3, "seq": 5}
    least = (DimInfo(name="batch", example=2), DimInfo(name="seq", example=64, minimum=32))
    assert space("ids", dims=least, large_model=True).roomy()["seq"] == 32


@pytest.mark.parametrize(("weights", "large"), [(60_000_000, True), (1, False)])
def test_a_model_is_large_by_its_weights(weights: int, large: bool, tmp_path: Path) -> None:
    table = helper.make_tensor("w", TensorProto.FLOAT, [1], [1.0])
    node = helper.make_node("Mul", ["x", "w"], ["y"])
    port = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])
    graph = helper.make_graph([node], "g", [port], [result], [table])
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), path)
    file = onnx_file.read(path)
    file.model.graph.initializer[0].dims[0] = (
        weights  # as the header of a file with its weights beside it
    )
    info = InputInfo(name="x", dtype="float32", shape=(2,), dims=("n",), onnx_name="x")
    signature = Signature(inputs=(info,), outputs=(), dims=(DimInfo(name="n", example=2),))
    example = {"x": np.ones(2, np.float32)}
    made_space = inference.make_space(replace(signature), example, replace(file, tables={}))
    assert made_space.large_model is large


# --- every generator -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GENERATORS)
def test_names_are_unique_and_cases_are_well_made(name: str) -> None:
    given = space(data=ROWS)
    found = made(given, name)
    assert found and len({case.name for case in found}) == len(found)
    for case in found:
        assert (
            set(case.inputs) == set(EXAMPLES)
            and case.about
            and case.group in (*GENERATORS, "search")
        )
        for slot in given.slots:
            array = case.inputs[slot.name]
            assert array.dtype == slot.dtype, case.name
            if name != "data":
                assert array.shape == given.shape(slot.info, case.sizes), case.name


@pytest.mark.parametrize("name", GENERATORS)
def test_a_seed_gives_the_same_cases_and_another_seed_others(name: str) -> None:
    first, again, other = (made(space(data=ROWS, seed=seed), name) for seed in (3, 3, 4))
    assert all(same(a, b) for a, b in zip(first, again, strict=True))
    assert [a.name for a in first] == [b.name for b in other] and not all(
        same(a, b) for a, b in zip(first, other, strict=True)
    )


@pytest.mark.parametrize("name", GENERATORS)
def test_a_case_does_not_depend_on_those_before_it(name: str) -> None:
    """The random numbers of a case come from its name: the last case alone equals the last case of a full run."""
    full = {case.name: case for case in made(space(data=ROWS), name)}
    backwards = [
        next(case for case in made(space(data=ROWS), name) if case.name == wanted)
        for wanted in list(full)[-2:][::-1]
    ]
    assert all(same(case, full[case.name]) for case in backwards)


@pytest.mark.parametrize("name", GENERATORS)
def test_no_case_shares_memory_with_the_example(name: str) -> None:
    """A runtime that writes into its input must not spoil the cases that follow."""
    given = space(data=ROWS)
    before = {slot.name: slot.example.copy() for slot in given.slots}
    for case in made(given, name):
        if case.name not in ("example", *(f"data-{label}" for label, _ in ROWS)):
            for array in case.inputs.values():
                if array.flags.writeable:
                    array[...] = 0
    assert all(np.array_equal(slot.example, before[slot.name]) for slot in given.slots)


@pytest.mark.parametrize("name", GENERATORS)
def test_declared_ranges_are_kept(name: str) -> None:
    dims = (
        DimInfo(name="batch", example=2, minimum=2, maximum=4, declared=True),
        DimInfo(name="seq", example=6, minimum=5, maximum=7, declared=True),
    )
    for case in made(space(dims=dims), name):
        assert 2 <= case.sizes["batch"] <= 4 and 5 <= case.sizes["seq"] <= 7, case.name


@pytest.mark.parametrize("name", GENERATORS)
def test_domains_that_are_ruled_out_are_left_out(name: str) -> None:
    for case in made(space(domains=(), data=ROWS), name):
        assert case.domain is None, case.name
        assert all(
            np.isfinite(a.astype(np.float64)).all()
            for a in case.inputs.values()
            if a.dtype.kind == "f"
        ), case.name
        assert all(a.size for a in case.inputs.values()), case.name


@pytest.mark.parametrize("name", GENERATORS)
@pytest.mark.parametrize("single", sorted(EXAMPLES))
def test_a_single_input_of_any_kind_is_enough(name: str, single: str) -> None:
    given = space(single)
    for case in made(given, name):
        assert case.inputs[single].shape == given.shape(given.slots[0].info, case.sizes)


@pytest.mark.parametrize("name", GENERATORS)
def test_a_model_without_open_dims_gets_its_own_shape_only(name: str) -> None:
    fixed = tuple(
        InputInfo(name=i.name, dtype=i.dtype, shape=i.shape, dims=i.shape, onnx_name=i.name)
        for i in space("x", "ids").signature.inputs
    )
    given = space("x", "ids")
    slots = tuple(replace(slot, info=info) for slot, info in zip(given.slots, fixed, strict=True))
    for case in made(
        Space(signature=Signature(inputs=fixed, outputs=()), slots=slots, constants=(1.0,)), name
    ):
        assert case.inputs["x"].shape == (2, 6, 4) and case.inputs["ids"].shape == (2, 6)


@pytest.mark.parametrize(
    "names",
    [
        ("x", "other", "half", "mask", "ids", "count", "small"),
        ("level",),
    ],
)
def test_only_domain_cases_hold_what_is_not_finite(names: tuple[str, ...]) -> None:
    for case in generators.plan(space(*names)):
        odd = any(
            not np.isfinite(a.astype(np.float64)).all()
            for a in case.inputs.values()
            if a.dtype.kind == "f"
        )
        assert odd == (case.domain in (Domain.NAN, Domain.INF)), case.name
        assert (0 in case.sizes.values()) == (case.domain is Domain.EMPTY), case.name


# --- what each generator is for ------------------------------------------------------------------------------------


def by_name(found: list[Case]) -> dict[str, Case]:
    return {case.name: case for case in found}


def test_masks_have_the_patterns_they_are_named_for() -> None:
    found = {
        name: case.inputs["mask"] for name, case in by_name(made(space("mask"), "masks")).items()
    }
    assert found["mask-mask-all true"].all() and not found["mask-mask-all false"].any()
    one = found["mask-mask-one row false"]
    assert one.any(-1).sum() == len(one) - 1
    left, right = (
        found["mask-mask-left-padded"].astype(int),
        found["mask-mask-right-padded"].astype(int),
    )
    assert (
        (np.diff(left) >= 0).all()
        and (np.diff(right) <= 0).all()
        and left.any(-1).all()
        and right.any(-1).all()
    )
    assert (found["mask-mask-one true"].sum(-1) == 1).all() and found["mask-mask-first true"][
        :, 0
    ].all()
    ragged = found["mask-mask-ragged"]
    assert ragged.any() and not ragged.all()


def test_ids_cover_the_table_and_stay_in_it() -> None:
    found = by_name(made(space("ids", rows=30), "ids"))
    for name, case in found.items():
        low = -30 if "negative" in name else 0
        assert low <= case.inputs["ids"].min() and case.inputs["ids"].max() < 30, name
    assert (found["ids-ids-last"].inputs["ids"] == 29).all() and (
        found["ids-ids-first"].inputs["ids"] == 0
    ).all()
    assert (found["ids-ids-beyond the example"].inputs["ids"] > EXAMPLES["ids"][1].max()).all()
    assert (np.diff(found["ids-ids-descending"].inputs["ids"]) <= 0).all()
    assert found["ids-many"].inputs["ids"].size > 4 * EXAMPLES["ids"][1].size


def test_integers_reach_beyond_the_types_that_narrow_them() -> None:
    found = by_name(made(space("count", "small"), "integers"))
    assert (found["integer-count-beyond 2**31"].inputs["count"] > 2**31).all() and (
        found["integer-count-negative"].inputs["count"] < 0
    ).all()
    assert (
        found["integer-small-ends of the type"].inputs["small"] >= 252
    ).all() and "integer-small-beyond 2**31" not in found
    assert "integer-small-negative" not in found


def test_floats_sit_where_their_name_says() -> None:
    found = {
        name.removeprefix("float-x-"): case.inputs["x"]
        for name, case in by_name(made(space("x"), "floats")).items()
    }
    assert (
        not found["zeros"].any()
        and not np.signbit(found["zeros"]).any()
        and np.signbit(found["negative zeros"]).all()
    )
    assert (
        (np.abs(found["halves"]) % 1 == 0.5).all()
        and (found["all negative"] < 0).all()
        and (found["all positive"] > 0).all()
    )
    assert (np.ptp(found["constant rows"], axis=-1) == 0).all() and np.unique(
        found["constant rows"]
    ).size > 1
    assert (np.abs(found["denormal"]) < np.finfo(np.float32).tiny).all() and found["denormal"].any()
    assert np.abs(found["huge"]).max() > 1e6 and np.isfinite(found["huge"]).all()


def test_inputs_of_one_shape_get_values_that_differ() -> None:
    case = by_name(made(space("x", "other"), "distinct"))["distinct-0"]
    assert abs(float(case.inputs["x"].mean() - case.inputs["other"].mean())) > 1
    assert not any(case.name.startswith("distinct-") for case in made(space("x"), "distinct"))


def test_rows_move_within_the_batch() -> None:
    found = by_name(made(space("x"), "distinct"))
    repeated = found["batch-repeated"].inputs["x"]
    assert len(repeated) >= 3 and (repeated == repeated[:1]).all()


def test_the_graphs_constants_become_inputs() -> None:
    found = by_name(made(space("x", constants=(0.25, 6.0)), "thresholds"))
    assert set(np.unique(found["constants-exactly on"].inputs["x"])) <= {-6, -0.25, 0.25, 6}
    assert (found["constant=6"].inputs["x"] == 6).all()
    around = found["constants-on and around"].inputs["x"]
    assert (
        np.nextafter(np.float32(6), np.float32(0)) in around
        or np.nextafter(np.float32(0.25), np.float32(1)) in around
    )
    assert made(space("x", constants=()), "thresholds") == []


def test_shapes_sweep_every_open_dim() -> None:
    found = by_name(made(space("x"), "shapes"))
    assert {f"batch={n}" for n in (0, 1, 7, 32)} | {f"seq={n}" for n in (0, 1, 2, 5, 7, 17, 64)} | {
        "all-one",
        "all-large",
    } <= set(found)
    assert found["seq=17"].inputs["x"].shape == (2, 17, 4) and found["all-one"].inputs[
        "x"
    ].shape == (1, 1, 4)


def test_shapes_go_just_beyond_what_the_exporter_recorded() -> None:
    dims = (DimInfo(name="batch", example=2), DimInfo(name="seq", example=6, recorded=(None, 512)))
    assert {"seq=512", "seq=513"} <= set(by_name(made(space("x", dims=dims), "shapes")))


def test_a_derived_dim_follows_and_a_pinned_one_stays() -> None:
    dims = (*DIMS, DimInfo(name="total", example=8))
    given = replace(space("x", dims=dims), relations={"total": "batch + seq"})
    given = replace(
        given, signature=replace(given.signature, dims=dims), pinned=frozenset({"batch"})
    )
    for case in made(given, "shapes"):
        assert (
            case.sizes["total"] == case.sizes["batch"] + case.sizes["seq"]
            and case.sizes["batch"] == 2
        )


@pytest.mark.parametrize(
    ("expression", "value"),
    [("a", 3), ("a + b", 8), ("a - b", -2), ("2*a + 1", 7), ("a*b - a", 12)],
)
def test_dims_are_evaluated(expression: str, value: int) -> None:
    assert evaluate(expression, {"a": 3, "b": 5}) == value


def test_no_generated_input_grows_out_of_hand() -> None:
    big = InputInfo(
        name="x",
        dtype="float32",
        shape=(2, 6, 100_000),
        dims=("batch", "seq", 100_000),
        onnx_name="x",
    )
    slot = Slot(info=big, role=Role.FLOAT, example=np.zeros((2, 6, 100_000), np.float32))
    given = Space(signature=Signature(inputs=(big,), outputs=(), dims=DIMS), slots=(slot,))
    assert all(case.inputs["x"].size <= 1 << 22 for case in made(given, "shapes"))


def test_bfloat16_inputs_stay_bfloat16() -> None:
    info = InputInfo(name="x", dtype="bfloat16", shape=(2, 4), dims=("batch", 4), onnx_name="x")
    slot = Slot(
        info=info, role=Role.FLOAT, example=RNG.standard_normal((2, 4)).astype(ml_dtypes.bfloat16)
    )
    given = Space(
        signature=Signature(inputs=(info,), outputs=(), dims=DIMS[:1]),
        slots=(slot,),
        constants=(1.0,),
    )
    assert all(case.inputs["x"].dtype == ml_dtypes.bfloat16 for case in generators.plan(given))


def test_as_dtype_is_silent_about_what_does_not_fit() -> None:
    with np.errstate(all="raise"):
        assert np.isinf(as_dtype(np.array([1e30]), np.dtype(np.float16))).all()


# --- the plan ------------------------------------------------------------------------------------------------------


def test_the_plan_begins_with_ordinary_values_then_takes_turns() -> None:
    groups = [case.group for case in generators.plan(space(data=ROWS))]
    plain = [g for g in groups if g in ("ordinary", "data")]
    assert groups[: len(plain)] == plain and groups[0] == "ordinary"
    rest = groups[len(plain) :]
    assert len(set(rest[:8])) == 8  # each of the other generators has its turn in the first round
    assert (
        set(rest) - set(rest[:8]) == {"lengths"} == set(rest[rest.index("lengths") :])
    )  # but for the dearest, which come last


def test_the_plan_names_every_case_once() -> None:
    names = [case.name for case in generators.plan(space(data=ROWS))]
    assert len(names) == len(set(names)) > 100


def test_the_plan_is_lazy() -> None:
    def endless() -> Iterator[tuple[str, dict[str, Array]]]:
        for k in range(10**9):
            yield str(k), {"x": EXAMPLES["x"][1]}

    walk = generators.plan(space("x", data=endless()))
    assert [next(walk).name for _ in range(3)] == ["example", "ordinary-0", "ordinary-1"]


def test_the_search_is_deterministic_and_keeps_what_scores() -> None:
    start = [(0.1, next(generators.plan(space("x", "ids"))))]

    def walk(seed: int) -> list[Case]:
        found, climber = [], climb(start, seed)
        case = next(climber)
        for step in range(12):
            found.append(case)
            case = climber.send(float(step))
        return found

    one, two, other = walk(0), walk(0), walk(1)
    assert all(same(a, b) for a, b in zip(one, two, strict=True)) and not all(
        same(a, b) for a, b in zip(one, other, strict=True)
    )
    assert len({case.name for case in one}) == 12 and all(
        case.inputs["x"].dtype == np.float32 for case in one
    )


# --- what an input is for ------------------------------------------------------------------------------------------


def table(
    folder: Path, *, rows: int = 50, chain: tuple[str, ...] = (), second: int | None = None
) -> onnx_file.OnnxFile:
    """ids -> chain -> Gather(table[rows]); a second, smaller table where asked for."""
    nodes, value = [], "ids"
    for k, op in enumerate(chain):
        attributes = {"to": TensorProto.INT32} if op == "Cast" else {}
        nodes.append(
            helper.make_node(
                op, [value, "one"] if op == "Add" else [value], [f"v{k}"], **attributes
            )
        )
        value = f"v{k}"
    nodes.append(helper.make_node("Gather", ["table", value], ["y"]))
    weights = {"table": np.zeros((rows, 4), np.float32), "one": np.array(1, np.int64)}
    if second is not None:
        weights["types"] = np.zeros((second, 4), np.float32)
        nodes.append(helper.make_node("Gather", ["types", "ids"], ["z"]))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, ["b", 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(v, k) for k, v in weights.items()],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
        folder / "m.onnx",
    )
    return onnx_file.read(folder / "m.onnx")


@pytest.mark.parametrize("chain", [(), ("Cast",), ("Identity", "Cast"), ("Add",)])
def test_the_tables_rows_are_read_from_the_graph(tmp_path: Path, chain: tuple[str, ...]) -> None:
    assert inference.lookups(table(tmp_path, chain=chain)) == {"ids": {"table": 50}}


def test_the_smallest_table_bounds_the_ids(tmp_path: Path) -> None:
    slot = role(np.zeros((2, 6), np.int64), table(tmp_path, second=7))
    assert slot.high == 7 and slot.tables == (7, 50)


def role(
    array: Array, file: onnx_file.OnnxFile, name: str = "ids", dims: tuple[DimInfo, ...] = ()
) -> Slot:
    info = InputInfo(
        name=name, dtype=str(array.dtype), shape=array.shape, dims=array.shape, onnx_name=name
    )
    (slot,) = inference.make_space(
        Signature(inputs=(info,), outputs=(), dims=dims), {name: array}, file
    ).slots
    return slot


@pytest.mark.parametrize(
    ("array", "name", "wanted"),
    [
        (np.ones(3, bool), "keep", Role.MASK),
        (np.array([[1, 1, 0]]), "attention_mask", Role.MASK),
        (np.ones((2, 3), np.int64), "flags", Role.MASK),
        (np.ones(3, np.float32), "x", Role.FLOAT),
        (np.ones(3, np.float32), "mask", Role.FLOAT),
        (np.ones(3, np.complex64), "spectrum", Role.FLOAT),
        (np.array([5, 1000, -3]), "amounts", Role.INTEGER),
        (np.array([0, 1, 1, 0]), "ids", Role.IDS),
        (np.array([3, 40, 7]), "ids", Role.IDS),
        (np.ones((2, 2), ml_dtypes.bfloat16), "x", Role.FLOAT),
    ],
)
def test_roles_are_recognised(tmp_path: Path, array: Array, name: str, wanted: Role) -> None:
    slot = role(array, table(tmp_path), name)
    assert slot.role is wanted and slot.high == (50 if name == "ids" else None)


def test_indices_into_another_input_are_bounded_by_its_dim(tmp_path: Path) -> None:
    slot = role(
        np.array([0, 4, 2]), table(tmp_path), "index", dims=(DimInfo(name="nodes", example=5),)
    )
    assert slot.role is Role.IDS and slot.high_dims == ("nodes",) and upper(slot, {"nodes": 9}) == 9


def test_the_graphs_small_constants_are_collected(tmp_path: Path) -> None:
    file = table(tmp_path)
    info = InputInfo(name="ids", dtype="int64", shape=(2,), dims=(2,), onnx_name="ids")
    found = inference.make_space(
        Signature(inputs=(info,), outputs=()), {"ids": np.array([3, 4])}, file
    )
    assert found.constants == (1.0,)


# --- refused cases are counted -------------------------------------------------------------------------------------


def relu(folder: Path) -> Path:
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
        folder / "relu.onnx",
    )
    return folder / "relu.onnx"


class Choosy(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if bool((x < -15).any()):
            raise ValueError("too negative for me")
        return torch.relu(x)


def test_a_case_that_the_reference_refuses_is_dropped_and_counted(tmp_path: Path) -> None:
    proof = api.verify(Choosy(), relu(tmp_path), (torch.rand(2, 4),), budget_s=10, explain=False)
    dropped = {one.case: one.reason for one in proof.dropped}
    assert dropped["float-x-very negative"] == "ValueError: too negative for me"
    assert not {gap.case for gap in proof.gaps} & set(dropped) and proof.verdict.value == "faithful"


# --- the user's own data -------------------------------------------------------------------------------------------

A, B = np.arange(4, dtype=np.float32), np.arange(4, 8, dtype=np.float32)


def streamed(
    given: Any, names: tuple[str, ...] = ("a", "b")
) -> list[tuple[str, dict[str, list[float]]]]:
    return [
        (label, {name: array.tolist() for name, array in arrays.items()})
        for label, arrays in data_stream.stream(given, names)
    ]


WANTED = {"a": A.tolist(), "b": B.tolist()}


def test_files_and_folders_of_data(tmp_path: Path) -> None:
    np.savez(tmp_path / "one.npz", b=B, a=A, extra=A)
    save_file({"a": A, "b": B}, tmp_path / "two.safetensors")
    (tmp_path / "notes.txt").write_text("not data")
    assert streamed(tmp_path / "one.npz") == [("one.npz", WANTED)] and streamed(
        str(tmp_path / "two.safetensors")
    ) == [("two.safetensors", WANTED)]
    assert streamed(tmp_path) == [("one.npz", WANTED), ("two.safetensors", WANTED)]


def test_a_plain_array_is_the_only_input(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", A)
    np.savez(tmp_path / "y.npz", whatever=B)
    assert streamed(tmp_path, ("x",)) == [
        ("x.npy", {"x": A.tolist()}),
        ("y.npz", {"x": B.tolist()}),
    ]


def test_dicts_tuples_and_loaders(tmp_path: Path) -> None:
    assert streamed({"a": A, "b": torch.from_numpy(B)}) == [("data", WANTED)]
    assert streamed([(A, B), {"b": B, "a": A}, [torch.from_numpy(A), B]]) == [
        (str(k), WANTED) for k in range(3)
    ]
    loader = torch.utils.data.DataLoader([(A, B, 3), (A, B, 4)], batch_size=2)
    assert streamed(loader) == [
        ("0", {"a": [A.tolist()] * 2, "b": [B.tolist()] * 2})
    ]  # the labels that follow are left


def test_an_iterable_of_single_arrays() -> None:
    assert streamed((array for array in (A, B)), ("x",)) == [
        ("0", {"x": A.tolist()}),
        ("1", {"x": B.tolist()}),
    ]


def test_nothing_given_is_nothing_streamed() -> None:
    assert streamed(None) == []


def test_nested_inputs_go_by_their_paths(tmp_path: Path) -> None:
    np.savez(tmp_path / "n.npz", **{"past.0": A, "past.1": B})
    assert streamed(tmp_path / "n.npz", ("past.0", "past.1")) == [
        ("n.npz", {"past.0": A.tolist(), "past.1": B.tolist()})
    ]
    assert streamed([{"past": (A, B)}], ("past.0", "past.1")) == [
        ("0", {"past.0": A.tolist(), "past.1": B.tolist()})
    ]


@pytest.mark.parametrize(
    ("given", "code", "words"),
    [
        (
            {"a": A, "c": B},
            "input-missing",
            r"the data has no input named `b`\n  --> data\n  = note: it has a, c\n  = note: the model takes a, b",
        ),
        (
            [(A,)],
            "data-too-short",
            r"data\[0\] has 1 arrays for 2 inputs\n  = note: the inputs are a, b",
        ),
        (7, "bad-data", r"data is a int\n  = help: give a file, a folder"),
        ("{folder}/absent.npz", "no-such-file", r"there is no file `.*absent.npz`"),
        (
            "{folder}/empty",
            "no-data",
            r"`.*empty` holds no data file\n  = help: files end in .npz, .npy, .safetensors",
        ),
        ("{folder}/table.csv", "bad-data", r"`table.csv` is not a data file"),
        ("{folder}/cut.npz", "bad-data", r"`cut.npz` can't be read: "),
        (
            "{folder}/pickled.npy",
            "bad-data",
            r"`pickled.npy` can't be read: .*allow_pickle.*\n.*\n  = help: pickled arrays are not read",
        ),
    ],
)
def test_bad_data_is_told_in_words(tmp_path: Path, given: Any, code: str, words: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "table.csv").write_text("1,2")
    (tmp_path / "cut.npz").write_bytes(b"PK\x03\x04cut")
    np.save(tmp_path / "pickled.npy", np.array([{"a": 1}], dtype=object))
    with pytest.raises(InputError, match=words) as caught:
        streamed(given.format(folder=tmp_path) if isinstance(given, str) else given)
    assert caught.value.code == code


def test_data_reaches_the_proof_as_named_cases(tmp_path: Path) -> None:
    rows = [np.full((2, 4), k, np.float64) for k in range(3)]
    proof = api.verify(
        Choosy(),
        relu(tmp_path),
        (torch.rand(2, 4),),
        data=rows,
        budget_s=10,
        explain=False,
        only=("data-0", "data-0-moved", "data-2"),
    )
    assert [gap.case for gap in proof.gaps] == ["data-0", "data-0-moved", "data-2"] and {
        gap.group for gap in proof.gaps
    } == {"data"}
    assert proof.verdict.value == "faithful"


def test_data_of_another_dtype_is_converted_to_the_examples(tmp_path: Path) -> None:
    given = subject.load(Choosy(), (torch.rand(2, 4),), data=[np.ones((2, 4), np.int64)])
    proof = api.verify(given, relu(tmp_path), budget_s=10, only=("data-0",), explain=False)
    assert proof.gaps[0].compared == 8
