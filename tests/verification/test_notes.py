"""What a note says is true: a finite fault is not blamed on NaN, and what is shown is what differs most."""

from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

import onnxproof
from onnxproof.results import Domain, Verdict
from onnxproof.verification.notes import show

CASES = (
    "example",
    "nonfinite-input-one NaN",
    "nonfinite-input-a NaN row",
    "nonfinite-input-one inf",
)


def linear_file(path: Path, weight: np.ndarray, *, swallow: bool = False) -> Path:
    """`x @ weight`; with `swallow`, NaN becomes 0 on the way in."""
    nodes = (
        [
            helper.make_node("IsNaN", ["input"], ["lost"], name="lost"),
            helper.make_node("Where", ["lost", "zero", "input"], ["x"], name="swallow"),
        ]
        if swallow
        else []
    )
    nodes += [
        helper.make_node("MatMul", ["x" if swallow else "input", "weight"], ["y"], name="product")
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])],
        [numpy_helper.from_array(weight, "weight"), numpy_helper.from_array(np.float32(0), "zero")],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path
    )
    return path


def proof_of(path: Path, module: nn.Module) -> onnxproof.Proof:
    x = torch.randn(3, 6, generator=torch.Generator().manual_seed(2))
    return onnxproof.verify(
        module, path, (x,), dynamic_shapes=({0: "batch"},), only=CASES, explain=False, budget_s=30
    )


def a_module() -> nn.Linear:
    torch.manual_seed(1)
    torch.set_num_threads(1)
    return nn.Linear(6, 4, bias=False).eval()


def test_a_wrong_weight_is_not_blamed_on_nan(tmp_path: Path) -> None:
    module = a_module()
    proof = proof_of(
        linear_file(tmp_path / "m.onnx", module.weight.detach().numpy().T * np.float32(1.01)),
        module,
    )
    assert proof.verdict is Verdict.DIVERGED and not proof.notes
    assert {gap.case for gap in proof.gaps} == set(CASES), "every case was run"


def test_nan_that_is_swallowed_is(tmp_path: Path) -> None:
    module = a_module()
    proof = proof_of(
        linear_file(
            tmp_path / "m.onnx",
            np.ascontiguousarray(module.weight.detach().numpy().T),
            swallow=True,
        ),
        module,
    )
    assert proof.verdict is Verdict.FAITHFUL
    assert {note.domain for note in proof.notes} == {Domain.NAN} and {
        note.what for note in proof.notes
    } == {"NaN is handled otherwise"}


def test_the_elements_that_differ_most_are_shown_in_their_order() -> None:
    one = np.arange(20, dtype=np.float32)
    other = one + np.float32(1e-3)
    other[[15, 3]] += [5, 7]
    other[9] = np.nan
    shown = show(one, other)
    assert all(f"[{place}]=" in shown for place in (3, 9, 15))
    assert (
        shown.index("[3]") < shown.index("[9]") < shown.index("[15]")
        and len(shown.split(", ")) == 6
    )
    assert show(one, one) == "the same" and show(one, one[:3]) == "float32[20]"
