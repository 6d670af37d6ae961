"""Faults whose wrong explanation fits the witness: it is not proven, and the right one is where it can be named."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto
from support.module_workbenches import file_of, node
from torch.nn import functional

from onnxproof import api
from onnxproof.results import Verdict
from onnxproof.results.proof import Proof

BUDGET_S = 60.0


def float32(*numbers: float) -> Any:
    return np.array(numbers, np.float32).reshape(-1 if len(numbers) > 1 else ())


def verified(
    folder: Path,
    module: torch.nn.Module,
    file: onnx.ModelProto,
    example: Mapping[str, torch.Tensor],
    dims: Mapping[str, Mapping[int, str]],
    **options: Any,
) -> Proof:
    """The proof of a wrong file."""
    path = folder / "wrong.onnx"
    onnx.save(file, path)
    proof = api.verify(
        module.eval(),
        path,
        dict(example),
        dynamic_shapes=dict(dims),
        budget_s=BUDGET_S,
        **options,
    )
    assert proof.verdict is Verdict.DIVERGED
    return proof


def proven(proof: Proof) -> set[str]:
    """The codes of the causes that are called proven."""
    return {cause.code for cause in proof.causes if cause.proven}


def arrays(example: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    return {name: tensor.numpy() for name, tensor in example.items()}


class BothWays(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.lstm = torch.nn.LSTM(3, 4, bidirectional=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lstm(x)[0]


def onnx_gates(weight: torch.Tensor) -> Any:
    """Gates in the order of the standard: input, output, forget, cell."""
    into, forget, cell, out = weight.detach().chunk(4)
    return torch.cat([into, out, forget, cell]).numpy()


def lstm_constants(lstm: torch.nn.LSTM) -> dict[str, Any]:
    both = [
        [getattr(lstm, f"{name}_l0{way}") for way in ("", "_reverse")]
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    ]
    inputs, hidden, input_bias, hidden_bias = (
        np.stack([onnx_gates(weight) for weight in pair]) for pair in both
    )
    return {"w": inputs, "r": hidden, "b": np.concatenate([input_bias, hidden_bias], 1)}


def test_directions_that_are_interleaved_in_a_larger_batch_are_no_baked_size(
    tmp_path: Path,
) -> None:
    module = BothWays()
    example = {"x": torch.randn(5, 1, 3, generator=torch.manual_seed(1))}
    nodes = [
        node("LSTM", "x", "w", "r", "b", output="ways", direction="bidirectional", hidden_size=4),
        node(
            "Reshape", "ways", "shape"
        ),  # right for one row alone: the directions come before the batch
    ]
    constants = {**lstm_constants(module.lstm), "shape": np.array([0, -1, 8])}
    file = file_of(nodes, arrays(example), constants)
    proof = verified(tmp_path, module, file, example, {"x": {0: "steps", 1: "batch"}})
    assert "baked-dimension" not in proven(proof)
    assert proven(proof) == {"axis-order"}


class MaskedMean(torch.nn.Module):
    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        kept = mask.to(x.dtype).unsqueeze(-1)
        return (x * kept).sum(1) / kept.sum(1).clamp(min=1e-9)


def test_a_divisions_guard_that_was_dropped_is_no_matter_of_the_mask(tmp_path: Path) -> None:
    example = {
        "x": torch.randn(2, 4, 3, generator=torch.manual_seed(1)),
        "mask": torch.tensor([[True, True, False, True], [True, False, False, False]]),
    }
    nodes = [
        node("Cast", "mask", output="number", to=TensorProto.FLOAT),
        node("Unsqueeze", "number", "last", output="kept"),
        node("Mul", "x", "kept", output="shown"),
        node("ReduceSum", "shown", "axes", output="sum", keepdims=0),
        node("ReduceSum", "kept", "axes", output="count", keepdims=0),
        node("Div", "sum", "count"),
    ]
    constants = {"last": np.array([-1]), "axes": np.array([1])}
    file = file_of(nodes, arrays(example), constants)
    dims = {name: {0: "batch", 1: "length"} for name in ("x", "mask")}
    proof = verified(tmp_path, MaskedMean(), file, example, dims)
    assert "masking" not in proven(proof)
    assert proven(proof) == {"clipping"}
    assert "`clamp` (" in proof.causes[0].evidence


class Signs(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.where(torch.signbit(x), -torch.ones_like(x), torch.cos(x))


def test_the_sign_of_a_negative_zero_is_no_matter_of_a_mask(tmp_path: Path) -> None:
    example = {"x": torch.randn(2, 4, generator=torch.manual_seed(1))}
    nodes = [
        node("Less", "x", "zero", output="negative"),
        node("Cos", "x", output="cosine"),
        node("Where", "negative", "minus", "cosine"),
    ]
    file = file_of(nodes, arrays(example), {"zero": float32(0), "minus": float32(-1)})
    zeros = {"x": torch.tensor([[-0.0, -0.0, -0.0, 0.5]])}
    proof = verified(tmp_path, Signs(), file, example, {"x": {0: "batch"}}, data=[zeros])
    assert "masking" not in proven(proof)
    assert proven(proof) == set()  # no comparison tells the two zeros apart


class Gate(torch.nn.Module):
    """What reaches the limit is scaled."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor([1.5, 0.5, -0.75]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.where(x >= 1.0, x * self.scale, x)


def test_a_comparison_on_the_other_side_is_no_matter_of_weights(tmp_path: Path) -> None:
    module = Gate()
    example = {"x": torch.randn(2, 3, generator=torch.manual_seed(1))}
    nodes = [
        node("Greater", "x", "limit", output="above"),
        node("Mul", "x", "scale", output="scaled"),
        node("Where", "above", "scaled", "x"),
    ]
    constants = {"limit": float32(1), "scale": module.scale.detach().numpy()}
    file = file_of(nodes, arrays(example), constants)
    proof = verified(tmp_path, module, file, example, {"x": {0: "batch"}})
    assert proven(proof) == {"comparison"}
    words = "above is Greater; with GreaterOrEqual the answers are right on"
    assert proof.causes[0].evidence.startswith(words)


class Padded(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Conv1d(2, 3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(functional.pad(x, (2, 2), mode="reflect"))


def test_padding_by_zeros_for_a_reflection_is_no_other_order_of_axes(tmp_path: Path) -> None:
    module = Padded()
    example = {"x": torch.randn(1, 2, 8, generator=torch.manual_seed(1))}
    nodes = [
        node("Pad", "x", "pads", output="padded", mode="constant"),
        node("Conv", "padded", "layer.weight", "layer.bias"),
    ]
    constants = {"pads": np.array([0, 0, 2, 0, 0, 2])}
    constants |= {f"layer.{k}": v.detach().numpy() for k, v in module.layer.named_parameters()}
    file = file_of(nodes, arrays(example), constants)
    proof = verified(tmp_path, module, file, example, {"x": {0: "batch", 2: "length"}})
    assert "axis-order" not in proven(proof)
    assert proven(proof) == {"attribute"}
    assert proof.location is not None
    assert proof.location.nodes[0] == "padded"


class TanhGelu(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = 0.7978845608 * (x + 0.044715 * x * x * x)
        return 0.5 * x * (1 + torch.tanh(inner))


def test_another_constant_in_a_formula_is_no_value_of_the_example(tmp_path: Path) -> None:
    example = {"x": torch.randn(2, 4, generator=torch.manual_seed(1))}
    nodes = [
        node("Mul", "x", "cubic", output="c"),
        node("Mul", "c", "x", output="cx"),
        node("Mul", "cx", "x", output="cxx"),
        node("Add", "x", "cxx", output="sum"),
        node("Mul", "sum", "root", output="inner"),
        node("Tanh", "inner", output="tanh"),
        node("Add", "tanh", "two", output="shifted"),
        node("Mul", "x", "half", output="halved"),
        node("Mul", "halved", "shifted"),
    ]
    constants = {
        "cubic": float32(0.044715),
        "root": float32(0.7978845608),
        "two": float32(2),
        "half": float32(0.5),
    }
    file = file_of(nodes, arrays(example), constants)
    proof = verified(tmp_path, TanhGelu(), file, example, {"x": {0: "batch"}})
    assert "baked-value" not in proven(proof)
    assert proven(proof) == {"attribute"}
    assert proof.location is not None
    assert proof.location.nodes[0] == "shifted"
