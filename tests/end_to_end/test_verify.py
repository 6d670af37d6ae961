"""From two models to a verdict: healthy exports of both exporters are FAITHFUL, and each planted fault is found and named."""

import contextlib
import io
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from support.planted_models import seeded
from torch import Tensor, nn

from onnxproof import api
from onnxproof.errors import BackendError, Crashed, InputError
from onnxproof.inputs.search import origin
from onnxproof.options import Policy, Serving
from onnxproof.results import Domain, Gap, NoiseKind, Stage, Status, Verdict, judging
from onnxproof.results.proof import Proof
from onnxproof.runtimes.isolation.session import IsolatedSession
from onnxproof.testing import fake_backend, raising, spoils_inputs, stale
from onnxproof.verification.progress import Progress

BOTH = pytest.mark.parametrize("exporter", ["dynamo", "legacy"])


def fresh(build: Callable[[], nn.Module]) -> nn.Module:
    """The weights that torch itself begins with."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return build().eval()


def normal(*shape: int, seed: int = 5) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# --- the models ----------------------------------------------------------------------------------------------------


class ConvNet(nn.Module):
    """One norm that exporters fold into its convolution, and one that they can't."""

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.first, self.folded, self.gelu = (
            nn.Conv2d(3, 6, 3, padding=1),
            nn.BatchNorm2d(6),
            nn.GELU(approximate),
        )
        self.second, self.kept, self.head = nn.Conv2d(6, 6, 3), nn.BatchNorm2d(6), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.gelu(self.folded(self.first(x)))
        return self.head(self.kept(torch.relu(self.second(x))).mean((2, 3)))


class Block(nn.Module):
    def __init__(self, approximate: str) -> None:
        super().__init__()
        self.before, self.after, self.gelu = (
            nn.LayerNorm(16),
            nn.LayerNorm(16),
            nn.GELU(approximate),
        )
        self.qkv, self.out, self.up, self.down = (
            nn.Linear(16, 48),
            nn.Linear(16, 16),
            nn.Linear(16, 32),
            nn.Linear(32, 16),
        )

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        q, k, v = (
            self.qkv(self.before(x)).reshape(x.shape[0], -1, 2, 24).transpose(1, 2).chunk(3, -1)
        )
        weights = torch.softmax(q @ k.transpose(-1, -2) / 8**0.5 + bias, -1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(x.shape))
        return x + self.down(self.gelu(self.up(self.after(x))))


class Encoder(nn.Module):
    def __init__(self, depth: int = 1, approximate: str = "none") -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(approximate) for _ in range(depth))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        bias = (~mask)[:, None, None, :].to(x.dtype) * -1e4
        for block in self.blocks:
            x = block(x, bias)
        return x


class Unmasked(Encoder):
    """As an exporter that saw only full masks would leave it."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return super().forward(x, torch.ones_like(mask) | mask)


class Argmax(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x).argmax(-1)


class Outputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(8, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        hidden = torch.tanh(self.body(x))
        return {"scores": self.head(hidden), "hidden": hidden}


class Keywords(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(8, 8)

    def forward(self, *, query: Tensor, key: Tensor) -> Tensor:
        return self.mix(query) - key


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(50, 8), nn.Linear(8, 3)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.table(ids).mean(1))


class Ties(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.argmax(-1)


class Logs(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.log(x.abs() + 1e-6)


class Minus(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return a - 2 * b


class Squares(nn.Module):
    def forward(self, n: Tensor) -> Tensor:
        return n * 3 + 1


class Flat(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(x.shape[0], -1) * 2


class FlatTraced(nn.Module):
    """`int()` hides the batch from the tracer: the classic way to bake it."""

    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(int(x.shape[0]), -1) * 2


@dataclass(frozen=True, kw_only=True)
class Model:
    module: nn.Module
    example: Any
    shapes: Any = None


IDS = torch.tensor([[1, 2, 3, 4], [0, 1, 0, 2]])
MASK = torch.tensor([[True] * 5, [True, True, True, False, False]])
BATCH = ({0: "batch"},)
MODELS: dict[str, Callable[[], Model]] = {
    "conv": lambda: Model(module=seeded(ConvNet()), example=(normal(2, 3, 8, 8),), shapes=BATCH),
    "conv-tanh": lambda: Model(
        module=seeded(ConvNet("tanh")), example=(normal(2, 3, 8, 8),), shapes=BATCH
    ),
    "encoder": lambda: Model(
        module=seeded(Encoder()),
        example=(normal(2, 5, 16), MASK),
        shapes=({0: "batch", 1: "time"}, {0: "batch", 1: "time"}),
    ),
    "encoder-six": lambda: Model(
        module=fresh(lambda: Encoder(6)),
        example=(normal(2, 5, 16), MASK),
        shapes=({0: "batch", 1: "time"}, {0: "batch", 1: "time"}),
    ),
    "encoder-tanh": lambda: Model(
        module=seeded(Encoder(1, "tanh")),
        example=(normal(2, 5, 16), MASK),
        shapes=({0: "batch", 1: "time"}, {0: "batch", 1: "time"}),
    ),
    "unmasked": lambda: Model(
        module=seeded(Unmasked()),
        example=(normal(2, 5, 16), MASK),
        shapes=({0: "batch", 1: "time"}, {0: "batch", 1: "time"}),
    ),
    "lstm": lambda: Model(
        module=seeded(nn.LSTM(4, 6, batch_first=True)),
        example=(normal(2, 5, 4),),
        shapes=({0: "batch", 1: "time"},),
    ),
    "argmax": lambda: Model(module=seeded(Argmax()), example=(normal(4, 8),), shapes=BATCH),
    "half": lambda: Model(
        module=seeded(
            nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 4))
        ).half(),
        example=(normal(3, 8).half(),),
        shapes=BATCH,
    ),
    "outputs": lambda: Model(module=seeded(Outputs()), example=(normal(3, 8),), shapes=BATCH),
    "keywords": lambda: Model(
        module=seeded(Keywords()),
        example={"query": normal(3, 8), "key": normal(3, 8, seed=6)},
        shapes={"query": {0: "batch"}, "key": {0: "batch"}},
    ),
    "words": lambda: Model(
        module=seeded(Words()), example=(IDS,), shapes=({0: "batch", 1: "length"},)
    ),
    "ties": lambda: Model(module=Ties(), example=(normal(3, 6),), shapes=BATCH),
    "logs": lambda: Model(module=Logs(), example=(normal(3, 6),), shapes=BATCH),
    "minus": lambda: Model(
        module=Minus(),
        example=(normal(3, 6), normal(3, 6, seed=6)),
        shapes=({0: "batch"}, {0: "batch"}),
    ),
    "squares": lambda: Model(module=Squares(), example=(torch.tensor([5, 70, -3]),), shapes=BATCH),
    "flat": lambda: Model(module=Flat(), example=(normal(3, 2, 4),), shapes=BATCH),
    "flat-traced": lambda: Model(module=FlatTraced(), example=(normal(3, 2, 4),), shapes=BATCH),
}


class Zoo:
    """Models and their exports, each made once a session."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._models: dict[str, Model] = {}
        self._files: dict[tuple[Any, ...], Path] = {}

    def model(self, name: str) -> Model:
        if name not in self._models:
            self._models[name] = MODELS[name]()
        return self._models[name]

    def file(
        self, name: str, exporter: str = "dynamo", opset: int = 18, *, external: bool = False
    ) -> Path:
        key = (name, exporter, opset, external)
        if key not in self._files:
            place = self.folder / "-".join(map(str, key))
            place.mkdir()
            self._files[key] = _export(
                self.model(name), place / "model.onnx", exporter, opset, external=external
            )
        return self._files[key]

    def edited(
        self, name: str, change: Callable[[onnx.GraphProto], Any], **options: Any
    ) -> tuple[Path, Any]:
        """A copy of an export with one change, and what the change returned."""
        model = onnx.load(self.file(name, **options))
        told = change(model.graph)
        del model.graph.value_info[:]
        path = self.folder / f"edited-{len(list(self.folder.iterdir()))}.onnx"
        onnx.save(model, path)
        return path, told

    def verify(self, name: str, path: Path, **options: Any) -> Proof:
        model = self.model(name)
        return api.verify(
            model.module,
            path,
            model.example,
            **{"dynamic_shapes": model.shapes, "budget_s": 60, "explain": False, **options},
        )


def _export(model: Model, path: Path, exporter: str, opset: int, *, external: bool) -> Path:
    args, kwargs = (
        ((), dict(model.example)) if isinstance(model.example, dict) else (model.example, {})
    )
    quiet = io.StringIO()
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(quiet),
        contextlib.redirect_stderr(quiet),
        torch.no_grad(),
    ):
        warnings.simplefilter("ignore")
        if exporter == "dynamo":
            torch.onnx.export(
                model.module,
                args,
                path,
                kwargs=kwargs,
                dynamo=True,
                dynamic_shapes=model.shapes,
                opset_version=opset,
                external_data=external,
                verbose=False,
            )
        else:
            names = [f"in{k}" for k in range(len(args))] or list(kwargs)
            shapes = dict(
                zip(
                    names,
                    model.shapes.values() if isinstance(model.shapes, dict) else model.shapes,
                    strict=True,
                )
            )
            torch.onnx.export(
                model.module,
                args,
                str(path),
                kwargs=kwargs,
                dynamo=False,
                dynamic_axes=shapes,
                input_names=names,
                opset_version=opset,
            )
    return path


@pytest.fixture(scope="session")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Zoo:
    return Zoo(tmp_path_factory.mktemp("zoo"))


def bad(proof: Proof) -> list[Gap]:
    """The gaps that count against the candidate."""
    return [
        gap
        for gap in proof.gaps
        if judging.judge_gap(gap, proof.policy) in (Verdict.DRIFT, Verdict.DIVERGED)
    ]


def nodes(graph: onnx.GraphProto, op_type: str) -> list[onnx.NodeProto]:
    return [node for node in graph.node if node.op_type == op_type]


def set_attribute(node: onnx.NodeProto, **values: Any) -> str:
    """Set attributes of a node; returns its name."""
    for name, value in values.items():
        for old in [a for a in node.attribute if a.name == name]:
            node.attribute.remove(old)
        node.attribute.append(helper.make_attribute(name, value))
    return node.name


def handmade(
    path: Path,
    steps: Sequence[onnx.NodeProto],
    inputs: dict[str, tuple[int, Any]],
    outputs: dict[str, int],
    **weights: Any,
) -> Path:
    """A graph written by hand: what another tool may have made of the module."""
    ports = [
        helper.make_tensor_value_info(name, kind, dims) for name, (kind, dims) in inputs.items()
    ]
    results = [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()]
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()]
    onnx.save(
        helper.make_model(
            helper.make_graph(steps, "g", ports, results, tensors),
            opset_imports=[helper.make_opsetid("", 18)],
            ir_version=8,
        ),
        path,
    )
    return path


# --- healthy -------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize(
    "name",
    [
        "conv",
        "encoder",
        "lstm",
        "argmax",
        "half",
        "outputs",
        "keywords",
        "words",
        "ties",
        "logs",
        "minus",
        "squares",
        "flat",
    ],
)
def test_a_healthy_export_is_faithful(zoo: Zoo, name: str, exporter: str) -> None:
    if (name, exporter) == ("keywords", "legacy"):
        pytest.skip("the legacy exporter takes no keyword-only inputs")
    proof = zoo.verify(name, zoo.file(name, exporter), budget_s=60)
    assert proof.verdict is Verdict.FAITHFUL, proof.sentence()
    assert (
        bad(proof) == [] and len({gap.case for gap in proof.gaps}) > 20 and proof.location is None
    )
    assert all(gap.noise_kind is not NoiseKind.NONE for gap in proof.gaps if gap.compared)
    assert all(note.reference != note.candidate for note in proof.notes)
    assert not [finding for finding in proof.findings if finding.counts]


def test_a_deep_encoder_is_faithful(zoo: Zoo) -> None:
    assert zoo.verify("encoder-six", zoo.file("encoder-six")).verdict is Verdict.FAITHFUL


def test_weights_kept_beside_the_file(zoo: Zoo) -> None:
    path = zoo.file("conv", external=True)
    assert list(path.parent.glob("*.data"))
    proof = zoo.verify("conv", path)
    assert proof.verdict is Verdict.FAITHFUL and len(proof.hashes["candidate"]) == 64


def test_dict_outputs_pair_by_key(zoo: Zoo) -> None:
    """The file returns the same two outputs in the other order: the keys tell them apart."""

    def rename(graph: onnx.GraphProto) -> None:
        names = dict(zip([o.name for o in graph.output], ["scores", "hidden"], strict=True))
        for node in graph.node:
            for side in (node.input, node.output):
                for place, name in enumerate(side):
                    side[place] = names.get(name, name)
        for port in graph.output:
            port.name = names[port.name]
        first, second = graph.output
        reverse = [onnx.ValueInfoProto(), onnx.ValueInfoProto()]
        reverse[0].CopyFrom(second)
        reverse[1].CopyFrom(first)
        del graph.output[:]
        graph.output.extend(reverse)

    path, _ = zoo.edited("outputs", rename)
    proof = zoo.verify("outputs", path)
    assert [(o.name, o.onnx_name, o.paired_by) for o in proof.signature.outputs] == [
        ("scores", "scores", "name"),
        ("hidden", "hidden", "name"),
    ]
    assert proof.verdict is Verdict.FAITHFUL


def test_ids_are_tried_beyond_the_example(zoo: Zoo) -> None:
    proof = zoo.verify("words", zoo.file("words"))
    assert {"ids-ids-last", "ids-ids-beyond the example"} <= {
        gap.case for gap in proof.gaps if gap.compared
    }


def test_several_backends_have_gaps_of_their_own(zoo: Zoo) -> None:
    proof = zoo.verify(
        "logs",
        zoo.file("logs"),
        backends=("ort", "ort:disabled", "reference"),
        only=("example", "ordinary-0"),
    )
    assert {(gap.case, gap.backend) for gap in proof.gaps} == {
        (c, b) for c in ("example", "ordinary-0") for b in ("ort", "ort:disabled", "reference")
    }
    assert proof.verdict is Verdict.FAITHFUL


# --- planted -------------------------------------------------------------------------------------------------------


@BOTH
def test_a_batch_norm_epsilon_of_1e_6_is_found_on_a_conv_net(zoo: Zoo, exporter: str) -> None:
    path, guilty = zoo.edited(
        "conv",
        lambda graph: set_attribute(nodes(graph, "BatchNormalization")[-1], epsilon=1e-6),
        exporter=exporter,
    )
    proof = zoo.verify("conv", path, explain=True, only=("example", "ordinary-0", "scale-10"))
    assert proof.verdict in (Verdict.DRIFT, Verdict.DIVERGED) and "ordinary" in {
        gap.group for gap in bad(proof)
    }
    assert (
        proof.location is not None
        and proof.location.stage is Stage.EXPORT
        and proof.location.nodes[0] == guilty
    )
    example = next(gap for gap in proof.gaps if gap.case == "example")
    assert (
        example.allowance <= 1 and example.noise_ratio > proof.policy.noise_limit
    )  # allclose lets it through


TELLING = (
    "example",
    "ordinary-0",
    "ordinary-1",
    "scale-0.1",
    "scale-0.001",
    "scale-1e-06",
    "float-x-zeros",
    "float-x-low variance",
)


def other_epsilon(zoo: Zoo, place: int) -> tuple[Path, str]:
    return zoo.edited(
        "encoder-six",
        lambda graph: set_attribute(nodes(graph, "LayerNormalization")[place], epsilon=1e-6),
    )


@pytest.mark.parametrize("place", [0, 5, 10])
def test_a_layer_norm_epsilon_of_1e_6_is_found_in_one_of_six_blocks(zoo: Zoo, place: int) -> None:
    proof = zoo.verify("encoder-six", other_epsilon(zoo, place)[0], only=TELLING)
    assert proof.verdict in (Verdict.DRIFT, Verdict.DIVERGED)


@pytest.mark.parametrize("place", [4, 11])
def test_the_layer_norm_with_another_epsilon_is_named(zoo: Zoo, place: int) -> None:
    path, guilty = other_epsilon(zoo, place)
    proof = zoo.verify("encoder-six", path, explain=True, only=TELLING)
    assert proof.location is not None and proof.location.nodes[0] == guilty
    assert proof.location.module is not None and f"blocks.{place // 2}" in proof.location.module


@pytest.mark.parametrize(("name", "wrong"), [("conv", "conv-tanh"), ("encoder", "encoder-tanh")])
@BOTH
def test_tanh_gelu_for_erf_gelu_is_found(zoo: Zoo, name: str, wrong: str, exporter: str) -> None:
    proof = zoo.verify(
        name, zoo.file(wrong, exporter), explain=True, only=("example", "ordinary-0", "scale-10")
    )
    assert proof.verdict in (Verdict.DRIFT, Verdict.DIVERGED) and "ordinary" in {
        gap.group for gap in bad(proof)
    }
    assert proof.worst is not None and proof.worst.noise_ratio > 100
    assert (
        proof.location is not None and proof.location.stage is Stage.EXPORT and proof.location.nodes
    )


@pytest.mark.parametrize("name", ["conv", "encoder"])
def test_a_gelu_node_with_the_other_approximation_is_named(zoo: Zoo, name: str) -> None:
    path, guilty = zoo.edited(
        name, lambda graph: set_attribute(nodes(graph, "Gelu")[0], approximate="tanh"), opset=20
    )
    proof = zoo.verify(name, path, explain=True, only=("example", "ordinary-0", "scale-10"))
    assert (
        proof.verdict in (Verdict.DRIFT, Verdict.DIVERGED)
        and proof.location is not None
        and proof.location.nodes[0] == guilty
    )


def test_a_mask_that_is_ignored_is_found_by_the_mask_cases(zoo: Zoo) -> None:
    proof = zoo.verify(
        "encoder",
        zoo.file("unmasked"),
        only=("mask-mask-all true", "mask-mask-one row false", "mask-mask-right-padded"),
    )
    assert proof.verdict is Verdict.DIVERGED
    assert {gap.case for gap in bad(proof)} == {"mask-mask-right-padded"} and {
        gap.group for gap in bad(proof)
    } == {"masks"}
    assert zoo.verify("encoder", zoo.file("unmasked")).verdict is Verdict.DIVERGED


def test_a_baked_batch_is_found_by_the_shape_sweep(zoo: Zoo) -> None:
    proof = zoo.verify("flat", zoo.file("flat-traced", "legacy"), explain=True)
    assert proof.verdict is Verdict.DIVERGED and all(
        gap.status in (Status.SHAPE, Status.REFUSED) for gap in bad(proof)
    )
    assert {gap.group for gap in bad(proof)} == {
        "shapes"
    }  # three rows are what was baked: nothing differs there
    assert proof.location is not None and "Reshape" in proof.location.nodes[0]


def test_argmax_of_the_last_index_is_a_note_about_ties(zoo: Zoo) -> None:
    path, guilty = zoo.edited(
        "ties", lambda graph: set_attribute(nodes(graph, "ArgMax")[0], select_last_index=1)
    )
    proof = zoo.verify("ties", path, explain=True)
    assert proof.verdict is Verdict.FAITHFUL
    ties = [note for note in proof.notes if note.domain is Domain.TIES]
    assert ties and "float-x-all equal" in {
        gap.case for gap in proof.gaps if gap.domain is Domain.TIES
    }
    assert (
        "=0" in ties[0].reference
        and ties[0].candidate != ties[0].reference
        and "=" in ties[0].candidate
    )
    assert proof.location is not None and proof.location.nodes[0] == guilty
    assert proof.judged(Policy(strict_domains=True)).verdict is Verdict.DIVERGED


def test_a_nan_that_is_dropped_is_a_note_about_nan(zoo: Zoo) -> None:
    steps = [
        helper.make_node("IsNaN", ["in0"], ["odd"]),
        helper.make_node("Where", ["odd", "zero", "in0"], ["clean"], name="cleans"),
        helper.make_node("Flatten", ["clean"], ["flat"]),
        helper.make_node("Mul", ["flat", "two"], ["y"]),
    ]
    path = handmade(
        zoo.folder / "drops-nan.onnx",
        steps,
        {"in0": (TensorProto.FLOAT, ["batch", 2, 4])},
        {"y": TensorProto.FLOAT},
        zero=np.float32(0),
        two=np.float32(2),
    )
    proof = zoo.verify("flat", path)
    assert proof.verdict is Verdict.FAITHFUL and {note.domain for note in proof.notes} == {
        Domain.NAN
    }
    assert (
        "nan" in proof.notes[0].reference
        and proof.notes[0].candidate.endswith("=0.0")
        and proof.notes[0].what == "NaN is handled otherwise"
    )
    assert proof.judged(Policy(strict_domains=True)).verdict is Verdict.DIVERGED
    assert zoo.verify("flat", path, policy=Policy(domains=())).notes == ()


def test_a_dropped_epsilon_diverges_at_zeros(zoo: Zoo) -> None:
    steps = [
        helper.make_node("Abs", ["x"], ["a"], name="abs"),
        helper.make_node("Log", ["a"], ["y"], name="log"),
    ]
    path = handmade(
        zoo.folder / "no-epsilon.onnx",
        steps,
        {"x": (TensorProto.FLOAT, ["batch", 6])},
        {"y": TensorProto.FLOAT},
    )
    proof = zoo.verify("logs", path, only=("float-x-zeros",), explain=True)
    assert proof.verdict is Verdict.DIVERGED
    (gap,) = proof.gaps
    assert (gap.lost, gap.group, gap.domain) == (18, "floats", None)
    assert proof.location is not None and proof.location.nodes[0] in ("log", "abs")


def test_input_names_exchanged_are_found_by_distinct_inputs(zoo: Zoo) -> None:
    def exchange(graph: onnx.GraphProto) -> None:
        names = {"a": "b", "b": "a"}
        for node in graph.node:
            for place, name in enumerate(node.input):
                node.input[place] = names.get(name, name)

    path, _ = zoo.edited("minus", exchange)
    proof = zoo.verify("minus", path, explain=True)
    assert (
        proof.verdict is Verdict.DIVERGED
        and proof.location is not None
        and proof.location.stage is Stage.SIGNATURE
    )
    assert "a" in proof.location.evidence and "b" in proof.location.evidence
    only = zoo.verify("minus", path, only=("distinct-0",))
    assert only.verdict is Verdict.DIVERGED and only.gaps[0].group == "distinct"


def narrow(path: Path) -> Path:
    """n * 3 + 1 in 32 bits."""
    steps = [
        helper.make_node("Cast", ["n"], ["narrow"], name="narrows", to=TensorProto.INT32),
        helper.make_node("Mul", ["narrow", "three"], ["p"], name="times"),
        helper.make_node("Add", ["p", "one"], ["s"], name="plus"),
        helper.make_node("Cast", ["s"], ["y"], name="widens", to=TensorProto.INT64),
    ]
    return handmade(
        path,
        steps,
        {"n": (TensorProto.INT64, ["batch"])},
        {"y": TensorProto.INT64},
        three=np.int32(3),
        one=np.int32(1),
    )


def test_int64_narrowed_to_int32_is_found_by_large_integers(zoo: Zoo) -> None:
    path = narrow(zoo.folder / "narrow.onnx")
    proof = zoo.verify("squares", path, explain=True)
    assert proof.verdict is Verdict.DIVERGED and {gap.group for gap in bad(proof)} == {"integers"}
    assert {"integer-n-beyond 2**31"} <= {gap.case for gap in bad(proof)} and all(
        gap.mismatches for gap in bad(proof)
    )
    assert proof.location is not None and "narrows" in proof.location.nodes[:2]


def test_the_cast_that_narrows_is_named_first(zoo: Zoo) -> None:
    proof = zoo.verify("squares", narrow(zoo.folder / "narrow-located.onnx"), explain=True)
    assert proof.location is not None and proof.location.nodes[0] == "narrows"


def test_a_changed_dtype_is_drift(zoo: Zoo) -> None:
    def widen(graph: onnx.GraphProto) -> str:
        output = graph.output[0]
        graph.node.append(
            helper.make_node("Cast", [output.name], ["wide"], name="widens", to=TensorProto.DOUBLE)
        )
        output.name, output.type.tensor_type.elem_type = "wide", TensorProto.DOUBLE
        return "widens"

    path, guilty = zoo.edited("logs", widen)
    proof = zoo.verify("logs", path, explain=True)
    assert proof.verdict is Verdict.DRIFT and {gap.status for gap in bad(proof)} == {Status.DTYPE}
    assert bad(proof)[0].detail == "reference float32, candidate float64"
    assert proof.location is not None and proof.location.nodes[0] == guilty
    assert not proof.judged(Policy(strict=True)).passed and proof.passed


def test_a_missing_output_diverges(zoo: Zoo) -> None:
    path, _ = zoo.edited("outputs", lambda graph: graph.output.pop())
    proof = zoo.verify("outputs", path, explain=True)
    assert proof.verdict is Verdict.DIVERGED and {
        (gap.status, gap.output) for gap in bad(proof)
    } == {(Status.MISSING, "hidden")}
    assert bad(proof)[0].detail == "the candidate has no such output"


def test_an_extra_output_is_a_finding(zoo: Zoo) -> None:
    def reveal(graph: onnx.GraphProto) -> str:
        name = nodes(graph, "Conv")[0].output[0]
        graph.output.append(onnx.ValueInfoProto(name=name))
        return name

    path, told = zoo.edited("conv", reveal)
    proof = zoo.verify("conv", path, only=("example",))
    assert proof.verdict is Verdict.FAITHFUL
    assert [f.what for f in proof.findings if f.code == "output-extra"] == [
        f"the file returns `{told}`, which the reference does not"
    ]


def test_outputs_in_another_order_diverge(zoo: Zoo) -> None:
    """Without names to go by, the order is the contract."""

    class Two(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return x + 1, x - 1

    steps = [
        helper.make_node("Add", ["x", "one"], ["plus"], name="plus"),
        helper.make_node("Sub", ["x", "one"], ["minus"], name="minus"),
    ]
    path = handmade(
        zoo.folder / "two.onnx",
        steps,
        {"x": (TensorProto.FLOAT, ["n"])},
        {"minus": TensorProto.FLOAT, "plus": TensorProto.FLOAT},
        one=np.float32(1),
    )
    proof = api.verify(Two(), path, (normal(5),), budget_s=10)
    assert (
        proof.verdict is Verdict.DIVERGED
        and proof.location is not None
        and proof.location.stage is Stage.SIGNATURE
    )


def test_a_table_that_is_wrong_beyond_the_example_is_found_by_ids(zoo: Zoo) -> None:
    def spoil(graph: onnx.GraphProto) -> str:
        gather = nodes(graph, "Gather")[0]
        tensor = next(t for t in graph.initializer if t.name == gather.input[0])
        table = numpy_helper.to_array(tensor).copy()
        table[40:] = 0
        tensor.CopyFrom(numpy_helper.from_array(table, tensor.name))
        return gather.name

    path, guilty = zoo.edited("words", spoil)
    assert zoo.verify("words", path, only=("example",)).verdict is Verdict.FAITHFUL
    proof = zoo.verify("words", path, explain=True)
    assert (
        proof.verdict is Verdict.DIVERGED
        and proof.location is not None
        and proof.location.nodes[0] == guilty
    )
    assert zoo.verify("words", path, only=("ids-ids-last",)).verdict is Verdict.DIVERGED


def test_a_dim_fixed_in_the_file_is_found_and_said(zoo: Zoo) -> None:
    def fix(graph: onnx.GraphProto) -> None:
        graph.input[0].type.tensor_type.shape.dim[0].dim_value = 3

    path, _ = zoo.edited("logs", fix)
    proof = zoo.verify("logs", path)
    assert (
        "dim-fixed" in {finding.code for finding in proof.findings}
        and proof.verdict is Verdict.DIVERGED
    )
    assert {gap.status for gap in bad(proof)} == {Status.REFUSED}


# --- a backend that misbehaves -------------------------------------------------------------------------------------


@pytest.mark.parametrize("lie", [stale, raising])
def test_a_backend_that_lies_is_found(zoo: Zoo, lie: Callable[[], Any]) -> None:
    error = {"error": BackendError("broken", "the device is gone")} if lie is raising else {}
    with fake_backend("liar", lie(**error)):
        proof = zoo.verify("logs", zoo.file("logs"), backends=("ort", "liar"))
    assert proof.verdict is Verdict.DIVERGED and {gap.backend for gap in bad(proof)} == {"liar"}


def test_a_backend_that_writes_into_its_inputs_spoils_nothing(zoo: Zoo) -> None:
    with fake_backend("spoiler", spoils_inputs()):
        proof = zoo.verify("logs", zoo.file("logs"), backends=("spoiler", "ort"))
    assert proof.verdict is Verdict.FAITHFUL
    assert [
        finding.code
        for finding in proof.findings
        if "`spoiler` wrote into its input `x`" in finding.what
    ] == ["input-overwritten"]


# --- the same proof again ------------------------------------------------------------------------------------------


def planned(proof: Proof) -> list[Gap]:
    return [gap for gap in proof.gaps if gap.group != "search"]


@pytest.mark.parametrize("name", ["encoder", "argmax"])
def test_one_seed_gives_one_proof(zoo: Zoo, name: str) -> None:
    first, second = (zoo.verify(name, zoo.file(name), seed=3) for _ in range(2))
    assert (
        planned(first) == planned(second)
        and first.notes == second.notes
        and first.verdict is second.verdict
    )
    shorter = min(len(first.gaps), len(second.gaps))
    assert first.gaps[:shorter] == second.gaps[:shorter] and first.dropped[:3] == second.dropped[:3]


def test_another_seed_gives_other_values(zoo: Zoo) -> None:
    first, second = (
        zoo.verify("conv", zoo.file("conv"), seed=seed, only=("ordinary-0",)).gaps[0]
        for seed in (1, 2)
    )
    assert first.rms != second.rms


def test_the_search_does_not_depend_on_the_speed_of_the_machine(zoo: Zoo) -> None:
    """Same seed, same proof, case for case: also where the search's passes take longer."""
    fast = zoo.verify("logs", zoo.file("logs"))
    searched = []

    def slow(state: Progress) -> None:
        if origin(state.case) != state.case:
            searched.append(state.case)
            time.sleep(0.05)

    again = zoo.verify("logs", zoo.file("logs"), progress=slow)
    assert searched and [gap.case for gap in again.gaps] == [gap.case for gap in fast.gaps]


REPLAYED = (
    "example",
    "ordinary-1",
    "scale-100",
    "float-x-constant rows",
    "nonfinite-x-one NaN",
    "batch=7",
    "scale-1e-06",
)


def test_one_case_replayed_gives_the_same_numbers(zoo: Zoo) -> None:
    full = {gap.case: gap for gap in zoo.verify("conv", zoo.file("conv")).gaps}
    for case in ("example", "ordinary-1", "scale-100", "batch=7"):
        (again,) = zoo.verify("conv", zoo.file("conv"), only=(case,)).gaps
        assert again.case == case
        assert (again.rms, again.max_abs, again.worst, again.compared) == (
            full[case].rms,
            full[case].max_abs,
            full[case].worst,
            full[case].compared,
        )


def test_a_replayed_case_keeps_its_ratio(zoo: Zoo) -> None:
    """The line that replays a case must show the number that the proof showed."""
    full = {gap.case: gap for gap in zoo.verify("conv", zoo.file("conv")).gaps}
    for case in REPLAYED:
        (again,) = zoo.verify("conv", zoo.file("conv"), only=(case,)).gaps
        assert again == full[case], case


def test_the_replay_line_names_case_backend_and_seed(zoo: Zoo) -> None:
    proof = zoo.verify("conv", zoo.file("conv-tanh"), seed=4, only=("example", "scale-10"))
    assert proof.worst is not None
    for words in (
        repr(proof.worst.case),
        "seed=4",
        "backends=('ort',)",
        str(zoo.file("conv-tanh")),
    ):
        assert words in proof.replay
    again = zoo.verify("conv", zoo.file("conv-tanh"), seed=4, only=(proof.worst.case,))
    assert again.verdict is proof.verdict


def test_a_case_that_is_not_there_proves_nothing(zoo: Zoo) -> None:
    assert zoo.verify("conv", zoo.file("conv"), only=("no-such-case",)).verdict is Verdict.VACUOUS


# --- budget, refusal, crash ----------------------------------------------------------------------------------------


class Slow(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        time.sleep(0.04)
        return torch.log(x.abs() + 1e-6)


@pytest.mark.parametrize("budget", [1.0, 3.0])
def test_the_budget_ends_the_cases(zoo: Zoo, budget: float) -> None:
    proof = api.verify(
        Slow(),
        zoo.file("logs"),
        (normal(3, 6),),
        dynamic_shapes=BATCH,
        budget_s=budget,
        explain=False,
    )
    slept = 0.04 * proof.passes["torch"]  # a loaded machine makes fewer passes, never more
    assert slept < 1.2 * budget + 3.0  # three seconds are for examining the runtime
    assert not proof.complete and "example" in {gap.case for gap in proof.gaps}
    enough = (
        proof.verdict is Verdict.FAITHFUL
        and len({sizes.get("batch") for sizes in proof.sizes.values()}) >= 2
    )
    assert enough or (
        proof.verdict is Verdict.VACUOUS and proof.sentence().startswith("not enough was compared")
    )  # on a machine that is too busy for the floor


def test_a_reference_that_refuses_the_example_is_an_input_error(zoo: Zoo) -> None:
    with pytest.raises(
        InputError,
        match=r"error\[example-refused\]: the reference refuses the example inputs: RuntimeError: mat1 and mat2",
    ) as caught:
        api.verify(seeded(Argmax()), zoo.file("argmax"), (normal(4, 9),), dynamic_shapes=BATCH)
    assert "call the module with them by itself" in caught.value.help


def test_an_lstm_with_an_empty_batch_does_not_kill_the_process(zoo: Zoo) -> None:
    """It aborts some versions of the runtime: whatever it does there, we are told and live."""
    proof = zoo.verify("lstm", zoo.file("lstm"), only=("example", "batch=0", "time=0"))
    assert proof.verdict is Verdict.FAITHFUL
    odd = {gap.case: gap for gap in proof.gaps if gap.case != "example"}
    dropped = {one.case for one in proof.dropped}
    assert set(odd) | dropped == {"batch=0", "time=0"}
    assert all(
        gap.domain is Domain.EMPTY or gap.status is Status.EMPTY or gap.compared
        for gap in odd.values()
    )


_KILLER = """
import os
from onnxproof.runtimes import Description, ort

class Session:
    def __init__(self, inner): self.inner, self.input_names, self.output_names = inner, inner.input_names, inner.output_names
    def run(self, inputs):
        if next(iter(inputs.values())).size == 0: os.abort()
        return self.inner.run(inputs)
    def close(self): self.inner.close()

def open(model, option=""): return Session(ort.open(model, option))
def describe(): return Description(name="killer", about="dies of an empty batch", installed=True)
"""


def test_a_runtime_that_aborts_is_a_finding_and_starts_again(zoo: Zoo, tmp_path: Path) -> None:
    """A backend installed as outsiders install one; it kills its process when the batch is empty."""
    (tmp_path / "killer_backend.py").write_text(_KILLER)
    info = tmp_path / "killer-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: killer\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[onnxproof.backends]\nkiller = killer_backend\n")
    script = f"""
import numpy as np, onnxproof
from onnxproof.runtimes.isolation.session import IsolatedSession
from onnxproof.errors import Crashed
session = IsolatedSession("killer", {str(zoo.file("logs"))!r})
assert session.run({{"x": np.ones((2, 6), np.float32)}})[0].shape == (2, 6)
try:
    session.run({{"x": np.ones((0, 6), np.float32)}})
except Crashed as why:
    print("crashed:", why.what)
assert session.run({{"x": np.ones((3, 6), np.float32)}})[0].shape == (3, 6)
session.close()
print("alive")
"""
    paths = os.pathsep.join([str(tmp_path), *(p for p in sys.path if p)])
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "crashed: `killer` aborted (SIGABRT)" in done.stdout and done.stdout.endswith("alive\n")


def test_a_runtime_that_hangs_is_ended(zoo: Zoo) -> None:
    session = IsolatedSession("ort", zoo.file("logs"), Serving(time_s=1e-9))
    (runtime,) = (
        Path(f"/proc/{session._child._process.pid}/task/{session._child._process.pid}/children")
        .read_text()
        .split()
    )  # type: ignore[union-attr]
    os.kill(int(runtime), signal.SIGSTOP)
    with pytest.raises(Crashed, match="`ort` gave no answer within 1e-09 s and was ended"):
        session.run({"x": np.ones((2, 6), np.float32)})
    session.close()


def test_a_proof_can_be_judged_again_without_a_run(zoo: Zoo) -> None:
    proof = zoo.verify("conv", zoo.file("conv-tanh"), only=("example",))
    assert proof.verdict in (Verdict.DRIFT, Verdict.DIVERGED)
    assert (
        proof.judged(replace(Policy(), noise_limit=1e9, worst_limit=1e9)).verdict
        is Verdict.FAITHFUL
    )
