"""Quantized models that went wrong, each in one known way: float module, quantized file, data as it is served."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper
from torch import nn

from onnxproof.diagnosis import reverify
from onnxproof.exporter import export
from onnxproof.quantization.calibration.ranges import min_max
from onnxproof.quantization.float_graph import Index, prepare
from onnxproof.quantization.insert_qdq import HEAVY, Plan, choose, insert
from onnxproof.quantization.trials import recompute_statistics
from onnxproof.reference import subject

Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    """For the files that import it: little time for a fix that is tried."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reverify, "MOST_S", 1.5)
        yield


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What is broken, and what it must be called."""

    cause: str
    module: Callable[[], nn.Module]
    shape: tuple[int, ...]
    calibrate: Callable[[Array], Array] = lambda x: x
    """The served data -> what it was calibrated on."""
    serve: Callable[[Array], Array] = lambda x: x
    plan: Plan = field(default_factory=Plan)
    op_types: tuple[str, ...] = (*HEAVY, "Relu")
    fold: bool = True
    rows: int = 32
    wide: bool = False
    """Matrix products give float."""
    spoil: Callable[[onnx.ModelProto], None] | None = None


def served(fault: Fault) -> Array:
    return fault.serve(
        np.random.default_rng(0).standard_normal((fault.rows, *fault.shape)).astype(np.float32)
    ).astype(np.float32)


def made(fault: Fault, folder: Path) -> tuple[nn.Module, Path, Array]:
    """The module, the quantized file, the served data."""
    torch.manual_seed(0)
    module = fault.module().eval()
    x = served(fault)
    source = folder / "float.onnx"
    found = subject.load(module, (torch.from_numpy(x[:2]),), dynamic_shapes=({0: "batch"},))
    if fault.fold:
        export.write(found, source)
        model = prepare(source)
    else:
        torch.onnx.export(
            module,
            (torch.from_numpy(x[:2]),),
            str(source),
            dynamo=False,
            do_constant_folding=False,
            training=torch.onnx.TrainingMode.PRESERVE,
            dynamic_axes={"x": {0: "batch"}},
            input_names=["x"],
            opset_version=17,
        )
        model = onnx.shape_inference.infer_shapes(onnx.load(source))
    name = next(iter(Index(model).inputs))
    stats = recompute_statistics(
        model, [("calibration", {name: fault.calibrate(x).astype(np.float32)})]
    )
    plan = fault.plan.with_(
        nodes=choose(model, fault.op_types)
        if fault.fold
        else tuple(n.name for n in model.graph.node if n.op_type in fault.op_types),
        float_outputs=frozenset(Index(model).outputs)
        | frozenset(
            n.output[0] for n in model.graph.node if fault.wide and n.op_type in ("MatMul", "Gemm")
        ),
    )
    quantized = insert(
        model, {k: min_max(s, 256, plan.symmetric) for k, s in stats.items()}, plan
    ).model
    if fault.spoil is not None:
        fault.spoil(quantized)
    path = folder / "quantized.onnx"
    onnx.save(quantized, path)
    return module, path, x


def mlp(width: int = 32) -> nn.Module:
    return nn.Sequential(
        nn.Linear(16, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 8)
    )


def convnet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1, groups=16),
        nn.ReLU(),
        nn.Conv2d(16, 8, 1),
        nn.Flatten(),
        nn.Linear(8 * 64, 8),
    )


def imbalanced() -> nn.Module:
    """Channels between the first two convolutions differ by up to 2**14, and the float answers are as before."""
    net = convnet()
    factor = 2.0 ** torch.linspace(-7, 7, 16)
    net[0].weight.data *= factor[:, None, None, None]
    net[0].bias.data *= factor
    net[2].weight.data /= factor[:, None, None, None]
    return net


class Normed(nn.Module):
    """A LayerNorm with outlier channels before a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.norm, self.head = nn.Linear(16, 64), nn.LayerNorm(64), nn.Linear(64, 8)
        factor = torch.ones(64)
        factor[::16] = 2000.0
        self.norm.weight.data *= factor
        self.head.weight.data /= factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.inner(x)))


class Skewed(nn.Module):
    """Six layers whose activations all lie above zero."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.exp(nn.functional.layer_norm(layer(x), (32,)) * 1.2)
        return x - x.mean(-1, keepdim=True)


def normed_conv() -> nn.Module:
    """A BatchNorm that makes small channels large: before it they share a scale with large ones."""
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 64, 8),
    )
    factor = 2.0 ** torch.linspace(-6, 6, 16)
    net[0].weight.data *= factor[:, None, None, None]
    net[0].bias.data *= factor
    net[1].running_var.data = factor**2 * 0.3
    return net


def filters() -> nn.Module:
    """Filters of one weight tensor that differ by up to 2**12, undone by the next layer."""
    net = mlp()
    factor = 2.0 ** torch.linspace(-6, 6, 32)
    net[2].weight.data *= factor[:, None]
    net[2].bias.data *= factor
    net[4].weight.data /= factor[None, :]
    return net


def filters_alone() -> nn.Module:
    """The same without a rounding in between: a float multiplication undoes the filters."""

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 8)
            self.factor = nn.Parameter(2.0 ** torch.linspace(-6, 6, 32))
            self.first.weight.data *= self.factor.data[:, None]
            self.first.bias.data *= self.factor.data

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(torch.tanh(self.first(x) / self.factor))

    return Scaled()


def few_bits(model: onnx.ModelProto) -> None:
    """Weights of three bits in an eight-bit tensor."""
    index = Index(model)
    for node in model.graph.node:
        if (
            node.op_type == "DequantizeLinear"
            and node.input[0] in index.weights
            and index.weights[node.input[0]].data_type == onnx.TensorProto.INT8
        ):
            index.store(
                node.input[0],
                (np.rint(index.array(node.input[0]) / 42.0) * 42).clip(-126, 126).astype(np.int8),
            )


def tiny_weights() -> nn.Module:
    """Weights of nearly nothing beside a bias of one: the bias does not fit 32 bits at the product of the scales."""
    net = mlp()
    net[0].weight.data[::2] *= 1e-9
    net[0].bias.data[::2] = torch.linspace(0.5, 2.0, 16)
    return net


def full_bias(model: onnx.ModelProto) -> None:
    """Scales that make the first layer's biases end at the limit of their type, as a quantizer without a guard writes them."""
    index = Index(model)
    for node in model.graph.node:
        if (
            node.op_type == "DequantizeLinear"
            and node.input[0] in index.weights
            and index.weights[node.input[0]].data_type == onnx.TensorProto.INT32
        ):
            scale, integers = (
                index.array(node.input[1]).astype(np.float64),
                index.array(node.input[0]).astype(np.float64),
            )
            narrow = scale * 1e-9
            name = f"{node.input[1]}_tiny"
            model.graph.initializer.append(
                numpy_helper.from_array(np.asarray(narrow, np.float32), name)
            )
            index.store(
                node.input[0],
                np.clip(np.rint(integers * 1e9), -(2**31) + 1, 2**31 - 1).astype(np.int32),
            )
            node.input[1] = name
            return


def spiked(x: Array) -> Array:
    x = x.copy()
    x[7, 3] = 2000.0
    return x


def bounded() -> nn.Module:
    """A tanh behind the first layer: whatever is huge counts as one."""
    return nn.Sequential(
        nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 8)
    )


def loud_row(x: Array) -> Array:
    x = x.copy()
    x[7] *= 1000.0
    return x


class Offset(nn.Module):
    """A product with a large mean that the bias takes away: rounded before the bias, little is left."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 8)
        self.first.weight.data += 4.0
        self.first.bias.data = -self.first.weight.data.sum(1) * 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.tanh(self.first(x) * 0.25))


FAULTS = {
    "served-ten-times-larger": Fault(
        cause="calibration",
        module=mlp,
        shape=(16,),
        serve=lambda x: x * 10,
        calibrate=lambda x: x / 10,
    ),
    "skewed-and-symmetric": Fault(
        cause="quant-scheme",
        module=Skewed,
        shape=(32,),
        plan=Plan(activations="int8", symmetric=True),
    ),
    "norm-not-folded": Fault(
        cause="unfused",
        module=normed_conv,
        shape=(3, 8, 8),
        fold=False,
        op_types=("Conv", "BatchNormalization", "Relu", "Gemm"),
        plan=Plan(activations="int8", symmetric=True),
    ),
    "channels-imbalanced": Fault(cause="channel-imbalance", module=imbalanced, shape=(3, 8, 8)),
    "calibrated-on-bytes": Fault(
        cause="calibration", module=mlp, shape=(16,), serve=np.abs, calibrate=lambda x: x * 255
    ),
    "calibrated-on-a-tenth": Fault(
        cause="calibration", module=convnet, shape=(3, 8, 8), calibrate=lambda x: x * 0.1
    ),
    "calibrated-on-zeros": Fault(
        cause="calibration", module=convnet, shape=(3, 8, 8), calibrate=lambda x: x * 0
    ),
    "calibrated-unnormalised": Fault(
        cause="calibration",
        module=mlp,
        shape=(16,),
        serve=lambda x: x * 3 + 20,
        calibrate=lambda x: (x - 20) / 3,
    ),
    "one-quiet-sample": Fault(
        cause="calibration", module=mlp, shape=(16,), calibrate=lambda x: x[:1] * 0.2
    ),
    "rare-spikes": Fault(cause="outlier", module=bounded, shape=(16,), serve=spiked, rows=4096),
    "one-scale-for-all-filters": Fault(
        cause="quant-scheme",
        module=filters_alone,
        shape=(16,),
        plan=Plan(per_channel=False),
        op_types=("MatMul", "Gemm"),
        wide=True,
    ),
    "three-bit-weights": Fault(cause="quant-scheme", module=mlp, shape=(16,), spoil=few_bits),
    "outlier-channels": Fault(
        cause="channel-imbalance", module=Normed, shape=(16,), op_types=("MatMul", "Gemm")
    ),
    "biases-full": Fault(cause="quant-saturation", module=mlp, shape=(16,), spoil=full_bias),
    "biases-full-in-a-conv": Fault(
        cause="quant-saturation", module=convnet, shape=(3, 8, 8), spoil=full_bias
    ),
    "one-loud-row": Fault(cause="outlier", module=bounded, shape=(16,), serve=loud_row, rows=4096),
    "bias-apart": Fault(
        cause="unfused",
        module=Offset,
        shape=(4, 16),
        serve=lambda x: 2 + 0.5 * x,
        op_types=("MatMul", "Add", "Gemm"),
        rows=64,
    ),
}
