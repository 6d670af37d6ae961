"""The standard's evaluator: right against PyTorch in float64, in float64 throughout, and it says what it can't do."""

import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser
from onnx.reference import ReferenceEvaluator

from onnxproof.errors import ModelError, Refused, UsageError
from onnxproof.runtimes import open_session, reference
from onnxproof.runtimes.evaluator import operators, promotion

torch = pytest.importorskip("torch")
F = torch.nn.functional
Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 4, 9, 11))
EPSILON = float(np.float32(1e-5))  # the file keeps it in float32


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape)


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


def model(
    op: str, inputs: Sequence[Array | None], *, opset: int = 22, outputs: int = 1, **attributes: Any
) -> onnx.ModelProto:
    """A graph of one node whose inputs are all graph inputs."""
    names = ["" if a is None else f"x{i}" for i, a in enumerate(inputs)]
    outs = [f"y{i}" for i in range(outputs)]
    ports = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in zip(names, inputs, strict=True)
        if a is not None
    ]
    node = helper.make_node(op, names, outs, name="node", **attributes)
    graph = helper.make_graph([node], "g", ports, [onnx.ValueInfoProto(name=o) for o in outs])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def ask(
    proto: onnx.ModelProto, inputs: Sequence[Array | None], option: str = "float64"
) -> list[Any]:
    return reference.open(proto.SerializeToString(), option).run(
        {f"x{i}": a for i, a in enumerate(inputs) if a is not None}
    )


def sized(mode: str, size: tuple[int, ...], **options: Any) -> Callable[..., Any]:
    return lambda x, *_: F.interpolate(x, size=size, mode=mode, **options)


# Most of these are wrong, float32-only or refused by onnx's own evaluator 1.23; the pools and convolutions guard our faster ones.
OPERATORS: dict[str, tuple[str, list[Array | None], Callable[..., Any], dict[str, Any]]] = {
    "erf": ("Erf", [normal(50) * 3], torch.erf, {}),
    "gelu": ("Gelu", [normal(50) * 3], F.gelu, {}),
    "gelu-tanh": (
        "Gelu",
        [normal(50) * 3],
        lambda x: F.gelu(x, approximate="tanh"),
        {"approximate": "tanh"},
    ),
    "hardswish": ("HardSwish", [normal(50) * 4], F.hardswish, {}),
    "log-softmax-far": ("LogSoftmax", [X * 300], lambda x: F.log_softmax(x, 1), {"axis": 1}),
    "softmax-flattens": (
        "Softmax",
        [normal(2, 3, 4)],
        lambda x: F.softmax(x.reshape(2, 12), -1).reshape(2, 3, 4),
        {"opset": 11, "axis": 1},
    ),
    "hardmax-flattens": (
        "Hardmax",
        [normal(2, 3, 4)],
        lambda x: F.one_hot(x.reshape(2, 12).argmax(-1), 12).reshape(2, 3, 4).double(),
        {"opset": 11},
    ),
    "group-norm": (
        "GroupNormalization",
        [X, normal(4), normal(4)],
        lambda x, w, b: F.group_norm(x, 2, w, b, EPSILON),
        {"num_groups": 2},
    ),
    "layer-norm": (
        "LayerNormalization",
        [normal(2, 5, 8), normal(8), normal(8)],
        lambda x, w, b: F.layer_norm(x, (8,), w, b, EPSILON),
        {},
    ),
    "lrn": (
        "LRN",
        [normal(2, 7, 5, 5)],
        lambda x: F.local_response_norm(x, 5, 2.0**-6, 0.75, 1.0),
        {"size": 5, "alpha": 2.0**-6, "beta": 0.75, "bias": 1.0},
    ),
    "conv-transpose-groups": (
        "ConvTranspose",
        [X, normal(4, 3, 3, 3), normal(6)],
        lambda x, w, b: F.conv_transpose2d(
            x, w, b, stride=2, padding=1, output_padding=1, groups=2
        ),
        {"group": 2, "strides": [2, 2], "pads": [1] * 4, "output_padding": [1, 1]},
    ),
    "conv-transpose-3d": (
        "ConvTranspose",
        [normal(1, 4, 3, 4, 5), normal(4, 2, 3, 3, 3)],
        lambda x, w: F.conv_transpose3d(x, w, stride=2, dilation=2),
        {"strides": [2] * 3, "dilations": [2] * 3},
    ),
    "max-pool-nan": (
        "MaxPool",
        [np.where(X > 2, np.nan, X)],
        lambda x: F.max_pool2d(x, 3, 2, 1),
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4},
    ),
    "max-pool-indices": (
        "MaxPool",
        [normal(1, 1, 9, 11)],
        lambda x: list(F.max_pool2d(x, 3, 2, 1, return_indices=True)),
        {"outputs": 2, "kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4},
    ),
    "average-pool-far-ceil": (
        "AveragePool",
        [normal(1, 2, 7, 9)],
        lambda x: F.avg_pool2d(x, 4, 4, 1, ceil_mode=True),
        {
            "kernel_shape": [4, 4],
            "strides": [4, 4],
            "pads": [1] * 4,
            "ceil_mode": 1,
            "count_include_pad": 1,
        },
    ),
    "resize-cubic": (
        "Resize",
        [X, None, None, ints(2, 4, 5, 20)],
        sized("bicubic", (5, 20)),
        {"mode": "cubic", "cubic_coeff_a": -0.75},
    ),
    "resize-antialias": (
        "Resize",
        [X, None, None, ints(2, 4, 5, 6)],
        sized("bilinear", (5, 6), antialias=True),
        {"mode": "linear", "antialias": 1, "exclude_outside": 1},
    ),
    "resize-seven-tenths": (
        "Resize",
        [normal(1, 1, 10, 10), None, np.array([1, 1, 0.7, 0.7], np.float32)],
        lambda x, s: F.interpolate(x, scale_factor=0.7),
        {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
    ),
    "affine-grid": (
        "AffineGrid",
        [normal(2, 2, 3), ints(2, 3, 5, 6)],
        lambda t, _: F.affine_grid(t, (2, 3, 5, 6), align_corners=False),
        {},
    ),
    "pad-crops": (
        "Pad",
        [normal(1, 2, 5, 6), ints(0, 0, -1, 1, 0, 0, 1, -2)],
        lambda x, _: F.pad(x, (1, -2, -1, 1)),
        {},
    ),
    "conv-groups": (
        "Conv",
        [X, normal(6, 2, 3, 3), normal(6)],
        lambda x, w, b: F.conv2d(x, w, b, 2, 1, 2, 2),
        {"group": 2, "strides": [2, 2], "pads": [1] * 4, "dilations": [2, 2]},
    ),
    "conv-same": (
        "Conv",
        [normal(2, 4, 9, 8), normal(6, 4, 4, 4)],
        lambda x, w: F.conv2d(F.pad(x, (1, 2, 1, 2)), w),
        {"auto_pad": "SAME_UPPER"},
    ),
    "conv-empty": ("Conv", [normal(0, 4, 9, 8), normal(6, 4, 3, 3)], F.conv2d, {}),
}
for _mode, _theirs in (("linear", "bilinear"), ("nearest", "nearest"), ("cubic", "bicubic")):
    for _padding in ("zeros", "border", "reflection"):
        for _align in (0, 1):
            OPERATORS[f"grid-{_mode}-{_padding}-{_align}"] = (
                "GridSample",
                [X, np.clip(normal(2, 6, 7, 2) * 0.7, -1.4, 1.4)],
                lambda x, g, m=_theirs, p=_padding, a=_align: F.grid_sample(x, g, m, p, bool(a)),
                {"mode": _mode, "padding_mode": _padding, "align_corners": _align},
            )


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_equals_torch_in_float64(name: str) -> None:
    op, inputs, theirs, options = OPERATORS[name]
    wanted = theirs(*[torch.from_numpy(a) for a in inputs if a is not None])
    found = ask(model(op, inputs, **options), inputs)
    for got, want in zip(found, wanted if isinstance(wanted, list) else [wanted], strict=True):
        assert (got.shape, got.dtype) == (tuple(want.shape), want.numpy().dtype)
        np.testing.assert_allclose(
            got,
            want.numpy(),
            rtol=1e-12,
            atol=1e-13 * max(1.0, float(np.abs(np.nan_to_num(want.numpy())).max(initial=0.0))),
        )


@pytest.mark.parametrize(
    "name",
    [
        "erf",
        "lrn",
        "softmax-flattens",
        "conv-transpose-groups",
        "grid-cubic-border-0",
        "resize-seven-tenths",
        "pad-crops",
    ],
)
def test_without_our_operator_the_same_case_fails(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operators, "find", lambda op_type, opset: None)
    with pytest.raises((AssertionError, Refused)):
        test_an_operator_equals_torch_in_float64(name)


def test_erf_is_good_to_the_last_bits() -> None:
    x = np.linspace(-6, 6, 1001)
    assert np.abs(ask(model("Erf", [x]), [x])[0] - np.array([math.erf(v) for v in x])).max() < 1e-15


def quantized() -> onnx.ModelProto:
    """A QuantizeLinear, DequantizeLinear pair of opset 13, which onnx's evaluator lacks, with one scale a channel."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], axis=1),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], axis=1),
    ]
    weights = [
        numpy_helper.from_array(np.array([0.5, 0.25], np.float32), "s"),
        numpy_helper.from_array(np.array([3, -1], np.int8), "z"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 2])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def test_quantization_still_quantizes_in_float64() -> None:
    x = np.array([[0.6, 0.6], [1e9, -1e9]], np.float32)
    found = reference.open(quantized().SerializeToString(), "float64").run({"x": x})[0]
    assert found is not None and found.dtype == np.float64
    # 1e9 / 0.25 is beyond int32: it saturates, and does not wrap around as in onnx's evaluator.
    np.testing.assert_array_equal(found, [[0.5, 0.5], [(127 - 3) * 0.5, (-128 + 1) * 0.25]])


def branching() -> onnx.ModelProto:
    """Every place where float32 hides: weights, constants, casts, an If's branches, a local function with a dtype parameter."""

    def branch(name: str, value: float) -> onnx.GraphProto:
        nodes = [
            helper.make_node("Constant", [], [name + "c"], value_float=value),
            helper.make_node("Mul", ["f", name + "c"], [name]),
        ]
        return helper.make_graph(
            nodes, name, [], [helper.make_tensor_value_info(name, TensorProto.FLOAT, None)]
        )

    cast = helper.make_node("Cast", ["a"], ["b"])
    cast.attribute.append(
        onnx.AttributeProto(name="to", ref_attr_name="kind", type=onnx.AttributeProto.INT)
    )
    local = helper.make_function(
        "local", "As", ["a"], ["b"], [cast], [helper.make_opsetid("", 18)], ["kind"]
    )
    nodes = [
        helper.make_node("Cast", ["x"], ["half"], to=TensorProto.FLOAT16),
        helper.make_node("Cast", ["half"], ["back"], to=TensorProto.FLOAT),
        helper.make_node("As", ["back"], ["f"], domain="local", kind=TensorProto.FLOAT),
        helper.make_node("ReduceSum", ["f"], ["total"], keepdims=0),
        helper.make_node("Greater", ["total", "w"], ["yes"]),
        helper.make_node(
            "If",
            ["yes"],
            ["picked"],
            then_branch=branch("then", 3.0),
            else_branch=branch("else", 5.0),
        ),
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("ConstantOfShape", ["shape"], ["zeros"]),
        helper.make_node("Add", ["picked", "zeros"], ["z"]),
        helper.make_node("Add", ["z", "w"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])],
        [numpy_helper.from_array(np.array(0.1, np.float32), "w")],
    )
    return helper.make_model(
        graph,
        functions=[local],
        opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("local", 1)],
        ir_version=9,
    )


@pytest.mark.parametrize("sign", [1, -1])
def test_nothing_in_the_graph_stays_narrow(sign: int) -> None:
    x = sign * np.array([0.1, 0.3, 1 / 3], np.float32)
    wanted = x.astype(np.float64) * (3.0 if sign > 0 else 5.0) + float(np.float32(0.1))
    for found in (
        reference.open(branching().SerializeToString(), "float64").run({"x": x})[0],
        reference.open(promotion.promote(branching()).SerializeToString()).run(
            {"x": x.astype(np.float64)}
        )[0],
    ):
        np.testing.assert_array_equal(found, wanted)
    narrow = reference.open(branching().SerializeToString()).run({"x": x})[0]
    assert (
        narrow is not None and narrow.dtype == np.float32 and np.abs(narrow - wanted).max() > 1e-6
    )  # the half precision cast is obeyed there


def test_promote_leaves_the_model_alone_and_makes_a_valid_one() -> None:
    original = branching()
    promoted = promotion.promote(original)
    assert original == branching()
    onnx.checker.check_model(promoted)
    assert {t.data_type for t in promoted.graph.initializer} == {TensorProto.DOUBLE}
    assert promoted.graph.output[0].type.tensor_type.elem_type == TensorProto.DOUBLE


def test_inner_values_can_be_fetched() -> None:
    session = reference.open(
        branching().SerializeToString(), "float64", outputs=["total", "y", "shape"]
    )
    total, y, shape = session.run({"x": np.ones(4, np.float32)})
    assert total is not None and y is not None and shape is not None
    assert (float(total), y.shape, shape.tolist()) == (4.0, (4,), [4])
    with pytest.raises(UsageError, match="no value `nowhere`"):
        reference.open(branching().SerializeToString(), outputs=["nowhere"])


def test_what_cannot_be_evaluated_names_the_operator() -> None:
    a, b = normal(2, 3), normal(4, 5)
    with pytest.raises(Refused, match="can't evaluate `MatMul` \\(node `node`\\)"):
        ask(model("MatMul", [a, b]), [a, b])


def test_a_missing_operator_is_named_when_the_model_is_opened() -> None:
    node = helper.make_node("FusedThing", ["x"], ["y"], domain="com.microsoft")
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
        [onnx.ValueInfoProto(name="y")],
    )
    proto = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)],
        ir_version=9,
    )
    with pytest.raises(ModelError, match=r"lacks the operator `com\.microsoft::FusedThing`"):
        reference.open(proto.SerializeToString())


def test_a_precision_it_does_not_have_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="reference:float128"):
        reference.open(branching().SerializeToString(), "float128")


def test_a_run_stops_at_its_time_limit() -> None:
    session = reference.open(branching().SerializeToString(), "float64")
    session.limit_s = 1e-9
    with pytest.raises(Refused, match="ran out of time"):
        session.run({"x": np.ones(4, np.float32)})


def test_external_weights_are_found_beside_the_file(tmp_path: Path) -> None:
    weight = np.arange(600, dtype=np.float32)
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [600])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [600])],
        [numpy_helper.from_array(weight, "w")],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
        tmp_path / "m.onnx",
        save_as_external_data=True,
        location="m.data",
        size_threshold=0,
    )
    assert (
        onnx.load(tmp_path / "m.onnx", load_external_data=False).graph.initializer[0].data_location
        == TensorProto.EXTERNAL
    )
    for option in ("", "float64"):
        np.testing.assert_array_equal(
            reference.open(tmp_path / "m.onnx", option).run({"x": np.ones(600, np.float32)})[0],
            weight,
        )


@pytest.mark.filterwarnings("ignore")  # the standard's cases divide by zero on purpose
@pytest.mark.parametrize(
    "family",
    [
        "conv",
        "averagepool",
        "maxpool",
        "lppool",
        "resize",
        "gridsample",
        "affine_grid",
        "quantizelinear",
        "norm",
        "softmax",
        "pad",
        "if",
        "loop",
        "scan9",
        "lstm",
        "gru",
        "attention",
    ],
)
def test_the_standards_own_cases_hold_in_both_precisions(family: str) -> None:
    from onnx.backend.test.case.node import collect_testcases

    # The expected output divides by a fractional length there; the text, ONNX Runtime and PyTorch divide by the whole one.
    apart = {
        f"test_resize_downsample_scales_{kind}_align_corners" for kind in ("linear", "cubic")
    } | {"test_dynamicquantizelinear", "test_scan_sum"}
    cases = [
        c
        for c in collect_testcases(None)
        if c.name.startswith("test_" + family)
        and c.name not in apart
        and "expanded" not in c.name
        and "float8" not in c.name
    ]
    cases = cases or [
        c
        for c in collect_testcases(None)
        if family in c.name and "expanded" not in c.name and "training" not in c.name
    ]
    assert cases
    for case in cases:
        (inputs, outputs), *_ = case.data_sets
        if not all(isinstance(v, onnx.TensorProto | np.ndarray) for v in (*inputs, *outputs)):
            continue
        feed = {
            port.name: _array(v) for port, v in zip(case.model.graph.input, inputs, strict=False)
        }
        for option in ("", "float64"):
            for got, want in zip(
                reference.open(case.model.SerializeToString(), option).run(feed),
                map(_array, outputs),
                strict=True,
            ):
                assert np.shape(got) == want.shape, case.name
                if want.dtype.kind in "fiub":
                    loose = want.dtype == np.float16
                    np.testing.assert_allclose(
                        np.asarray(got, np.float64),
                        want.astype(np.float64),
                        rtol=1e-3,
                        atol=2e-2 if loose else 1e-4,
                        err_msg=case.name,
                    )


def _array(value: Any) -> Array:
    return (
        numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)
    )


def test_a_conv_net_is_evaluated_no_slower_than_by_onnx_itself() -> None:
    import time

    x, w = normal(1, 64, 56, 56), normal(64, 1, 3, 3)
    proto = model("Conv", [x, w], group=64, pads=[1] * 4)
    ours, theirs = reference.open(proto.SerializeToString()), ReferenceEvaluator(proto)
    seconds = []
    for run in (lambda: ours.run({"x0": x, "x1": w}), lambda: theirs.run(None, {"x0": x, "x1": w})):
        times = []
        for _ in range(3):
            start = time.process_time()  # not the clock: the machine may do much else
            run()
            times.append(time.process_time() - start)
        seconds.append(min(times))
    assert seconds[0] < seconds[1] * 1.5, seconds


def test_the_core_imports_without_torch() -> None:
    core = "onnxproof.runtimes.reference, onnxproof.testing, onnxproof.reference.graph, onnxproof.runtimes.ort"
    blocked = f"import sys; sys.modules['torch'] = None; import {core}"
    subprocess.run(
        [sys.executable, "-c", blocked],
        check=True,
        env={"PYTHONPATH": str(Path(reference.__file__).parents[2])},
    )


def _scanning(path: Path, axis: int, out: int, back: int, turned: int) -> Path:
    body = parser.parse_graph(
        "body (float[2] old, float[2] given) => (float[2] new, float[2] seen) { new = Add (old, given) seen = Mul (new, new) }"
    )
    node = helper.make_node(
        "Scan",
        ["start", "x"],
        ["end", "all"],
        body=body,
        num_scan_inputs=1,
        scan_input_axes=[axis],
        scan_input_directions=[back],
        scan_output_axes=[out],
        scan_output_directions=[turned],
    )
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (
            ("start", [2]),
            ("x", ["time", 2] if axis == 0 else [2, "time"]),
            ("end", [2]),
            ("all", [None, None]),
        )
    ]
    onnx.save(
        helper.make_model(
            helper.make_graph([node], "scanning", ports[:2], ports[2:]),
            opset_imports=[helper.make_opsetid("", 21)],
            ir_version=10,
        ),
        path,
    )
    return path


@pytest.mark.parametrize(
    ("axis", "out", "back", "turned"),
    [(0, 0, 0, 0), (1, 1, 0, 0), (-1, -1, 1, 0), (0, 1, 1, 1), (1, 0, 0, 1)],
)
def test_a_scan_along_any_axis_in_both_directions(
    tmp_path: Path, axis: int, out: int, back: int, turned: int
) -> None:
    path = _scanning(tmp_path / "scan.onnx", axis, out, back, turned)
    x = np.arange(6, dtype=np.float32).reshape((3, 2) if axis == 0 else (2, 3))
    given = {"start": np.array([1, -1], np.float32), "x": x}
    for ours, theirs in zip(
        open_session("reference", path).run(given),
        open_session("ort", path).run(given),
        strict=True,
    ):
        assert np.array_equal(ours, theirs)  # type: ignore[arg-type]


def test_onnxruntime_is_not_asked_for_a_scan_over_nothing(tmp_path: Path) -> None:
    """It would end this process."""
    path = _scanning(tmp_path / "scan.onnx", 0, 0, 0, 0)
    with pytest.raises(Refused, match="divides by zero in a Scan"):
        open_session("ort", path).run(
            {"start": np.zeros(2, np.float32), "x": np.zeros((0, 2), np.float32)}
        )
