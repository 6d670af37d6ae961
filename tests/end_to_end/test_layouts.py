"""Faults of order: the right numbers in another place, weights of another layer, a mask too late. The node and the proven cause, from the bench's own corpus."""

import importlib
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from torch import Tensor, nn

import onnxproof
from onnxproof.results import Verdict

FAULTS = {
    "p_encoder_heads_merged_untransposed": "axis-order",
    "p_vit_patches_column_major": "axis-order",
    "p_lm_shared_heads_tiled": "axis-order",
    "p_lm_cache_appended_in_front": "cache",
    "p_lm_rotary_pairs_interleaved": "weight-layout",
    "p_rnn_lstm_gates_unpermuted": "weight-layout",
    "p_unet_skip_convs_swapped": "weights",
    "p_encoder_mask_after_softmax": "masking",
    "p_encoder_mean_over_padding": "masking",
    "p_rnn_lengths_ignored": "masking",
    "p_transformer_gelu_root_rounded": "attribute",
}


@pytest.mark.parametrize(("name", "code"), FAULTS.items())
def test_the_node_and_the_cause_are_named(name: str, code: str, tmp_path: Path) -> None:
    built = importlib.import_module(f"bench.faults.{name}").build(tmp_path)
    proof = onnxproof.verify(
        built.model, built.faulty, built.example_inputs, dynamic_shapes=built.dynamic_shapes
    )
    assert proof.verdict in (Verdict.DRIFT, Verdict.DIVERGED)
    assert proof.location is not None and proof.location.nodes[0] in built.guilty
    assert [(cause.code, cause.proven) for cause in proof.causes[:1]] == [(code, True)], proof.tried


class Noisy(nn.Module):
    """What should be noise-free in eval mode."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.layer(x))


def test_a_file_that_draws_random_numbers_is_not_deterministic(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, path = Noisy().eval(), tmp_path / "noisy.onnx"
    weight, bias = (np.asarray(t.detach().numpy()) for t in (model.layer.weight, model.layer.bias))
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"], "linear", transB=1),
        helper.make_node("RandomNormalLike", ["h"], ["r"], "sample", scale=0.1),
        helper.make_node("Add", ["h", "r"], ["s"], "reparametrise"),
        helper.make_node("Tanh", ["s"], ["y"], "squash"),
    ]
    graph = helper.make_graph(
        nodes,
        "noisy",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 5])],
        [onnx.numpy_helper.from_array(weight, "w"), onnx.numpy_helper.from_array(bias, "b")],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path
    )
    proof = onnxproof.verify(model, path, (torch.randn(3, 6),), only=("example", "ordinary-0"))
    assert proof.verdict is Verdict.DIVERGED
    assert proof.causes[0].code == "nondeterminism" and proof.causes[0].proven
    assert "sample draws random numbers" in proof.causes[0].evidence


def test_what_was_tried_in_vain_is_told(tmp_path: Path) -> None:
    """Weights of nowhere in a layer of its own: no hypothesis explains them, and each says why not."""
    torch.manual_seed(0)
    model, path = nn.Sequential(nn.Linear(6, 5), nn.Tanh()).eval(), tmp_path / "odd.onnx"
    torch.onnx.export(model, (torch.randn(3, 6),), path, dynamo=False)
    loaded = onnx.load(path)
    last = loaded.graph.node[-1]
    name, last.output[0] = last.output[0], "unknown"
    loaded.graph.node.append(helper.make_node("Sin", ["unknown"], ["sine"], "strange"))
    loaded.graph.node.append(helper.make_node("Atan", ["sine"], [name], "stranger"))
    onnx.save(loaded, path)
    proof = onnxproof.verify(model, path, (torch.randn(3, 6),), only=("example", "ordinary-0"))
    assert not any(cause.proven for cause in proof.causes)
    assert len(proof.tried) > 10 and all(": " in words for words in proof.tried)
