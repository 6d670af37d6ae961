"""Loop, Scan, If and SequenceMap in the evaluator: the same as ONNX Runtime, in both precisions, and never an endless run."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

import onnxproof
from onnxproof.errors import Refused
from onnxproof.results import NoiseKind, Verdict
from onnxproof.runtimes import reference

HEAD = '<ir_version: 10, opset_import: ["" : 21]>\n'
X = {"x": np.array([[0.5, -1.25], [3.0, 2.0]], np.float32)}
BODIES = {
    "rank 0": "(int64 i, bool c, float[2,2] old) => (bool go, float[2,2] new, float seen) { go = Identity(c) f = Constant<value = float {1.5}>() new = Mul(old, f) seen = ReduceMax<keepdims = 0>(new) }",
    "rank 1": "(int64 i, bool c, float[2,2] old) => (bool go, float[2,2] new, float[2] seen) { go = Identity(c) new = Add(old, x) a = Constant<value = int64[1] {0}>() seen = ReduceSum<keepdims = 0>(new, a) }",
    "rank 2": "(int64 i, bool c, float[2,2] old) => (bool go, float[2,2] new, float[2,2] seen) { go = Identity(c) new = Add(old, old) seen = Neg(new) }",
    "rank 3": "(int64 i, bool c, float[2,2] old) => (bool go, float[2,2] new, float[2,2,1] seen) { go = Identity(c) new = Add(old, old) a = Constant<value = int64[1] {2}>() seen = Unsqueeze(new, a) }",
    "counts": "(int64[1] i, bool c, float[2,2] old) => (bool go, float[2,2] new, float[1] seen) { go = Identity(c) seen = Cast<to = 1>(i) new = Add(old, seen) }",
    "stops": "(int64 i, bool c, float[2,2] old) => (bool go, float[2,2] new, float seen) { new = Add(old, old) seen = ReduceMax<keepdims = 0>(new) f = Constant<value = float {50.0}>() go = Less(seen, f) }",
}


def _loop(name: str, limit: str, condition: str) -> onnx.ModelProto:
    """A Loop with this body; `limit` and `condition` are outer names, or nothing."""
    body = parser.parse_graph("body " + BODIES[name])
    nodes = [
        onnx.helper.make_node(
            "Constant",
            [],
            ["times"],
            value=onnx.numpy_helper.from_array(np.array(5 if limit != "none" else 0, np.int64)),
        ),
        onnx.helper.make_node(
            "Constant", [], ["yes"], value=onnx.numpy_helper.from_array(np.array(True))
        ),
        onnx.helper.make_node(
            "Constant", [], ["no"], value=onnx.numpy_helper.from_array(np.array(False))
        ),
        onnx.helper.make_node(
            "Loop", ["times" if limit else "", condition, "x"], ["end", "all"], body=body
        ),
    ]
    outputs = [
        onnx.helper.make_tensor_value_info("end", 1, [2, 2]),
        onnx.ValueInfoProto(name="all"),
    ]
    outputs[1].type.tensor_type.elem_type = 1
    graph = onnx.helper.make_graph(
        nodes, "loops", [onnx.helper.make_tensor_value_info("x", 1, [2, 2])], outputs
    )
    return onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10
    )


def _runtime(model: onnx.ModelProto, inputs: Mapping[str, Any]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    ).run(None, dict(inputs))


def _assert_same(model: onnx.ModelProto, inputs: Mapping[str, Any]) -> list[Any]:
    wanted = _runtime(model, inputs)
    for option in ("", "float64"):
        found = reference.open(model.SerializeToString(), option).run(inputs)
        for f, w in zip(found, wanted, strict=True):
            for one, other in zip(f, w, strict=True) if isinstance(w, list) else [(f, w)]:
                np.testing.assert_allclose(one, other, rtol=1e-6)
                assert np.shape(one) == np.shape(other)
    return wanted


@pytest.mark.parametrize("name", [name for name in BODIES if name != "stops"])
@pytest.mark.parametrize("condition", ["", "yes", "no"])
@pytest.mark.parametrize("limit", ["five", "none"])
def test_a_loop_runs_as_often_as_in_onnxruntime(name: str, condition: str, limit: str) -> None:
    wanted = _assert_same(_loop(name, limit, condition), X)
    assert len(wanted[1]) == (0 if condition == "no" or limit == "none" else 5)


@pytest.mark.parametrize("limit", ["five", ""])
def test_a_loop_ends_when_its_body_says_so(limit: str) -> None:
    wanted = _assert_same(_loop("stops", limit, "yes"), X)
    assert len(wanted[1]) == 5


def test_a_loop_without_a_condition_whose_body_stops_is_refused() -> None:
    """The standard ignores what the body says there, ONNX Runtime does not: there is no truth that both share."""
    model = _loop("stops", "five", "")
    model.graph.node[0].attribute[0].t.CopyFrom(onnx.numpy_helper.from_array(np.array(9, np.int64)))
    assert len(_runtime(model, X)[1]) == 5
    with pytest.raises(Refused, match="can't evaluate `Loop`") as caught:
        reference.open(model.SerializeToString(), "float64").run(X)
    assert "the standard goes on there, ONNX Runtime stops" in caught.value.render()


NESTED = (
    HEAD
    + """nested (float[2,2] x, int64 n) => (float[2,2] y, float[outer, inner] all) {
    yes = Constant<value = bool {1}>()
    y, all = Loop(n, yes, x) <body = outer (int64 i, bool c, float[2,2] a) => (bool go, float[2,2] b, float[inner] rows) {
        go = Identity(c)
        b, rows = Loop(n, , a) <body = inner (int64 j, bool d, float[2,2] p) => (bool on, float[2,2] q, float top) {
            on = Identity(d) odd = Cast<to = 9>(j)
            q = If(odd) <then_branch = t () => (float[2,2] r) { r = Mul(p, x) }, else_branch = e () => (float[2,2] s) { s = Sub(p, x) }>
            top = ReduceMax<keepdims = 0>(q) }> }>
}"""
)
SEQUENCE = (
    HEAD
    + """grows (float[2,2] x, int64 n) => (seq(float) y) {
    yes = Constant<value = bool {1}>()
    none = SequenceEmpty()
    y = Loop(n, yes, none) <body = grow (int64 i, bool c, seq(float) a) => (bool go, seq(float) b) {
        go = Identity(c) f = Cast<to = 1>(i) v = Mul(x, f) b = SequenceInsert(a, v) }>
}"""
)
MAPPED = (
    HEAD
    + """mapped (float[2,2] x, int64 n) => (seq(float) y, seq(float) z) {
    two = Add(x, x) k = Cast<to = 1>(n)
    one = SequenceConstruct(x, two, x) other = SequenceConstruct(two, x, x) third = SequenceConstruct(x, x, two)
    y, z = SequenceMap(one, other, k, third) <body = b (float a, float b, float c, float d) => (float s, float t) { p = Mul(a, b) q = Add(p, c) s = Sub(q, d) t = Add(a, x) }>
}"""
)


@pytest.mark.parametrize("text", [NESTED, SEQUENCE, MAPPED], ids=["nested", "sequence", "mapped"])
@pytest.mark.parametrize("times", [1, 3])
def test_loops_in_loops_sequences_that_grow_and_maps_over_several(text: str, times: int) -> None:
    _assert_same(parser.parse_model(text), X | {"n": np.array(times, np.int64)})


def test_a_scan_over_nothing_is_empty_in_the_rank_of_its_body() -> None:
    text = (
        HEAD
        + """s (float[2] x, float[t, 2] steps) => (float[2] y, float[a, b, c] all) {
        y, all = Scan<num_scan_inputs = 1, scan_output_axes = [1], body = b (float[2] o, float[2] v) => (float[2] n, float[2,3] r) {
            n = Add(o, v) s = Constant<value = int64[2] {2, 3}>() u = Constant<value = int64[1] {1}>() w = Unsqueeze(n, u) r = Expand(w, s) }>(x, steps) }"""
    )
    given = {"x": np.ones(2, np.float32), "steps": np.zeros((0, 2), np.float32)}
    end, collected = reference.open(parser.parse_model(text).SerializeToString(), "float64").run(
        given
    )
    assert collected is not None
    assert end is not None
    assert collected.shape == (2, 0, 3)
    assert collected.dtype == np.float64
    assert end.tolist() == [1.0, 1.0]


ENDLESS = {
    "a loop": "y = Loop(, , x) <body = b (int64 i, bool c, float[2,2] a) => (bool go, float[2,2] d) { go = Identity(c) d = Add(a, x) }>",
    "a loop over nothing": "y = Loop(, yes, x) <body = b (int64 i, bool c, float[2,2] a) => (bool c, float[2,2] a) { }>",
    "a loop in a branch": "y = If(yes) <then_branch = t () => (float[2,2] z) { z = Loop(, , x) <body = b (int64 i, bool c, float[2,2] a) => (bool go, float[2,2] d) "
    "{ go = Identity(c) d = Add(a, x) }> }, else_branch = e () => (float[2,2] z) { z = Identity(x) }>",
}


@pytest.mark.parametrize("kind", ENDLESS)
def test_an_endless_loop_ends_at_the_limit(kind: str) -> None:
    model = parser.parse_model(
        HEAD
        + f"endless (float[2,2] x) => (float[2,2] y) {{ yes = Constant<value = bool {{1}}>() {ENDLESS[kind]} }}"
    )
    session = reference.open(model.SerializeToString(), "float64")
    session.limit_s = 0.3
    start = time.monotonic()
    with pytest.raises(Refused, match="ran out of time"):
        session.run(X)
    assert time.monotonic() - start < 20


def test_functions_that_call_the_one_before_twice_end_at_the_limit() -> None:
    """Thirty of them are a billion calls; the evaluators are found once each, not once for each call."""
    functions = "".join(
        f'<domain: "f", opset_import: ["": 21, "f": 1]> f{k} (a) => (c) {{ b = {call}(a) c = {call}(b) }}\n'
        for k, call in enumerate(["Identity", *(f"f.f{k}" for k in range(29))])
    )
    model = parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21, "f": 1]>\nmain (float[2,2] x) => (float[2,2] y) { y = f.f29(x) }\n'
        + functions
    )
    session = reference.open(model.SerializeToString(), "float64")
    session.limit_s = 0.3
    with pytest.raises(Refused, match="ran out of time"):
        session.run(X)


def _growing(path: Path, factor: float) -> Path:
    text = (
        HEAD
        + f"""g (float[batch, 4] x) => (float[batch, 4] y, float[5] tops) {{
        n = Constant<value = int64 {{5}}>()
        y, tops = Loop(n, , x) <body = b (int64 i, bool c, float[batch, 4] a) => (bool go, float[batch, 4] d, float top) {{
            go = Identity(c) f = Constant<value = float {{{factor}}}>() d = Mul(a, f) top = ReduceMax<keepdims = 0>(d) }}> }}"""
    )
    onnx.save(parser.parse_model(text), path)
    return path


@pytest.mark.parametrize(
    ("factor", "verdict"),
    [(1.5, Verdict.FAITHFUL), (3.0, Verdict.DIVERGED), (1.501, Verdict.DIVERGED)],
)
def test_two_files_with_other_factors_in_a_loop_are_told_apart(
    tmp_path: Path, factor: float, verdict: Verdict
) -> None:
    one, other = _growing(tmp_path / "a.onnx", 1.5), _growing(tmp_path / "b.onnx", factor)
    proof = onnxproof.diff(one, other, budget_s=15, explain=False)
    assert proof.verdict is verdict, proof.sentence()
    assert {gap.noise_kind.value for gap in proof.gaps if gap.compared and gap.output == "y"} == {
        NoiseKind.GRAPH.value
    }
