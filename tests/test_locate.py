"""Each stage with planted faults: the stage and the node that are named are the right ones, and no twin is blamed.

`FAULTS` and `examine` are also what test_causes and test_repro work on: a fault is built and verified once a session.
"""

import contextlib
import functools
import io
import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn
from torch.nn import functional as F

from onnxproof import diagnose, prove
from onnxproof.proof import Proof
from onnxproof.testing import adds_noise, fake_backend
from onnxproof.types import Stage, Verdict

Change = Callable[[onnx.GraphProto], str]
"""Makes one node guilty and gives its name; several that are as good stand with a bar between them."""
logging.getLogger("torch.onnx").setLevel(logging.ERROR)


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """The models are so small that threads only wait for each other: one is several times faster on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def seeded(module: nn.Module, seed: int = 0) -> nn.Module:
    """Weights of a trained model's size, BatchNorm statistics away from their defaults, eval mode."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in module.state_dict().items():
            noise = torch.randn(tensor.shape, generator=generator)
            if name.endswith("running_var"):
                tensor.copy_(noise.abs() * 0.3 + 0.3)
            elif tensor.dim() >= 2:
                tensor.copy_(noise / max(1, tensor[0].numel()) ** 0.5)
            elif tensor.is_floating_point():
                tensor.copy_(noise * 0.2 + (1.0 if name.endswith("weight") else 0.0))
    return module.eval()


def normal(*shape: int, seed: int = 5) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# --- the models ----------------------------------------------------------------------------------------------------

class ConvNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.kept, self.head = nn.Conv2d(3, 6, 3), nn.Conv2d(6, 6, 3), nn.BatchNorm2d(6), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.gelu(self.first(x))
        x = self.kept(F.hardtanh(self.second(x), -0.5, 0.7))
        return self.head(F.leaky_relu(x, 0.2).mean((2, 3)))


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(16), nn.LayerNorm(16, eps=1e-6)
        self.qkv, self.out, self.up, self.down = nn.Linear(16, 48), nn.Linear(16, 16), nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = self.qkv(self.before(x)).reshape(x.shape[0], -1, 2, 24).transpose(1, 2).chunk(3, -1)
        bias = self.bias(mask)[:, None, None, :].to(x.dtype) * -1e4
        weights = torch.softmax(q @ k.transpose(-1, -2) / 8**0.5 + bias, -1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(x.shape))
        return x + self.down(F.gelu(self.up(self.after(x * 0.1))))

    def bias(self, mask: Tensor) -> Tensor:
        return ~mask


class Unmasked(Encoder):
    """As an exporter that saw only full masks would leave it."""

    def bias(self, mask: Tensor) -> Tensor:
        return ~(torch.ones_like(mask) | mask)


class Inverted(Encoder):
    """True means hide here, and keep there."""

    def bias(self, mask: Tensor) -> Tensor:
        return mask


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.c(F.relu6(self.b(torch.tanh(self.a(x)) * 6)) + x)


class Limits(nn.Module):
    """A table of features: an age limit, a bucket, a ratio."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        adult = (x >= 1.0).to(x.dtype)
        return self.head(x - adult) + torch.round(x[:, :3] * 4)


class Lengths(nn.Module):
    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        places = torch.arange(x.shape[1])
        return (x * (places[None] < lengths[:, None])[..., None]).sum(1)


class Folded(nn.Module):
    """Square inner sizes, so that no shape check notices exchanged axes."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.mix(x).transpose(1, 2).tanh()


class Sums(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.sum(1) / x.shape[1]


class SumsTraced(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.sum(1) / int(x.shape[1])


class Flat(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x).cumsum(1) + x.shape[1]


class FlatTraced(Flat):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(x).cumsum(1) + int(x.shape[1])


class Peak(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(x) / x.abs().max()


class PeakTraced(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(x) / x.abs().max().item()


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.head(x) - x.mean())


class NormedTraced(Normed):
    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.head(x) - float(x.mean()))


class Alias(nn.Module):
    """A write through a view, which tracing does not see."""

    def forward(self, x: Tensor) -> Tensor:
        y = x * 2
        y.transpose(0, 1)[0] = 9.0
        return y + 1


class Towers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(12, 8), nn.Linear(12, 8)

    def forward(self, query: Tensor, passage: Tensor) -> Tensor:
        return torch.tanh(self.left(query)) * torch.tanh(self.right(passage))


class Three(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(6, 6)

    def forward(self, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return self.mix(a) - 2 * b + torch.tanh(c)


class Span(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.start, self.end = nn.Linear(6, 4), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"start": self.start(x), "end": self.end(x)}


class DoubleQuantized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(16, 16), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.fake_quantize_per_tensor_affine(self.body(x), 0.1, 0, -128, 127)
        return self.head(torch.fake_quantize_per_tensor_affine(h, 0.07, 10, -128, 127))


class QuantizedPool(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x = torch.fake_quantize_per_tensor_affine(x, 0.0625, 3, -128, 127)
        return torch.fake_quantize_per_tensor_affine(F.avg_pool2d(x, 2), 0.0625, 3, -128, 127)


class BatchStatistics(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.batch_norm(x, torch.zeros(2), torch.ones(2), training=True)


class Scattered(nn.Module):
    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(x).scatter_add(1, index, x * 2) + x


class IntegerSum(nn.Module):
    def forward(self, keys: Tensor) -> Tensor:
        return (keys * (2**40 + 1)).sum(1)


class IntegerRemainder(nn.Module):
    def forward(self, keys: Tensor) -> Tensor:
        return torch.fmod(keys * (2**40 + 1), 1000)


class ImageResize(nn.Module):
    def forward(self, image: Tensor) -> Tensor:
        return F.interpolate(image, size=(9, 11), mode="bilinear")


class FarNorm(nn.Module):
    """Values far from zero: a variance made in one pass loses its digits."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x + 1000)


class Pooled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.max_pool1d(x, 2) * 2


class Choice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return torch.round(self.head(x)).argmax(-1)


class Hashed(nn.Module):
    def forward(self, ids: Tensor) -> Tensor:
        return (ids * 2654435761) % 1000003


class Times(nn.Module):
    def forward(self, seconds: Tensor) -> Tensor:
        return (seconds * 1000 + 500) // 86400


@dataclass(frozen=True, kw_only=True)
class Model:
    module: nn.Module
    example: tuple[Any, ...]
    shapes: Any = ({0: "batch"},)


MASK = torch.tensor([[True] * 5, [True, True, True, False, False]])
TIME = ({0: "batch", 1: "time"}, {0: "batch", 1: "time"})
MODELS: dict[str, Callable[[], Model]] = {
    "conv": lambda: Model(module=seeded(ConvNet()), example=(normal(2, 3, 8, 8),)),
    "encoder": lambda: Model(module=seeded(Encoder()), example=(normal(2, 5, 16), MASK), shapes=TIME),
    "unmasked": lambda: Model(module=seeded(Unmasked()), example=(normal(2, 5, 16), MASK), shapes=TIME),
    "inverted": lambda: Model(module=seeded(Inverted()), example=(normal(2, 5, 16), MASK), shapes=TIME),
    "mlp": lambda: Model(module=seeded(Mlp()), example=(normal(3, 8),)),
    "limits": lambda: Model(module=seeded(Limits()), example=(normal(3, 8),)),
    "lengths": lambda: Model(module=Lengths(), example=(normal(3, 6, 4), torch.tensor([2, 6, 4])), shapes=({0: "batch"}, {0: "batch"})),
    "folded": lambda: Model(module=seeded(Folded()), example=(normal(2, 6, 6),)),
    "sums": lambda: Model(module=Sums(), example=(normal(2, 5, 3),), shapes=({0: "batch", 1: "time"},)),
    "sums-traced": lambda: Model(module=SumsTraced(), example=(normal(2, 5, 3),), shapes=({0: "batch", 1: "time"},)),
    "flat": lambda: Model(module=seeded(Flat()), example=(normal(2, 5, 3),), shapes=({0: "batch", 1: "time"},)),
    "flat-traced": lambda: Model(module=seeded(FlatTraced()), example=(normal(2, 5, 3),), shapes=({0: "batch", 1: "time"},)),
    "peak": lambda: Model(module=Peak(), example=(normal(3, 6),)),
    "peak-traced": lambda: Model(module=PeakTraced(), example=(normal(3, 6),)),
    "normed": lambda: Model(module=seeded(Normed()), example=(normal(3, 6),)),
    "normed-traced": lambda: Model(module=seeded(NormedTraced()), example=(normal(3, 6),)),
    "alias": lambda: Model(module=Alias(), example=(normal(4, 5),)),
    "towers": lambda: Model(module=seeded(Towers()), example=(normal(3, 12), normal(3, 12, seed=6)), shapes=({0: "batch"}, {0: "batch"})),
    "three": lambda: Model(module=seeded(Three()), example=(normal(3, 6), normal(3, 6, seed=6), normal(3, 6, seed=7)), shapes=({0: "batch"},) * 3),
    "span": lambda: Model(module=seeded(Span()), example=(normal(3, 6),)),
    "double-quantized": lambda: Model(module=seeded(DoubleQuantized()), example=(normal(2, 16),)),
    "quantized-pool": lambda: Model(module=QuantizedPool(), example=(torch.full((1, 2, 8, 8), 0.5),)),
    "batch-statistics": lambda: Model(module=BatchStatistics(), example=(normal(3, 2, 4) * 3 + 2,), shapes=None),
    "scattered": lambda: Model(module=Scattered(), example=(normal(3, 6), torch.tensor([[0, 0, 1, 1, 2, 5]] * 3)), shapes=({0: "batch"}, {0: "batch"})),
    "integer-sum": lambda: Model(module=IntegerSum(), example=(torch.randint(0, 2**20, (2, 3)),)),
    "integer-remainder": lambda: Model(module=IntegerRemainder(), example=(torch.randint(0, 2**20, (6,)),)),
    "image": lambda: Model(module=ImageResize(), example=(torch.randint(0, 256, (1, 3, 6, 6), dtype=torch.uint8),)),
    "far-group-norm": lambda: Model(module=seeded(FarNorm(nn.GroupNorm(2, 4))), example=(normal(2, 4, 16),)),
    "pooled": lambda: Model(module=Pooled(), example=(normal(2, 3, 8),)),
    "choice": lambda: Model(module=seeded(Choice()), example=(normal(4, 6),)),
    "hashed": lambda: Model(module=Hashed(), example=(torch.randint(0, 50000, (4,)),)),
    "times": lambda: Model(module=Times(), example=(torch.randint(10**9, 2 * 10**9, (4,)),)),
}


# --- the faults ----------------------------------------------------------------------------------------------------

def nodes(graph: onnx.GraphProto, *op_types: str) -> list[onnx.NodeProto]:
    return [node for node in graph.node if node.op_type in op_types]


def named(op_type: str, place: int = 0) -> Change:
    """No change: the exporter or the runtime does it by itself."""
    return lambda graph: nodes(graph, op_type)[place].name


def any_of(*op_types: str) -> Change:
    """No change, and nothing that could be named but a node of these kinds: the fault is an absence."""
    return lambda graph: "|".join(node.name for node in nodes(graph, *op_types))


def between(port: str, op_type: str) -> Change:
    """No change, and any node on the way from an input to the first node of a kind will do."""
    def change(graph: onnx.GraphProto) -> str:
        reached, names = {port}, []
        for node in graph.node:
            if reached & set(node.input):
                names.append(node.name)
                reached |= set(node.output)
                if node.op_type == op_type:
                    break
        return "|".join(names)

    return change


def attributes(op_type: str, place: int = 0, **values: Any) -> Change:
    def change(graph: onnx.GraphProto) -> str:
        node = nodes(graph, op_type)[place]
        for name, value in values.items():
            for old in [a for a in node.attribute if a.name == name]:
                node.attribute.remove(old)
            node.attribute.append(helper.make_attribute(name, value))
        return node.name

    return change


def operator(op_type: str, other: str, place: int = 0, *, inputs: int | None = None) -> Change:
    def change(graph: onnx.GraphProto) -> str:
        node = nodes(graph, op_type)[place]
        node.op_type = other
        del node.attribute[:]
        if inputs is not None:
            del node.input[inputs:]
        return node.name

    return change


def exchanged(op_type: str, place: int = 0) -> Change:
    def change(graph: onnx.GraphProto) -> str:
        node = nodes(graph, op_type)[place]
        node.input[0], node.input[1] = node.input[1], node.input[0]
        return node.name

    return change


def constant(op_type: str, slot: int, edit: Callable[[Any], Any], place: int = 0) -> Change:
    """Another value for a weight or constant that one node reads."""
    def change(graph: onnx.GraphProto) -> str:
        node = nodes(graph, op_type)[place]
        known = {t.name: t for t in graph.initializer} | {n.output[0]: n.attribute[0].t for n in nodes(graph, "Constant")}
        value = numpy_helper.to_array(known[node.input[slot]])
        graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(edit(value)).astype(value.dtype), "planted"))
        node.input[slot] = "planted"
        return node.name

    return change


def narrowed(op_type: str, to: int, place: int = 0, *, back: int = TensorProto.FLOAT) -> Change:
    """A cast to a narrower type and back, in front of one node."""
    def change(graph: onnx.GraphProto) -> str:
        node = nodes(graph, op_type)[place]
        where = list(graph.node).index(node)
        first = helper.make_node("Cast", [node.input[0]], ["planted_narrow"], name="planted_cast", to=to)
        second = helper.make_node("Cast", ["planted_narrow"], ["planted_wide"], name="planted_cast_back", to=back)
        node.input[0] = "planted_wide"
        graph.node.insert(where, second)
        graph.node.insert(where, first)
        return first.name

    return change


def skipped(op_type: str, place: int = 0) -> Change:
    """One operand of a sum is lost; what is missing can't be named, but its neighbour can."""
    def change(graph: onnx.GraphProto) -> str:
        node = nodes(graph, op_type)[place]
        node.op_type = "Identity"
        del node.input[1:]
        return "|".join([node.name, *(n.name for n in graph.node if node.output[0] in n.input)])

    return change


def renamed(kind: str, *order: int) -> Change:
    """The names of inputs or outputs stand in another order."""
    def change(graph: onnx.GraphProto) -> str:
        ports = list(getattr(graph, kind))
        names = [port.name for port in ports]
        new = {names[place]: names[order[place]] for place in range(len(order))}
        for node in graph.node:
            for slots in (node.input, node.output):
                for place, name in enumerate(slots):
                    slots[place] = new.get(name, name)
        return ""

    return change


@dataclass(frozen=True, kw_only=True)
class Fault:
    model: str
    change: Change
    stage: Stage
    cause: str
    exporter: str = "dynamo"
    exported: str = ""
    """The model that was exported in the place of `model`, where the fault lies in the module's code."""
    fixed: bool = False
    """Whether a remedy must be offered."""


def fault(model: str, change: Change, stage: Stage, cause: str, **options: Any) -> Fault:
    return Fault(model=model, change=change, stage=stage, cause=cause, **options)


FAULTS: dict[str, Fault] = {
    "conv-batchnorm-epsilon": fault("conv", attributes("BatchNormalization", epsilon=1e-2), Stage.EXPORT, "attribute", fixed=True),
    "conv-leaky-slope": fault("conv", attributes("LeakyRelu", alpha=0.01), Stage.EXPORT, "attribute", fixed=True),
    "encoder-layernorm-epsilon": fault("encoder", attributes("LayerNormalization", 1, epsilon=1e-3), Stage.EXPORT, "attribute", fixed=True),
    "encoder-gelu-form": fault("encoder", attributes("Gelu", approximate="tanh"), Stage.EXPORT, "attribute", fixed=True),
    "conv-kernel-of-other-checkpoint": fault("conv", constant("Conv", 1, lambda w: w + 0.1 * np.sin(np.arange(w.size)).reshape(w.shape), 1), Stage.EXPORT,
                                             "weights", fixed=True),
    "mlp-bias-dropped": fault("mlp", constant("Gemm", 2, np.zeros_like, 1), Stage.EXPORT, "weights", fixed=True),
    "mlp-weight-transposed": fault("mlp", constant("Gemm", 1, np.transpose, 1), Stage.EXPORT, "weight-layout", fixed=True),
    "conv-kernel-flipped": fault("conv", constant("Conv", 1, lambda w: w[..., ::-1], 1), Stage.EXPORT, "weight-layout", fixed=True),
    "mlp-relu6-to-relu": fault("mlp", operator("Clip", "Relu", inputs=1), Stage.EXPORT, "clipping", fixed=True),
    "conv-hardtanh-moved": fault("conv", constant("Clip", 2, lambda w: w + 0.2), Stage.EXPORT, "clipping", fixed=True),
    "limits-age-exclusive": fault("limits", operator("GreaterOrEqual", "Greater"), Stage.EXPORT, "comparison", fixed=True),
    "lengths-inclusive": fault("lengths", operator("Less", "LessOrEqual"), Stage.EXPORT, "comparison", fixed=True),
    "limits-floor": fault("limits", operator("Round", "Floor"), Stage.EXPORT, "rounding", fixed=True),
    "limits-ceil": fault("limits", operator("Round", "Ceil"), Stage.EXPORT, "rounding", fixed=True),
    "folded-untransposed": fault("folded", attributes("Transpose", perm=[0, 1, 2]), Stage.EXPORT, "axis-order", fixed=True),
    "limits-operands": fault("limits", exchanged("Sub"), Stage.EXPORT, "axis-order", fixed=True),
    "mlp-residual-lost": fault("mlp", skipped("Add"), Stage.EXPORT, "missing-op"),
    "alias-write-lost": fault("alias", lambda graph: graph.node[-1].name, Stage.EXPORT, "mutation", exporter="legacy"),
    "sums-length-baked": fault("sums", named("Div"), Stage.EXPORT, "baked-dimension", exporter="legacy", exported="sums-traced"),
    "flat-length-baked": fault("flat", named("Add", -1), Stage.EXPORT, "baked-dimension", exporter="legacy", exported="flat-traced"),
    "peak-baked": fault("peak", named("Div"), Stage.EXPORT, "baked-value", exporter="legacy", exported="peak-traced"),
    "mean-baked": fault("normed", named("Sub"), Stage.EXPORT, "baked-value", exporter="legacy", exported="normed-traced"),
    "conv-train-mode": fault("conv", named("BatchNormalization"), Stage.EXPORT, "train-mode", exporter="training-frozen", fixed=True),
    "conv-train-mode-moved": fault("conv", named("BatchNormalization"), Stage.EXPORT, "train-mode", exporter="training"),
    "encoder-mask-ignored": fault("encoder", between("mask", "Softmax"), Stage.EXPORT, "masking", exported="unmasked"),
    "encoder-mask-inverted": fault("encoder", between("mask", "Softmax"), Stage.EXPORT, "masking", exported="inverted"),
    "hashed-in-int32": fault("hashed", narrowed("Mod", TensorProto.INT32, back=TensorProto.INT64), Stage.EXPORT, "integer-width", fixed=True),
    "times-in-int32": fault("times", narrowed("Div", TensorProto.INT32, back=TensorProto.INT64), Stage.EXPORT, "integer-width", fixed=True),
    "conv-in-half": fault("conv", narrowed("Conv", TensorProto.FLOAT16, 1), Stage.PRECISION, "precision", fixed=True),
    "encoder-in-bfloat16": fault("encoder", narrowed("Softmax", TensorProto.BFLOAT16), Stage.PRECISION, "precision", fixed=True),
    "mlp-in-half": fault("mlp", narrowed("Gemm", TensorProto.FLOAT16, 2), Stage.PRECISION, "precision", fixed=True),
    "towers-inputs-exchanged": fault("towers", renamed("input", 1, 0), Stage.SIGNATURE, "input-order"),
    "three-inputs-rotated": fault("three", renamed("input", 1, 2, 0), Stage.SIGNATURE, "input-order"),
    "span-outputs-exchanged": fault("span", renamed("output", 1, 0), Stage.SIGNATURE, "output-order"),
    "double-quantization-merged": fault("double-quantized", any_of("QuantizeLinear", "DequantizeLinear"),
                                        Stage.OPTIMIZER, "optimizer", exporter="legacy", fixed=True),
    "quantized-pool-fused": fault("quantized-pool", any_of("AveragePool", "QuantizeLinear", "DequantizeLinear"),
                                  Stage.OPTIMIZER, "optimizer", exporter="legacy", fixed=True),
    "batch-statistics-shared": fault("batch-statistics", named("BatchNormalization"), Stage.OPTIMIZER, "optimizer", exporter="legacy", fixed=True),
    "scattered-last-wins": fault("scattered", attributes("ScatterElements", reduction="none"), Stage.EXPORT, "scatter", fixed=True),
    "scattered-largest-wins": fault("scattered", attributes("ScatterElements", reduction="max"), Stage.EXPORT, "scatter", fixed=True),
    "integer-sum-in-double": fault("integer-sum", named("ReduceSum"), Stage.RUNTIME, "kernel"),
    "integer-remainder-in-double": fault("integer-remainder", named("Mod"), Stage.RUNTIME, "kernel"),
    "image-resize-truncates": fault("image", named("Resize"), Stage.RUNTIME, "kernel"),
    "far-group-norm": fault("far-group-norm", named("GroupNormalization"), Stage.RUNTIME, "kernel"),
    "pool-hides-nan": fault("pooled", named("MaxPool"), Stage.RUNTIME, "nan-handling"),
    "choice-takes-last": fault("choice", attributes("ArgMax", select_last_index=1), Stage.EXPORT, "tie-order"),
}


@dataclass(frozen=True, kw_only=True)
class Examined:
    proof: Proof
    guilty: str
    path: Path
    model: Model


BUDGET_S = 5.0
_FOLDER = tempfile.TemporaryDirectory(prefix="onnxproof-tests-")


@functools.cache
def model(name: str) -> Model:
    return MODELS[name]()


@functools.cache
def exported(name: str, exporter: str) -> Path:
    """One export a model and exporter."""
    found, path = MODELS[name](), Path(_FOLDER.name) / f"{name}-{exporter}.onnx"
    quiet = io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet), torch.no_grad():
        warnings.simplefilter("ignore")
        if exporter == "dynamo":
            torch.onnx.export(found.module, found.example, path, dynamo=True, dynamic_shapes=found.shapes, opset_version=21, external_data=False, verbose=False)
            return path
        names = [f"in{k}" for k in range(len(found.example))]
        axes = dict(zip(names, found.shapes or (), strict=False))
        mode = {"training": torch.onnx.TrainingMode.TRAINING, "do_constant_folding": False} if exporter.startswith("training") else {}
        for layer in found.module.modules():
            if isinstance(layer, nn.BatchNorm2d) and exporter == "training-frozen":
                layer.momentum = 0.0  # tracing in training mode moves the statistics; this keeps them
        torch.onnx.export(found.module, found.example, str(path), dynamo=False, dynamic_axes=axes, input_names=names, opset_version=17, **mode)
    return path


@functools.cache
def examine(name: str) -> Examined:
    """The proof of one planted fault, explained."""
    planted = FAULTS[name]
    loaded = onnx.load(exported(planted.exported or planted.model, planted.exporter))
    guilty = planted.change(loaded.graph)
    del loaded.graph.value_info[:]
    path = Path(_FOLDER.name) / f"{name}.onnx"
    onnx.save(loaded, path)
    right = model(planted.model)
    with mock.patch.object(diagnose, "_FIX_BUDGET_S", BUDGET_S):
        proof = prove.verify(right.module, path, right.example, dynamic_shapes=right.shapes, budget_s=BUDGET_S)
    return Examined(proof=proof, guilty=guilty, path=path, model=right)


def told(proof: Proof) -> str:
    """Everything that a failing test should show."""
    where = proof.location
    return f"{proof.sentence()}; {where.stage.value if where else None} {where.nodes[:4] if where else None} {where.evidence if where else ''}; " + "; ".join(
        f"{c.code} {c.proven} {c.evidence}" for c in proof.causes) + "; ".join(f.what for f in proof.findings)


# --- the tests -----------------------------------------------------------------------------------------------------

KNOWN_BUGS = {
}


def planted(bugs: dict[str, str]) -> list[Any]:
    """Every fault; those that the engine gets wrong for a known reason are expected to fail."""
    return [pytest.param(name, marks=[pytest.mark.xfail(strict=True, reason=bugs[name])] if name in bugs else []) for name in FAULTS]


STAGE_BUGS = {
    "image-resize-truncates": "engine: onnx's evaluator cuts the fraction off as well, so the file seems to be wrong",
}


@pytest.mark.parametrize("name", planted(STAGE_BUGS))
def test_the_stage_is_named(name: str) -> None:
    proof = examine(name).proof
    assert proof.location is not None and proof.location.stage is FAULTS[name].stage, told(proof)


@pytest.mark.parametrize("name", planted(KNOWN_BUGS))
def test_the_guilty_node_is_named_first(name: str) -> None:
    found = examine(name)
    assert found.proof.location is not None
    if FAULTS[name].stage is not Stage.SIGNATURE:
        assert found.proof.location.nodes[:1] and found.proof.location.nodes[0] in found.guilty.split("|"), told(found.proof)
    else:
        assert found.proof.location.nodes, told(found.proof)


def test_each_stage_has_three_faults() -> None:
    counts = {stage: sum(fault.stage is stage for fault in FAULTS.values()) for stage in Stage}
    assert {stage: n for stage, n in counts.items() if n < 3} == {Stage.GRAPH: 0}, "faults of the stage graph are planted below"


@pytest.mark.parametrize("name", ["conv-batchnorm-epsilon", "encoder-layernorm-epsilon", "mlp-bias-dropped"])
def test_between_two_files_the_stage_is_the_graph(name: str) -> None:
    found = examine(name)
    proof = prove.diff(exported(FAULTS[name].model, "dynamo"), found.path, found.model.example, budget_s=BUDGET_S)
    assert proof.verdict is Verdict.DIVERGED
    assert proof.location is not None and proof.location.stage is Stage.GRAPH, told(proof)


@pytest.mark.parametrize("name", ["conv-batchnorm-epsilon", "encoder-layernorm-epsilon", "mlp-bias-dropped", "conv-leaky-slope", "mlp-relu6-to-relu"])
def test_between_two_files_the_node_is_named(name: str) -> None:
    found = examine(name)
    proof = prove.diff(exported(FAULTS[name].model, "dynamo"), found.path, found.model.example, budget_s=BUDGET_S, only=("example", "ordinary-0"))
    assert proof.location is not None and proof.location.nodes[:1] == (found.guilty,), told(proof)


@pytest.mark.parametrize("name", ["conv-leaky-slope", "mlp-bias-dropped", "encoder-gelu-form"])
def test_the_line_of_python_is_named(name: str) -> None:
    where = examine(name).proof.location
    assert where is not None and where.source is not None
    wanted = {"conv-leaky-slope": "F.leaky_relu(x, 0.2)", "mlp-bias-dropped": "self.b(", "encoder-gelu-form": "F.gelu(self.up"}[name]
    assert where.source.file == __file__ and wanted in where.source.text


def test_a_backend_that_lies_is_a_fault_of_the_runtime() -> None:
    right = model("mlp")
    with fake_backend("liar", adds_noise(0.05)):
        proof = prove.verify(right.module, exported("mlp", "dynamo"), right.example, dynamic_shapes=right.shapes, backends=("liar",), budget_s=BUDGET_S)
    assert proof.location is not None and proof.location.stage is Stage.RUNTIME, told(proof)


@pytest.mark.parametrize("name", ["conv", "encoder", "mlp", "limits", "folded"])
def test_nothing_is_named_on_a_healthy_twin(name: str) -> None:
    right = model(name)
    proof = prove.verify(right.module, exported(name, "dynamo"), right.example, dynamic_shapes=right.shapes, budget_s=BUDGET_S)
    assert proof.verdict is Verdict.FAITHFUL, told(proof)
    assert proof.location is None and proof.causes == (), told(proof)
