"""A file that lost a decision of its reference does not hold the number, the key or the word that it was made on: the reference is asked for it."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

import onnxproof
from onnxproof.exporter.export import quiet
from onnxproof.results import Verdict

DIMS = {0: "batch"}


class MissingValues(nn.Module):
    """-999 stands for a missing value; traced on an example without one, the branch is lost."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        if (x == -999).any():
            x = torch.where(x == -999, torch.zeros(()), x)
        return self.linear(x)


class SpecialCode(nn.Module):
    """One code of many doubles the answer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor, code: Tensor) -> Tensor:
        answer = self.linear(x)
        if (code == 4711).any():
            answer = torch.where((code == 4711)[:, None], answer * 2, answer)
        return answer


@pytest.mark.parametrize(
    ("module", "example"),
    [
        (MissingValues, (torch.ones(2, 6),)),
        (SpecialCode, (torch.ones(2, 4), torch.tensor([100, 20000]))),
    ],
)
def test_a_branch_on_a_number_that_the_file_does_not_hold(
    module: type[nn.Module], example: tuple[Tensor, ...], tmp_path: Path
) -> None:
    torch.manual_seed(0)
    subject = module().eval()
    path = tmp_path / "m.onnx"
    names = ["x", "code"][: len(example)]
    with quiet():
        torch.onnx.export(
            subject,
            example,
            path,
            dynamo=False,
            input_names=names,
            dynamic_axes=dict.fromkeys(names, DIMS),
        )
    dims = tuple(DIMS for _ in example)
    proof = onnxproof.verify(
        subject, path, example, dynamic_shapes=dims, budget_s=20, explain=False
    )
    assert proof.verdict is Verdict.DIVERGED


def encoder(path: Path, element: int, **keys: Any) -> Path:
    node = helper.make_node(
        "LabelEncoder",
        ["x"],
        ["y"],
        domain="ai.onnx.ml",
        values_floats=[1.0, 2.0, 3.0],
        default_float=-1.0,
        **keys,
    )
    return saved(path, [node], element)


def saved(path: Path, nodes: list[Any], element: int, **weights: Any) -> Path:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", element, ["batch"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch"])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()],
    )
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=10), path)
    return path


@pytest.mark.parametrize(
    ("element", "keys", "lost"),
    [
        (
            TensorProto.STRING,
            {"keys_strings": ["cat", "dog", ""]},
            {"keys_strings": ["kat", "dog", ""]},
        ),
        (
            TensorProto.INT64,
            {"keys_int64s": [52, 8123, 7]},
            {"keys_int64s": [52, 8124, 7]},
        ),
    ],
)
def test_a_key_that_only_the_reference_knows(
    element: int, keys: dict[str, Any], lost: dict[str, Any], tmp_path: Path
) -> None:
    good = encoder(tmp_path / "good.onnx", element, **keys)
    bad = encoder(tmp_path / "bad.onnx", element, **lost)
    proof = onnxproof.diff(good, bad, budget_s=10, explain=False)
    assert proof.verdict is Verdict.DIVERGED
    same = onnxproof.diff(good, good, budget_s=10, explain=False)
    assert same.verdict is Verdict.FAITHFUL


def test_a_comparison_that_only_the_reference_makes(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Equal", ["x", "missing"], ["is_missing"]),
        helper.make_node("Where", ["is_missing", "zero", "x"], ["y"]),
    ]
    weights = {"missing": np.float32(-999.0), "zero": np.float32(0)}
    good = saved(tmp_path / "good.onnx", nodes, TensorProto.FLOAT, **weights)
    bad = saved(
        tmp_path / "bad.onnx", [helper.make_node("Identity", ["x"], ["y"])], TensorProto.FLOAT
    )
    proof = onnxproof.diff(good, bad, budget_s=10, explain=False)
    assert proof.verdict is Verdict.DIVERGED
