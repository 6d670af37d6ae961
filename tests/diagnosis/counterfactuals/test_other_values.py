"""A node that reads another value than it should, and one that is another operator of its family."""

from pathlib import Path

import onnx
import pytest
import torch

import onnxproof
from onnxproof.results.proof import Proof


class Blocks(torch.nn.Module):
    """Two residual blocks with norms, then a pool: values of one shape stand beside each other."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.first = torch.nn.Linear(12, 12)
        self.second = torch.nn.Linear(12, 12)
        self.norm = torch.nn.LayerNorm(12)
        self.pool = torch.nn.MaxPool1d(3, 2, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        one = x + torch.tanh(self.first(x))
        two = one + torch.tanh(self.second(one))
        return self.pool(self.norm(two))


def proof_of(model: onnx.ModelProto, path: Path) -> Proof:
    onnx.save(model, path)
    return onnxproof.verify(
        Blocks().eval(), path, (torch.randn(2, 5, 12),), dynamic_shapes=({0: "batch"},), budget_s=30
    )


@pytest.fixture
def model() -> onnx.ModelProto:
    example = (torch.randn(2, 5, 12),)
    program = torch.onnx.export(
        Blocks().eval(), example, dynamic_shapes=({0: "batch"},), dynamo=True, verbose=False
    )
    assert program is not None
    return program.model_proto


def node_of(model: onnx.ModelProto, op_type: str) -> onnx.NodeProto:
    return next(node for node in model.graph.node if node.op_type == op_type)


def test_a_norm_that_reads_the_value_before_the_sum(model: onnx.ModelProto, tmp_path: Path) -> None:
    norm = node_of(model, "LayerNormalization")
    total = next(node for node in model.graph.node if norm.input[0] in node.output)
    right = norm.input[0]
    norm.input[0] = total.input[0]
    proof = proof_of(model, tmp_path / "wrong.onnx")
    first = proof.causes[0]
    assert (first.code, first.proven) == ("missing-op", True)
    assert f"with `{right}` in its place the answers are right" in first.evidence
    assert proof.location is not None and proof.location.nodes[0] == norm.name
    assert first.fix is not None and first.fix.verdict is not None


def test_a_pool_that_takes_the_mean(model: onnx.ModelProto, tmp_path: Path) -> None:
    pool = node_of(model, "MaxPool")
    kept = [a for a in pool.attribute if a.name in ("kernel_shape", "strides", "pads")]
    pool.op_type = "AveragePool"
    del pool.attribute[:]
    pool.attribute.extend([*kept, onnx.helper.make_attribute("count_include_pad", 1)])
    proof = proof_of(model, tmp_path / "wrong.onnx")
    first = proof.causes[0]
    assert (first.code, first.proven) == ("attribute", True)
    assert f"{pool.name} is AveragePool; with MaxPool the answers are right" in first.evidence


def test_a_sum_that_only_one_node_reads_is_one_operation_too_many(
    model: onnx.ModelProto, tmp_path: Path
) -> None:
    norm = node_of(model, "LayerNormalization")
    right = norm.input[0]
    place = list(model.graph.node).index(norm)
    first = next(node for node in model.graph.node if node.op_type == "Tanh")
    extra = onnx.helper.make_node("Sub", [right, first.output[0]], ["extra"], name="extra")
    norm.input[0] = "extra"
    model.graph.node.insert(place, extra)
    proof = proof_of(model, tmp_path / "wrong.onnx")
    cause = proof.causes[0]
    assert (cause.code, cause.proven) == ("attribute", True)
    assert cause.evidence.startswith("without extra (Sub) the answers are right")
