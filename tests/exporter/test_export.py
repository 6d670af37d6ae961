"""Export that is right, or says why it can't be: modes, state, precision, and what helps when torch fails.

Each pitfall is first shown on the naive call of torch.onnx.export, which succeeds with a wrong or crippled model; then
`onnxproof.export` must not let it pass. Dims and assumptions are in test_export_dims.py.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from support.exports import BUDGET_S, answer, calm, export, finding, naive  # noqa: F401 - the fixture is used by being here
from torch import nn

import onnxproof
from onnxproof.exporter import replacements
from onnxproof.exporter.export import write
from onnxproof.reference.subject import load
from onnxproof.results import Verdict

# ---------------------------------------------------------------- pitfall: training mode; state; random numbers


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.norm, self.drop = nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.drop(self.norm(self.inner(x)))


def test_a_module_in_training_mode_is_exported_in_eval_mode_with_the_layers_named(
    tmp_path: Path,
) -> None:
    module, x = Net().train(), torch.randn(8, 6)
    wrong = naive(module, (x,), tmp_path / "naive.onnx")
    module.eval()
    assert np.abs(answer(wrong, x) - module(x).detach().numpy()).max() > 1e-2

    module.train()
    before = module.norm.running_mean.clone()
    proof = export(module, (x,), tmp_path / "m.onnx")
    assert proof.verdict is Verdict.FAITHFUL
    assert (
        "in training mode, and these layers answer differently there: norm (BatchNorm1d), drop (Dropout)"
        in proof.export.warnings[0]
    )
    assert module.training and torch.equal(module.norm.running_mean, before)


def test_layers_that_do_not_look_at_the_mode_are_not_named(tmp_path: Path) -> None:
    assert (
        export(
            nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.0)),
            (torch.randn(2, 3),),
            tmp_path / "m.onnx",
        ).export.warnings
        == ()
    )


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * self.calls


def test_state_between_calls_is_found_by_calling_twice(tmp_path: Path) -> None:
    module = Counts()
    proof = export(module, (torch.randn(2, 3),), tmp_path / "m.onnx")
    assert (
        "forward changes the buffer `calls`; the second call with the same inputs answers differently"
        in finding(proof, "state").what
    )
    assert float(module.calls) == 0.0


def test_dropout_that_nobody_switches_off_is_told_with_its_line(tmp_path: Path) -> None:
    class Noisy(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.dropout(x, 0.5)

    said = finding(export(Noisy(), (torch.randn(2, 3),), tmp_path / "m.onnx"), "random").what
    assert "aten.dropout" in said and "test_export.py:" in said


# ---------------------------------------------------------------- pitfall: float64 that turns into float32; outputs never tested


class Double(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x.double() * 1e8 + x.double()).sub(1e8 * x.double()).float()


def test_float64_that_a_naive_conversion_narrows_is_caught(tmp_path: Path) -> None:
    x = torch.rand(4, 3) + 1
    naive(Double(), (x,), tmp_path / "naive.onnx")
    model = onnx.load(tmp_path / "naive.onnx")
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name == "to" and attribute.i == onnx.TensorProto.DOUBLE:
                attribute.i = onnx.TensorProto.FLOAT
    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.DOUBLE:
            tensor.CopyFrom(
                onnx.numpy_helper.from_array(
                    onnx.numpy_helper.to_array(tensor).astype(np.float32), tensor.name
                )
            )
    for value in model.graph.value_info:
        value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    onnx.save(model, tmp_path / "narrow.onnx")
    assert (
        onnxproof.verify(
            Double(), tmp_path / "narrow.onnx", (x,), budget_s=BUDGET_S, explain=False
        ).verdict
        is Verdict.DIVERGED
    )

    assert (
        export(Double(), (x,), tmp_path / "m.onnx").verdict is Verdict.FAITHFUL
    )  # ours keeps float64


# ---------------------------------------------------------------- pitfall: operators, and the known crashes


class OneMinus(nn.Module):
    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return 1.0 - ids


class Rounded(nn.Module):
    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return x * round(scale.item())


class Middle(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.median(1)[0] + x.median() + x.cummax(1)[0][:, -1]


class Nearest(nn.Module):
    """As a codebook is read."""

    def forward(self, x: torch.Tensor, book: torch.Tensor) -> torch.Tensor:
        return torch.cdist(x, book).amin(1)


class Chosen(nn.Module):
    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return x[mask].sum(0)


class Lists(nn.Module):
    def forward(self, x: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        first, second = ends.tolist()
        return x[:, :first].sum(1) + x[:, :second].sum(1)


torch.manual_seed(0)  # the inputs below are drawn once, and a failure should be there again


@pytest.mark.parametrize(
    ("module", "inputs", "way"),
    [
        (OneMinus(), (torch.arange(6).reshape(2, 3),), "replacement"),
        (Rounded(), (torch.randn(2, 3), torch.tensor(2.6)), "replacement"),
        (Middle(), (torch.randn(4, 5),), "replacement"),
        (Nearest(), (torch.randn(4, 5), torch.randn(3, 5)), "replacement"),
        (Chosen(), (torch.randn(4, 3), torch.tensor([True, False, True, False])), None),
        (Lists(), (torch.randn(3, 9), torch.tensor([2, 3])), None),
    ],
    ids=["one-minus-integers", "round-item", "median", "cdist", "boolean-mask", "tolist"],
)
def test_known_crashes_export_and_say_what_helped(
    tmp_path: Path, module: nn.Module, inputs: Any, way: str | None
) -> None:
    proof = export(module, inputs, tmp_path / "m.onnx")
    assert proof.verdict is Verdict.FAITHFUL
    assert [a.name for a in proof.export.attempts if a.worked] == ([way] if way else [])


class Plain(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 1.0 - x


def test_an_operator_with_a_replacement_that_torch_can_do_without_is_left_to_torch(
    tmp_path: Path,
) -> None:
    assert export(Plain(), (torch.randn(2, 3),), tmp_path / "m.onnx").export.attempts == ()


class Bessel(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.special.bessel_j1(x)


def test_an_operator_that_nothing_helps_with_is_told_with_the_users_line(tmp_path: Path) -> None:
    with pytest.raises(onnxproof.OnnxproofError) as caught:
        export(Bessel(), (torch.rand(2, 3),), tmp_path / "m.onnx")
    said = str(caught.value)
    assert "ONNX has no translation for the operator `prims.bessel_j1`" in said
    assert f"--> {__file__}:" in said and "`return torch.special.bessel_j1(x)`" in said
    assert "tried replacement: " in said and "tried traced: " in said
    assert not (tmp_path / "m.onnx").exists()


def test_the_older_exporter_is_refused_where_it_freezes_a_value(tmp_path: Path) -> None:
    class Peak(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * float(x.detach().numpy().max())

    with pytest.raises(
        onnxproof.OnnxproofError,
        match="tried traced: traced by the older TorchScript exporter; it exports, but the file is diverged",
    ):
        export(Peak(), (torch.randn(2, 3),), tmp_path / "m.onnx")


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (lambda x: replacements.cummax(x, 1), lambda x: torch.cummax(x, 1)),
        (lambda x: replacements.cummin(x, 0), lambda x: torch.cummin(x, 0)),
        (lambda x: replacements.median(x, 1), lambda x: torch.median(x, 1)),
        (lambda x: replacements.kthvalue(x, 3, 1, True), lambda x: torch.kthvalue(x, 3, 1, True)),
        (
            lambda x: (replacements.searchsorted(x.sort(1)[0], x, right=True),),
            lambda x: (torch.searchsorted(x.sort(1)[0], x, right=True),),
        ),
        (
            lambda x: (replacements.rsub(x.long(), 1.5, 2),),
            lambda x: (torch.rsub(x.long().float(), 1.5, alpha=2),),
        ),
        *[
            (
                (lambda x, p=p: (replacements.cdist(x, x[:3], p),)),
                (lambda x, p=p: (torch.cdist(x, x[:3], p),)),
            )
            for p in (0.0, 1.0, 2.0, 3.0, float("inf"))
        ],
        (
            lambda x: (replacements.hypot(x * 1e30, x[0] * 1e30),),
            lambda x: (torch.hypot(x * 1e30, x[0] * 1e30),),
        ),
    ],
    ids=[
        "cummax",
        "cummin",
        "median",
        "kthvalue",
        "searchsorted",
        "rsub",
        "cdist-0",
        "cdist-1",
        "cdist-2",
        "cdist-3",
        "cdist-inf",
        "hypot",
    ],
)
def test_a_replacement_is_the_operator(ours: Any, theirs: Any) -> None:
    x = torch.randn(6, 7).mul(4).round()  # with ties
    for got, want in zip(ours(x), theirs(x), strict=True):
        assert got.dtype == want.dtype
        if want.dtype.is_floating_point:  # which of two equal places is named is nobody's promise
            torch.testing.assert_close(got, want, rtol=1e-6, atol=0)


# ---------------------------------------------------------------- the record


def test_the_module_is_left_alone_and_the_record_is_part_of_the_json(tmp_path: Path) -> None:
    module = Net().train()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    proof = export(module, (torch.randn(3, 6),), tmp_path / "m.onnx")
    assert module.training and all(
        torch.equal(value, before[name]) for name, value in module.state_dict().items()
    )
    proof.to_json(tmp_path / "p.json")
    document = json.loads((tmp_path / "p.json").read_text())
    assert (
        document["export"]["dims"][0] | {"name": "batch", "input": "x"}
        == document["export"]["dims"][0]
    )


def test_an_export_alone_can_be_asked_for(tmp_path: Path) -> None:
    written = write(load(nn.Linear(3, 2), (torch.randn(1, 3),)), tmp_path / "m.onnx")
    assert [row.name for row in written.record.dims] == ["batch", ""]
    assert (tmp_path / "m.onnx").is_file()


def test_a_module_without_a_line_of_its_own_blames_nobody_elses(tmp_path: Path) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU())
    proof = onnxproof.export(
        module, (torch.randn(2, 8),), tmp_path / "m.onnx", budget_s=2, explain=False
    )
    assert proof.export is not None
    lines = [dim.source.file for dim in proof.export.dims if dim.source is not None]
    assert [file for file in lines if file == __file__ or "pytest" in file] == []
