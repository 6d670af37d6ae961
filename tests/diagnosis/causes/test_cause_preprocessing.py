"""The cause `preprocessing`: inputs that the file expects in another form."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.module_workbenches import file_of, module_workbench, node
from support.workbenches import without_tally

from onnxproof.diagnosis.causes import preprocessing
from onnxproof.diagnosis.counterfactuals.workbench import ComparedCases, Tried, Workbench
from onnxproof.results import Location, Stage

RNG = np.random.default_rng(0)
IMAGE = {"x": RNG.random(size=(1, 3, 6, 6)).astype(np.float32)}
OTHER = {"x": RNG.random(size=(1, 3, 6, 6)).astype(np.float32)}
KERNEL = RNG.normal(size=(5, 3, 2, 2)).astype(np.float32)
BIAS = RNG.normal(size=5).astype(np.float32)
MEAN, STD = (
    np.array(numbers, np.float32).reshape(1, 3, 1, 1)
    for numbers in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
)
NOTHING = "no other preparation of an input makes the answers right"


class Conv(torch.nn.Module):
    """A convolution of an image that is normalized as those of ImageNet are, or not at all."""

    def __init__(self, normalize: bool = False) -> None:
        super().__init__()
        self.normalize = normalize
        self.layer = torch.nn.Conv2d(3, 5, 2)
        self.register_buffer("mean", torch.from_numpy(MEAN.copy()))
        self.register_buffer("std", torch.from_numpy(STD.copy()))
        with torch.no_grad():
            self.layer.weight.copy_(torch.from_numpy(KERNEL))
            if self.layer.bias is not None:
                self.layer.bias.copy_(torch.from_numpy(BIAS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.normalize:
            x = (x - self.mean) / self.std
        return torch.tanh(self.layer(x))


def bench_of(
    folder: Path,
    before: list[Any],
    *,
    read: str = "x",
    normalize: bool = False,
    activation: str = "Tanh",
    inputs: Any = None,
    **constants: Any,
) -> Workbench:
    """The file of the convolution, with some nodes between its input and the layer."""
    witness = inputs or IMAGE
    nodes = [
        *before,
        node("Conv", read, "kernel", "bias", output="conv"),
        node(activation, "conv"),
    ]
    arrays = {"kernel": KERNEL, "bias": BIAS, "mean": MEAN, "std": STD}
    file = file_of(nodes, witness, {**arrays, **constants})
    return module_workbench(
        folder, Conv(normalize), file, witness, located={"conv": "convolution"}, others=[OTHER]
    )


def evidence_of(tried: Tried | str) -> str:
    assert isinstance(tried, Tried)
    assert tried.proven
    assert tried.model is not None
    return without_tally(tried.evidence)


def test_channels_in_the_reverse_order_are_named(tmp_path: Path) -> None:
    flip = [node("Gather", "x", "order", output="bgr", axis=1)]
    bench = bench_of(tmp_path, flip, read="bgr", order=np.array([2, 1, 0]))
    assert evidence_of(preprocessing.test(bench)) == (
        "with its input `x` with its channels in the order [2, 1, 0] (RGB and BGR), "
        "the file matches the module"
    )


def test_a_division_that_the_file_does_once_more_is_named(tmp_path: Path) -> None:
    scale = [node("Div", "x", "levels", output="small")]
    bench = bench_of(tmp_path, scale, read="small", levels=np.array(255, np.float32))
    assert evidence_of(preprocessing.test(bench)) == (
        "with its input `x` times 255 (the module has no scaling, the file a division by 255), "
        "the file matches the module"
    )


def test_a_norm_that_the_file_leaves_out_is_named(tmp_path: Path) -> None:
    evidence = evidence_of(preprocessing.test(bench_of(tmp_path, [], normalize=True)))
    assert evidence.startswith(
        "with its input `x` times [4.367, 4.464, 4.444] and plus [-2.118, -2.036, -1.804] "
    )


def test_the_mended_file_does_it_by_itself(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, [], normalize=True)
    tried = preprocessing.test(bench)
    assert isinstance(tried, Tried)
    assert tried.model is not None
    assert bench.distance(tried.model) < 1e-5


def test_ids_that_are_counted_from_another_number_are_named(tmp_path: Path) -> None:
    class Table(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rows = torch.nn.Embedding(9, 4)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.rows(ids)

    module = Table()
    table = module.rows.weight.detach().numpy()
    shifted = np.concatenate([table[:2] * 0, table])
    ids = {"ids": np.array([[1, 5, 2]])}
    file = file_of([node("Gather", "table", "ids")], ids, {"table": shifted})
    bench = module_workbench(tmp_path, module, file, ids, located={"y": "embedding"})
    assert evidence_of(preprocessing.test(bench)) == (
        "with its input `ids` plus 2 (ids that are counted from another number), "
        "the file matches the module"
    )


def test_a_fault_behind_the_first_layer_is_not_sought_before_it(tmp_path: Path) -> None:
    assert preprocessing.test(bench_of(tmp_path, [], activation="Sigmoid")) == NOTHING


def test_channels_that_are_reversed_behind_a_right_layer_are_not_reversed_before_it(
    tmp_path: Path,
) -> None:
    class Each(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Conv2d(3, 3, 1, bias=False)
            with torch.no_grad():
                self.layer.weight.copy_(torch.eye(3)[:, :, None, None])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x)

    nodes = [
        node("Conv", "x", "kernel", output="conv"),
        node("Gather", "conv", "order", axis=1),
    ]
    constants = {
        "kernel": np.eye(3, dtype=np.float32)[:, :, None, None].copy(),
        "order": np.array([2, 1, 0]),
    }
    file = file_of(nodes, IMAGE, constants)
    bench = module_workbench(tmp_path, Each(), file, IMAGE, located={"y": "convolution"})
    assert preprocessing.test(bench) == NOTHING


def test_a_blur_is_no_other_scaling(tmp_path: Path) -> None:
    blur = [
        node(
            "AveragePool",
            "x",
            output="blurred",
            kernel_shape=[3, 3],
            pads=[1, 1, 1, 1],
            count_include_pad=1,
        )
    ]
    bench = bench_of(tmp_path, blur, read="blurred")
    assert bench.before > 0.01
    assert preprocessing.test(bench) == NOTHING


def test_other_cases_tell_an_accident_of_the_witness_from_its_preparation(
    tmp_path: Path,
) -> None:
    alike = {"x": IMAGE["x"].copy()}
    alike["x"][:, 1] = alike["x"][:, 2]  # so that a channel twice looks like the reverse order
    take = [node("Gather", "x", "order", output="taken", axis=1)]
    bench = bench_of(tmp_path, take, read="taken", inputs=alike, order=np.array([2, 0, 0]))
    assert preprocessing.test(bench) == NOTHING
    alone = Workbench(bench.scene, bench.located, cases=ComparedCases(), policy=bench.policy)
    assert preprocessing.test(alone) == NOTHING  # where the run has no other, one is made


@pytest.mark.parametrize("stage", [Stage.RUNTIME, Stage.OPTIMIZER])
def test_a_file_that_is_right_itself_is_not_prepared(stage: Stage, tmp_path: Path) -> None:
    bench = bench_of(tmp_path, [], normalize=True)
    bench = Workbench(
        bench.scene,
        replace(bench.located, location=Location(stage=stage)),
        cases=bench.cases,
        policy=bench.policy,
    )
    assert preprocessing.test(bench) == "the file itself is right"


def test_a_vector_has_no_usual_preparation(tmp_path: Path) -> None:
    class Double(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    vector = {"x": np.ones((2, 5), np.float32)}
    file = file_of([node("Identity", "x")], vector)
    assert preprocessing.test(module_workbench(tmp_path, Double(), file, vector)) == (
        "no input looks like an image, a sound or a text"
    )
