"""How two models' inputs, outputs and dims go together, and the words for when they do not."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from torch.export import Dim

from onnxproof.errors import InputError
from onnxproof.inputs.inference import describe_dims, learn_dims, make_space
from onnxproof.inputs.space import Space
from onnxproof.onnxmodel.onnx_file import OnnxFile, Port
from onnxproof.reference.dynamic_shapes import dim_specs
from onnxproof.reference.leaf import Leaf
from onnxproof.reference.pairing import merge
from onnxproof.results import Case, DimInfo, Finding, Signature

RANGES = "pkg.torch.export.ExportedProgram.range_constraints"


def file(
    inputs: dict[str, Any],
    outputs: Sequence[str] = ("y",),
    *,
    dtypes: dict[str, str] | None = None,
    ranges: str = "",
) -> OnnxFile:
    """A file that takes these inputs (name to dims) and says nothing else."""
    model = onnx.ModelProto()
    if ranges:
        model.metadata_props.add(key=RANGES, value=ranges)
    ports = tuple(
        Port(
            name=name,
            dtype=(dtypes or {}).get(name, "float32"),
            dims=None if dims is None else tuple(dims),
        )
        for name, dims in inputs.items()
    )
    return OnnxFile(
        path=Path("m.onnx"),
        model=model,
        inputs=ports,
        outputs=tuple(Port(name=name, dtype="float32", dims=None) for name in outputs),
        opset=18,
    )


def leaf(name: str, *shape: int, dtype: str = "float32") -> Leaf:
    return Leaf(name=name, dtype=dtype, shape=shape)


OUT = (leaf("output", 3, 2),)


def pairs(signature: Signature) -> dict[str, tuple[str | None, str]]:
    return {info.name: (info.onnx_name, info.paired_by) for info in signature.inputs}


def codes(findings: Sequence[Finding]) -> list[str]:
    return [finding.code for finding in findings]


# --- pairing -------------------------------------------------------------------------------------------------------


def test_inputs_pair_by_name_whatever_their_order() -> None:
    merged, findings = merge([leaf("a", 3), leaf("b", 3)], OUT, file({"b": (3,), "a": (3,)}))
    assert pairs(merged) == {"a": ("a", "name"), "b": ("b", "name")} and findings == []


def test_inputs_pair_by_position_where_the_file_uses_other_names() -> None:
    merged, _ = merge(
        [leaf("a", 3), leaf("b", 3)], OUT, file({"input.1": (3,), "onnx::Add_1": (3,)})
    )
    assert pairs(merged) == {"a": ("input.1", "position"), "b": ("onnx::Add_1", "position")}


def test_some_by_name_and_the_rest_by_position() -> None:
    merged, _ = merge(
        [leaf("a", 3), leaf("b", 3), leaf("c", 3)],
        OUT,
        file({"c": (3,), "first": (3,), "second": (3,)}),
    )
    assert pairs(merged) == {
        "a": ("first", "position"),
        "b": ("second", "position"),
        "c": ("c", "name"),
    }


def test_nested_inputs_pair_with_the_exporters_underscores() -> None:
    merged, _ = merge(
        [leaf("past.0.1", 3), leaf("past.0.0", 3)], OUT, file({"past_0_0": (3,), "past_0_1": (3,)})
    )
    assert pairs(merged) == {"past.0.1": ("past_0_1", "name"), "past.0.0": ("past_0_0", "name")}


def test_an_input_that_folding_removed_is_a_finding() -> None:
    merged, findings = merge([leaf("x", 3), leaf("mask", 3, dtype="bool")], OUT, file({"x": (3,)}))
    assert pairs(merged) == {"x": ("x", "name"), "mask": (None, "absent")}
    assert (
        codes(findings) == ["input-absent"]
        and "the file has no input for `mask`" in findings[0].what
    )


def test_the_removed_one_is_found_by_dtype_and_rank() -> None:
    merged, findings = merge(
        [leaf("ids", 3, dtype="int64"), leaf("x", 3, 4)], OUT, file({"input": (3, 4)})
    )
    assert pairs(merged) == {"ids": (None, "absent"), "x": ("input", "position")} and codes(
        findings
    ) == ["input-absent"]


def test_an_input_that_the_reference_lacks_is_an_error() -> None:
    with pytest.raises(InputError) as caught:
        merge([leaf("x", 3)], OUT, file({"x": (3,), "mask": (3,)}))
    assert str(caught.value) == "\n".join(
        [
            "error[input-missing]: the file takes an input `mask` that the reference does not have",
            "  --> m.onnx",
            "  = note: the reference takes `x` float32[3]",
            "  = note: the file takes x, mask",
            "  = help: pass example inputs for all of the file's inputs, in the order of `forward`",
        ]
    )


def test_outputs_pair_by_name_only_when_all_do() -> None:
    scores, aux = leaf("scores", 3), leaf("aux", 3)
    merged, _ = merge([leaf("x", 3)], [scores, aux], file({"x": (3,)}, ["aux", "scores"]))
    assert [(o.name, o.onnx_name, o.paired_by) for o in merged.outputs] == [
        ("scores", "scores", "name"),
        ("aux", "aux", "name"),
    ]
    merged, _ = merge([leaf("x", 3)], [scores, aux], file({"x": (3,)}, ["aux", "other"]))
    assert [(o.name, o.onnx_name, o.paired_by) for o in merged.outputs] == [
        ("scores", "aux", "position"),
        ("aux", "other", "position"),
    ]


def test_an_output_that_the_file_lacks_has_no_partner() -> None:
    merged, findings = merge([leaf("x", 3)], [leaf("0", 3), leaf("1", 3)], file({"x": (3,)}, ["y"]))
    assert [o.onnx_name for o in merged.outputs] == ["y", None] and findings == []


def test_an_extra_output_is_a_finding() -> None:
    _, findings = merge([leaf("x", 3)], OUT, file({"x": (3,)}, ["y", "hidden", "debug"]))
    assert (
        codes(findings) == ["output-extra"]
        and findings[0].what == "the file returns `hidden`, `debug`, which the reference does not"
    )


def test_another_dtype_is_a_finding_with_names() -> None:
    merged, findings = merge([leaf("x", 3, dtype="float64")], OUT, file({"input": (3,)}))
    assert (
        codes(findings) == ["input-dtype"]
        and findings[0].what
        == "`x` is float64 for the reference and float32 for the file (`input`)"
    )
    assert merged.inputs[0].onnx_dtype == "float32"


def test_another_rank_is_an_error_with_both() -> None:
    with pytest.raises(
        InputError,
        match=r"error\[rank-differs\]: `x` has 2 dims and the file's `input` has 4\n  = note: the example is float32\[3, 8\], "
        r"the file says \['batch', 3, 8, 8\]",
    ):
        merge([leaf("x", 3, 8)], OUT, file({"input": ("batch", 3, 8, 8)}))


def test_another_fixed_size_is_an_error() -> None:
    with pytest.raises(
        InputError,
        match=r"error\[size-differs\]: dim 1 of `x` is 9 in the example and fixed at 8 in the file",
    ):
        merge([leaf("x", 3, 9)], OUT, file({"x": ("batch", 8)}))


# --- dims ----------------------------------------------------------------------------------------------------------


def dims_of(
    shapes: Any, tree: dict[str, Any], given: OnnxFile, leaves: Sequence[Leaf]
) -> tuple[Signature, list[Finding]]:
    return merge(leaves, OUT, given, tree=tree, dynamic_shapes=shapes)


X = np.zeros((3, 8))
OPEN = file({"x": ("s0", "s1")})


@pytest.mark.parametrize(
    "shapes",
    [
        ({0: "batch"},),
        [{0: "batch"}],
        {"x": {0: "batch"}},
        ({0: Dim("batch")},),
        {"x": ("batch", None)},
        {"x": ["batch", None]},
        ({0: "batch", 1: None},),
    ],
)
def test_a_dim_may_be_named_in_any_of_the_ways_that_torch_takes(shapes: Any) -> None:
    merged, findings = dims_of(shapes, {"x": X}, OPEN, [leaf("x", 3, 8)])
    assert merged.inputs[0].dims == ("batch", 8) and findings == []
    assert merged.dims == (DimInfo(name="batch", example=3, declared=True),)


def test_a_dim_with_a_range_keeps_it() -> None:
    merged, _ = dims_of(
        ({0: Dim("batch", min=2, max=64), 1: Dim("time", min=4)},),
        {"x": X},
        OPEN,
        [leaf("x", 3, 8)],
    )
    assert [(d.name, d.minimum, d.maximum) for d in merged.dims] == [
        ("batch", 2, 64),
        ("time", 4, None),
    ]


def test_dynamic_is_open_and_takes_the_files_name() -> None:
    merged, _ = dims_of(({0: Dim.DYNAMIC},), {"x": X}, OPEN, [leaf("x", 3, 8)])
    assert merged.inputs[0].dims == ("s0", 8) and merged.dim("s0").declared


def test_dynamic_with_a_range_keeps_it() -> None:
    merged, _ = dims_of(({0: Dim.DYNAMIC(min=2, max=9)},), {"x": X}, OPEN, [leaf("x", 3, 8)])
    assert (merged.dim("s0").minimum, merged.dim("s0").maximum) == (2, 9)


def test_auto_leaves_it_to_the_file() -> None:
    shapes = ({0: Dim.AUTO, 1: Dim.AUTO},)
    merged, findings = dims_of(shapes, {"x": X}, file({"x": ("s0", 8)}), [leaf("x", 3, 8)])
    assert merged.inputs[0].dims == ("s0", 8) and findings == [] and not merged.dim("s0").declared


def test_static_is_fixed_though_the_file_is_open() -> None:
    merged, _ = dims_of(({0: Dim.STATIC, 1: 8},), {"x": X}, OPEN, [leaf("x", 3, 8)])
    assert merged.inputs[0].dims == (3, 8) and merged.dims == ()


def test_what_the_user_leaves_out_is_fixed_once_any_is_given() -> None:
    merged, _ = dims_of({"x": None}, {"x": X}, OPEN, [leaf("x", 3, 8)])
    assert merged.inputs[0].dims == (3, 8)
    merged, _ = dims_of(None, {"x": X}, OPEN, [leaf("x", 3, 8)])
    assert merged.inputs[0].dims == ("s0", "s1") and not any(d.declared for d in merged.dims)


def test_a_nameless_open_dim_gets_a_name_of_its_own() -> None:
    merged, _ = merge([leaf("past.0", 3, 8)], OUT, file({"input": (None, "2*s0")}))
    assert merged.inputs[0].dims == ("past_0_0", "past_0_1")


def test_a_dim_that_should_vary_and_is_fixed_in_the_file_is_a_finding() -> None:
    merged, findings = dims_of(({0: "batch"},), {"x": X}, file({"x": (3, 8)}), [leaf("x", 3, 8)])
    assert (
        codes(findings) == ["dim-fixed"]
        and findings[0].what
        == "dim 0 of `x` (`batch`) is meant to vary, and the file has it fixed at 3"
    )
    assert "export again with dynamic_shapes" in findings[0].help and merged.inputs[0].dims == (
        "batch",
        8,
    )


def test_one_name_for_two_inputs_is_one_dim() -> None:
    shapes = {"x": {0: "batch"}, "mask": {0: "batch"}}
    merged, _ = dims_of(
        shapes,
        {"x": X, "mask": X},
        file({"x": ("batch", 8), "mask": ("batch", 8)}),
        [leaf("x", 3, 8), leaf("mask", 3, 8)],
    )
    assert [d.name for d in merged.dims] == ["batch"] and [i.dims for i in merged.inputs] == [
        ("batch", 8)
    ] * 2


def test_one_name_for_two_sizes_is_two_dims() -> None:
    merged, _ = merge([leaf("x", 3, 8), leaf("y", 5, 8)], OUT, file({"x": ("n", 8), "y": ("n", 8)}))
    assert [(d.name, d.example) for d in merged.dims] == [("n", 3), ("n_5", 5)]


def test_nested_inputs_take_nested_shapes() -> None:
    tree = {"x": X, "past": [(X, X), {"k": X}], "flag": None}
    leaves = [
        leaf("x", 3, 8),
        leaf("past.0.0", 3, 8),
        leaf("past.0.1", 3, 8),
        leaf("past.1.k", 3, 8),
    ]
    given = file({leaf.name.replace(".", "_"): ("a", "b") for leaf in leaves})
    shapes = {
        "x": None,
        "past": [({0: "batch"}, {0: "batch", 1: "time"}), {"k": (None, "time")}],
        "flag": None,
    }
    merged, _ = dims_of(shapes, tree, given, leaves)
    assert [i.dims for i in merged.inputs] == [(3, 8), ("batch", 8), ("batch", "time"), (3, "time")]


def test_shapes_by_position_may_be_shorter_than_the_inputs() -> None:
    assert dim_specs({"x": X, "mask": X}, ({0: "batch"},)) == {"x": {0: "batch"}}


def test_a_name_that_the_reference_does_not_take_is_an_error() -> None:
    with pytest.raises(
        InputError,
        match=r"error\[unknown-input\]: dynamic_shapes names `input`, which the reference does not take\n  = note: it takes x",
    ):
        dim_specs({"x": X}, {"input": {0: "batch"}})


def test_the_exporters_upper_bound_is_read() -> None:
    merged, _ = merge(
        [leaf("x", 3, 8)], OUT, file({"x": ("s0", 8)}, ranges="{s77: VR[2, 512], s1: VR[0, 4]}")
    )
    assert merged.dim("s0").recorded == (None, 512)


# --- what the reference teaches about its dims ---------------------------------------------------------------------


def space(inputs: dict[str, tuple[tuple[str | int, int], ...]], **dims: dict[str, Any]) -> Space:
    """A space whose inputs have these (dim, example size) pairs."""
    leaves = [leaf(name, *(size for _, size in axes)) for name, axes in inputs.items()]
    given = file({name: [dim for dim, _ in axes] for name, axes in inputs.items()})
    shapes = (
        {
            name: {
                k: Dim(dim, **dims[dim]) if dim in dims else None
                for k, (dim, _) in enumerate(axes)
                if isinstance(dim, str)
            }
            for name, axes in inputs.items()
        }
        if dims
        else None
    )
    arrays = {
        one.name: np.ones(one.shape, np.float32)
        * np.arange(2, 2 + int(np.prod(one.shape))).reshape(one.shape)
        for one in leaves
    }
    merged, _ = merge(leaves, OUT, given, tree=arrays, dynamic_shapes=shapes)
    return make_space(merged, arrays, given)


def learned(
    given: Space, accepts: Callable[[dict[str, tuple[int, ...]]], bool]
) -> tuple[Space, list[dict[str, tuple[int, ...]]]]:
    asked: list[dict[str, tuple[int, ...]]] = []

    def reference(case: Case) -> bool:
        asked.append({name: array.shape for name, array in case.inputs.items()})
        return accepts(asked[-1])

    return learn_dims(given, reference), asked


def test_a_dim_that_moves_alone_stays_free() -> None:
    found, asked = learned(space({"x": (("batch", 3), (8, 8))}), lambda shapes: True)
    assert (
        [d.name for d in found.free_dims] == ["batch"]
        and found.relations == {}
        and asked == [{"x": (4, 8)}]
    )


def test_tied_dims_are_learned() -> None:
    given = space({"x": (("b", 3), (8, 8)), "mask": (("m", 3), (8, 8))})
    found, _ = learned(given, lambda shapes: shapes["x"][0] == shapes["mask"][0])
    assert found.relations in ({"b": "m"}, {"m": "b"}) and len(found.free_dims) == 1
    assert found.sizes(**{found.free_dims[0].name: 7}) == {"b": 7, "m": 7}


def test_total_is_past_plus_seq() -> None:
    given = space(
        {
            "ids": ((1, 1), ("seq", 4)),
            "past": ((1, 1), ("past", 6)),
            "mask": ((1, 1), ("total", 10)),
        }
    )
    found, _ = learned(
        given, lambda shapes: shapes["mask"][1] == shapes["ids"][1] + shapes["past"][1]
    )
    assert found.relations == {"total": "seq + past"} and sorted(
        d.name for d in found.free_dims
    ) == ["past", "seq"]
    assert found.sizes(seq=1, past=2)["total"] == 3
    assert describe_dims(found).dim("total").derived == "seq + past"


def test_a_dim_that_the_reference_pins_is_pinned_and_said() -> None:
    found, _ = learned(space({"x": (("n", 5), (8, 8))}), lambda shapes: shapes["x"][0] == 5)
    assert found.free_dims == [] and found.pinned == {"n"}
    assert describe_dims(found).dim("n").derived == "fixed: the reference refuses other sizes"


def test_undeclared_batches_of_one_size_move_together_first() -> None:
    """A reference that broadcasts accepts one alone, and then every sweep would be of a call that no user makes."""
    given = space({"x": (("b", 1), (8, 8)), "y": (("c", 1), (8, 8))})
    found, _ = learned(given, lambda shapes: True)
    assert len(found.relations) == 1 and len(found.free_dims) == 1


def test_a_declared_maximum_is_not_asked_beyond() -> None:
    given = space({"x": (("n", 5), (8, 8))}, n={"max": 5})
    found, asked = learned(given, lambda shapes: True)
    assert asked == [{"x": (4, 8)}] and [d.name for d in found.free_dims] == ["n"]


def test_two_sums_in_one_model() -> None:
    """Keys and values of an encoder and a decoder: each total follows its own parts."""
    inputs = {
        "a": (("a", 2),),
        "b": (("b", 3),),
        "ab": (("ab", 5),),
        "c": (("c", 7),),
        "d": (("d", 11),),
        "cd": (("cd", 18),),
    }
    found, _ = learned(
        space(inputs),
        lambda s: s["ab"][0] == s["a"][0] + s["b"][0] and s["cd"][0] == s["c"][0] + s["d"][0],
    )
    assert found.relations == {"ab": "a + b", "cd": "c + d"} and found.pinned == frozenset()
