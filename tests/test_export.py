"""Export that is right, or says why it can't be: dims, assumptions, modes, state, and what helps when torch fails.

Each pitfall is first shown on the naive call of torch.onnx.export, which succeeds with a wrong or crippled model; then
`onnxproof.export` must not let it pass.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import nn

import onnxproof
from onnxproof.exporter import quiet, write
from onnxproof.exporting import guards as kept_guards
from onnxproof.exporting import replacements
from onnxproof.subject import load
from onnxproof.types import ExportedDim, ExportOptions, Finding, Verdict

BUDGET_S = 1.5


@pytest.fixture(autouse=True)
def _calm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnxproof.exporting.making._TRIAL_S", 2 * BUDGET_S)
    torch.set_num_threads(1)
    torch.manual_seed(0)


def naive(module: nn.Module, inputs: tuple[Any, ...], path: Path, **options: Any) -> onnxruntime.InferenceSession:
    """What everybody calls; it must succeed, or the pitfall is none."""
    with quiet():
        torch.onnx.export(module, inputs, path, dynamo=options.pop("dynamo", True), external_data=False, **options)
    return onnxruntime.InferenceSession(path)


def answer(session: onnxruntime.InferenceSession, *arrays: torch.Tensor) -> np.ndarray:
    names = [port.name for port in session.get_inputs()]
    return session.run(None, {name: array.numpy() for name, array in zip(names, arrays, strict=True)})[0]


def export(module: nn.Module, inputs: Any, path: Path, **options: Any) -> onnxproof.Proof:
    return onnxproof.export(module, inputs, path, budget_s=BUDGET_S, explain=False, **options)


def dim(proof: onnxproof.Proof, name: str, axis: int) -> ExportedDim:
    assert proof.export is not None
    return next(row for row in proof.export.dims if (row.input, row.axis) == (name, axis))


def finding(proof: onnxproof.Proof, code: str) -> Finding:
    return next(found for found in proof.findings if found.code == code)


# ---------------------------------------------------------------- pitfall: fixed sizes


class Sentence(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.out = nn.Embedding(50, 8), nn.Linear(8, 4)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        weight = mask.unsqueeze(-1).float()
        return self.out((self.table(ids) * weight).sum(1) / weight.sum(1).clamp(min=1))


def test_without_a_word_about_dims_the_naive_file_takes_one_size_and_ours_takes_all(tmp_path: Path) -> None:
    inputs = (torch.randint(0, 50, (1, 6)), torch.ones(1, 6, dtype=torch.long))
    crippled = naive(Sentence().eval(), inputs, tmp_path / "naive.onnx")
    with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument):
        answer(crippled, torch.zeros(2, 6, dtype=torch.long), torch.ones(2, 6, dtype=torch.long))

    proof = export(Sentence(), inputs, tmp_path / "m.onnx")
    assert proof.verdict is Verdict.FAITHFUL
    assert [(row.input, row.name) for row in proof.export.dims] == [("ids", "batch"), ("ids", "sequence"), ("mask", "batch"), ("mask", "sequence")]
    assert answer(onnxruntime.InferenceSession(tmp_path / "m.onnx"), torch.zeros(3, 9, dtype=torch.long), torch.ones(3, 9, dtype=torch.long)).shape == (3, 4)


class Steps(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = torch.zeros(x.shape[0], 4)
        for step in range(x.shape[1]):
            state = torch.tanh(self.cell(x[:, step]) + state)
        return state


def test_a_loop_over_a_length_is_unrolled_by_the_naive_call_in_silence_and_told_by_ours(tmp_path: Path) -> None:
    module, x = Steps().eval(), torch.randn(2, 5, 4)
    auto = torch.export.Dim.AUTO
    wrong = naive(module, (x,), tmp_path / "naive.onnx", dynamic_shapes=({0: auto, 1: auto},))
    longer = torch.randn(2, 7, 4)
    assert np.abs(answer(wrong, longer) - module(longer).detach().numpy()).max() > 1e-2  # it takes seven steps, and walks five of them

    proof = export(module, (x,), tmp_path / "m.onnx")
    assert proof.verdict is Verdict.FAITHFUL and dim(proof, "x", 1).name == "sequence"
    assert [a.name for a in proof.export.attempts if a.worked] == ["scripted"] and "keeps x[1] open" in proof.export.attempts[-1].what
    assert np.abs(answer(onnxruntime.InferenceSession(tmp_path / "m.onnx"), longer) - module(longer).detach().numpy()).max() < 1e-5


class Walks(Steps):
    """The same loop in words that TorchScript does not know."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = torch.zeros(x.shape[0], 4)
        for step in range(x.shape[1]):
            state = {"state": torch.tanh(self.cell(x[:, step]) + state), "step": step}["state"]
        return state


def test_a_loop_that_nothing_keeps_open_is_told_with_its_line(tmp_path: Path) -> None:
    proof = export(Walks(), (torch.randn(2, 5, 4),), tmp_path / "m.onnx")
    fixed = dim(proof, "x", 1)
    assert (fixed.name, fixed.size, fixed.baked) == ("", 5, True)
    assert fixed.source is not None and fixed.source.text == "for step in range(x.shape[1]):"
    assert [d.dim_value for d in onnx.load(tmp_path / "m.onnx").graph.input[0].type.tensor_type.shape.dim] == [0, 5, 4]
    assert proof.verdict is Verdict.FAITHFUL  # on what the file takes
    assert [(a.name, a.worked) for a in proof.export.attempts] == [("scripted", False)]


def test_a_loop_over_a_length_that_must_vary_is_kept_by_scripting(tmp_path: Path) -> None:
    proof = export(Steps(), (torch.randn(2, 5, 4),), tmp_path / "m.onnx", options=ExportOptions(dynamic={"x": {1: "seq"}}))
    assert proof.verdict is Verdict.FAITHFUL
    assert proof.export is not None and [a.name for a in proof.export.attempts if a.worked] == ["scripted"]
    assert dim(proof, "x", 1).name == "seq"
    assert "Loop" in {node.op_type for node in onnx.load(tmp_path / "m.onnx").graph.node}


class Counted(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length = int(x.shape[1])
        return x.sum(1) / length


def test_a_size_that_int_freezes_is_kept_open_by_reading_the_bytecode(tmp_path: Path) -> None:
    auto = torch.export.Dim.AUTO
    wrong = naive(Counted(), (torch.randn(2, 5, 4),), tmp_path / "naive.onnx", dynamic_shapes=({0: auto, 1: auto},))
    longer = torch.randn(2, 7, 4)
    assert np.abs(answer(wrong, longer) - Counted()(longer).numpy()).max() > 1e-2  # it divides by five

    proof = export(Counted(), (torch.randn(2, 5, 4),), tmp_path / "m.onnx")
    assert proof.verdict is Verdict.FAITHFUL and dim(proof, "x", 1).name == "sequence"
    assert [a.name for a in proof.export.attempts if a.worked] == ["strict"]
    assert np.abs(answer(onnxruntime.InferenceSession(tmp_path / "m.onnx"), longer) - Counted()(longer).numpy()).max() < 1e-5


class Padded(nn.Module):
    """`int` freezes the length, and behind it stands a branch on the length: open, the file would be right for even ones alone."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length = int(x.shape[1])
        return x.sum(1) / length if length % 2 == 0 else x.sum(1)


def test_what_would_be_open_and_wrong_stays_fixed_with_the_reason(tmp_path: Path) -> None:
    proof = export(Padded(), (torch.randn(2, 6, 4),), tmp_path / "m.onnx")
    assert proof.verdict is Verdict.FAITHFUL and dim(proof, "x", 1).name == "" and dim(proof, "x", 1).baked
    refused = proof.export.attempts[0]
    assert (refused.name, refused.worked) == ("strict", False) and "keeps x[1] open, but not for all sizes: that file is diverged" in refused.what


def test_names_statics_and_ranges_of_the_user_win(tmp_path: Path) -> None:
    options = ExportOptions(dynamic={"ids": {1: "tokens"}}, static={"ids": (0,), "mask": (0,)}, ranges={"tokens": (1, 12)})
    proof = export(Sentence(), (torch.randint(0, 50, (2, 6)), torch.ones(2, 6, dtype=torch.long)), tmp_path / "m.onnx", options=options)
    assert dim(proof, "ids", 0).reason == "you asked for it"
    assert (dim(proof, "mask", 1).name, dim(proof, "mask", 1).promised, dim(proof, "mask", 1).maximum) == ("tokens", True, 12)
    assert all(size <= 12 for gap in proof.gaps if gap.case.startswith("tokens=") for size in [int(gap.case.partition("=")[2])])


@pytest.mark.parametrize(("options", "words"), [
    (ExportOptions(dynamic={"y": {0: "b"}}), "error[unknown-input]: there is no input `y`"),
    (ExportOptions(dynamic={"ids": {5: "b"}}), "error[unknown-axis]: `ids` has no axis 5"),
    (ExportOptions(dynamic={"ids": {0: "b"}}, static={"ids": (0,)}), "error[both-ways]: axis 0 of `ids` is asked to be dynamic and static"),
    (ExportOptions(ranges={"tokns": (1, 9)}), "error[unknown-dim]: there is no dim `tokns` to give a range to"),
])
def test_wishes_that_make_no_sense(tmp_path: Path, options: ExportOptions, words: str) -> None:
    with pytest.raises(onnxproof.OnnxproofError) as caught:
        export(Sentence(), (torch.randint(0, 50, (2, 6)), torch.ones(2, 6, dtype=torch.long)), tmp_path / "m.onnx", options=options)
    assert words in str(caught.value)
    assert not (tmp_path / "m.onnx").exists()


class Cached(nn.Module):
    def forward(self, x: torch.Tensor, past_key: torch.Tensor, mask: torch.Tensor) -> dict[str, torch.Tensor]:
        keys = torch.cat([past_key, x], 2)
        return {"scores": (x @ keys.transpose(2, 3)).masked_fill(~mask[:, None, None, :], -1e9), "present": keys}


def test_a_dim_that_follows_from_others_is_named_by_them_and_dict_outputs_keep_their_keys(tmp_path: Path) -> None:
    inputs = (torch.randn(2, 2, 3, 4), torch.randn(2, 2, 5, 4), torch.ones(2, 8, dtype=torch.bool))
    proof = export(Cached(), inputs, tmp_path / "m.onnx")
    assert proof.verdict is Verdict.FAITHFUL
    assert dim(proof, "past_key", 2).name == "past"
    assert set(dim(proof, "mask", 1).name.split(" + ")) == {"past", dim(proof, "x", 2).name}
    assert [port.name for port in onnx.load(tmp_path / "m.onnx").graph.output] == ["scores", "present"]


def test_a_size_of_one_that_is_broadcast_stays_and_the_batch_does_not(tmp_path: Path) -> None:
    class Shifted(nn.Module):
        def forward(self, x: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
            return x + shift

    proof = export(Shifted(), (torch.randn(4, 6), torch.randn(1, 6)), tmp_path / "m.onnx")
    assert (dim(proof, "x", 0).name, dim(proof, "shift", 0).name) == ("batch", "")
    assert dim(proof, "x", 1).name == dim(proof, "shift", 1).name != ""


# ---------------------------------------------------------------- pitfall: a branch frozen by tracing; assumptions


class Large(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] > 3:
            return x.cumsum(0)
        return x * 2


def test_a_branch_on_a_size_is_frozen_by_the_naive_call_and_an_assumption_of_ours(tmp_path: Path) -> None:
    module, x = Large(), torch.randn(2, 4)
    wrong = naive(module, (x,), tmp_path / "naive.onnx", dynamic_shapes=({0: "batch"},))
    many = torch.randn(5, 4)
    assert np.abs(answer(wrong, many) - module(many).numpy()).max() > 1e-2

    proof = export(module, (x,), tmp_path / "m.onnx")
    assert proof.verdict is Verdict.DIVERGED
    assert proof.export is not None
    guard = proof.export.guards[0]
    assert (guard.text, guard.source is not None and guard.source.text) == ("batch <= 3", "if x.shape[0] > 3:")
    assert guard.tested == "inside (batch 3): it answers as the module does; outside (batch 4): its answer is not the module's"
    assert "the file accepts batch 4, but was traced for batch <= 3 at test_export.py:" in finding(proof, "guard").what
    metadata = {prop.key: prop.value for prop in onnx.load(tmp_path / "m.onnx").metadata_props}
    assert [g.text for g in kept_guards.from_metadata(metadata)] == ["batch <= 3"]
    assert json.loads(metadata["onnxproof.dims"])[0]["maximum"] == 3


def test_within_a_promised_range_that_the_assumption_covers_the_same_model_is_faithful(tmp_path: Path) -> None:
    proof = export(Large(), (torch.randn(2, 4),), tmp_path / "m.onnx", options=ExportOptions(ranges={"batch": (1, 3)}))
    assert proof.verdict is Verdict.FAITHFUL
    assert "your range for batch leaves them out" in proof.export.guards[0].tested


def test_an_assumption_that_is_undefined_at_a_size_does_not_cover_it() -> None:
    from sympy import Eq, Symbol
    from torch.utils._sympy.functions import PythonMod

    size = Symbol("s", integer=True, positive=True)
    remainder = Eq(PythonMod(12, size - 3), 0)
    assert kept_guards.holds(remainder, {size: 7})
    assert not kept_guards.holds(remainder, {size: 8})
    assert not kept_guards.holds(remainder, {size: 3})  # a division by zero, as a window of Swin that is as large as the image


class Signed(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            y = x * 2
            y = y + 0.5
        else:
            y = x - 1
        return y


def test_a_branch_on_a_value_is_frozen_by_naive_tracing_and_rewritten_by_ours(tmp_path: Path) -> None:
    module, x = Signed(), torch.ones(2, 3)
    wrong = naive(module, (x,), tmp_path / "naive.onnx", dynamo=False)
    below = -3 * x
    assert np.abs(answer(wrong, below) - module(below).numpy()).max() > 0.5

    proof = export(module, (x,), tmp_path / "m.onnx")
    assert proof.verdict is Verdict.FAITHFUL
    assert [a.name for a in proof.export.attempts if a.worked] == ["branch"]
    assert np.array_equal(answer(onnxruntime.InferenceSession(tmp_path / "m.onnx"), below), module(below).numpy())
    assert "forward" not in module.__dict__  # the user's module is as it was


class Returns(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.mean() > 0:
            return x * 2
        x = x + 1
        return x * 3


class Expression(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.mean() > 0 else x * 3


@pytest.mark.parametrize("module", [Returns(), Expression()], ids=["returns", "expression"])
def test_other_forms_of_a_branch_are_rewritten_too(tmp_path: Path, module: nn.Module) -> None:
    assert export(module, (torch.ones(2, 3),), tmp_path / "m.onnx").verdict is Verdict.FAITHFUL


# ---------------------------------------------------------------- pitfall: training mode; state; random numbers


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.norm, self.drop = nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.drop(self.norm(self.inner(x)))


def test_a_module_in_training_mode_is_exported_in_eval_mode_with_the_layers_named(tmp_path: Path) -> None:
    module, x = Net().train(), torch.randn(8, 6)
    wrong = naive(module, (x,), tmp_path / "naive.onnx")
    module.eval()
    assert np.abs(answer(wrong, x) - module(x).detach().numpy()).max() > 1e-2

    module.train()
    before = module.norm.running_mean.clone()
    proof = export(module, (x,), tmp_path / "m.onnx")
    assert proof.verdict is Verdict.FAITHFUL
    assert "in training mode, and these layers answer differently there: norm (BatchNorm1d), drop (Dropout)" in proof.export.warnings[0]
    assert module.training and torch.equal(module.norm.running_mean, before)


def test_layers_that_do_not_look_at_the_mode_are_not_named(tmp_path: Path) -> None:
    assert export(nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.0)), (torch.randn(2, 3),), tmp_path / "m.onnx").export.warnings == ()


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
    assert "forward changes the buffer `calls`; the second call with the same inputs answers differently" in finding(proof, "state").what
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
        return (x.double() * 1e8 + 1).sub(1e8 * x.double()).float()


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
            tensor.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor).astype(np.float32), tensor.name))
    for value in model.graph.value_info:
        value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    onnx.save(model, tmp_path / "narrow.onnx")
    assert onnxproof.verify(Double(), tmp_path / "narrow.onnx", (x,), budget_s=BUDGET_S, explain=False).verdict is Verdict.DIVERGED

    assert export(Double(), (x,), tmp_path / "m.onnx").verdict is Verdict.FAITHFUL  # ours keeps float64


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


class Chosen(nn.Module):
    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return x[mask].sum(0)


class Lists(nn.Module):
    def forward(self, x: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        first, second = ends.tolist()
        return x[:, :first].sum(1) + x[:, :second].sum(1)


@pytest.mark.parametrize(("module", "inputs", "way"), [
    (OneMinus(), (torch.arange(6).reshape(2, 3),), "replacement"),
    (Rounded(), (torch.randn(2, 3), torch.tensor(2.6)), "replacement"),
    (Middle(), (torch.randn(4, 5),), "replacement"),
    (Chosen(), (torch.randn(4, 3), torch.tensor([True, False, True, False])), None),
    (Lists(), (torch.randn(3, 9), torch.tensor([2, 3])), None),
], ids=["one-minus-integers", "round-item", "median", "boolean-mask", "tolist"])
def test_known_crashes_export_and_say_what_helped(tmp_path: Path, module: nn.Module, inputs: Any, way: str | None) -> None:
    proof = export(module, inputs, tmp_path / "m.onnx")
    assert proof.verdict is Verdict.FAITHFUL
    assert [a.name for a in proof.export.attempts if a.worked] == ([way] if way else [])


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

    with pytest.raises(onnxproof.OnnxproofError, match="tried traced: traced by the older TorchScript exporter; it exports, but the file is diverged"):
        export(Peak(), (torch.randn(2, 3),), tmp_path / "m.onnx")


@pytest.mark.parametrize(("ours", "theirs"), [
    (lambda x: replacements.cummax(x, 1), lambda x: torch.cummax(x, 1)),
    (lambda x: replacements.cummin(x, 0), lambda x: torch.cummin(x, 0)),
    (lambda x: replacements.median(x, 1), lambda x: torch.median(x, 1)),
    (lambda x: replacements.kthvalue(x, 3, 1, True), lambda x: torch.kthvalue(x, 3, 1, True)),
    (lambda x: (replacements.searchsorted(x.sort(1)[0], x, right=True),), lambda x: (torch.searchsorted(x.sort(1)[0], x, right=True),)),
    (lambda x: (replacements.rsub(x.long(), 1.5, 2),), lambda x: (torch.rsub(x.long().float(), 1.5, alpha=2),)),
], ids=["cummax", "cummin", "median", "kthvalue", "searchsorted", "rsub"])
def test_a_replacement_is_the_operator(ours: Any, theirs: Any) -> None:
    x = torch.randn(6, 7).mul(4).round()  # with ties
    for got, want in zip(ours(x), theirs(x), strict=True):
        assert got.dtype == want.dtype
        if want.dtype.is_floating_point:  # which of two equal places is named is nobody's promise
            assert torch.equal(got, want)


# ---------------------------------------------------------------- the record


def test_the_module_is_left_alone_and_the_record_is_part_of_the_json(tmp_path: Path) -> None:
    module = Net().train()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    proof = export(module, (torch.randn(3, 6),), tmp_path / "m.onnx")
    assert module.training and all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    proof.to_json(tmp_path / "p.json")
    document = json.loads((tmp_path / "p.json").read_text())
    assert document["export"]["dims"][0] | {"name": "batch", "input": "x"} == document["export"]["dims"][0]


def test_an_export_alone_can_be_asked_for(tmp_path: Path) -> None:
    written = write(load(nn.Linear(3, 2), (torch.randn(1, 3),)), tmp_path / "m.onnx")
    assert [row.name for row in written.record.dims] == ["batch", ""]
    assert (tmp_path / "m.onnx").is_file()


def test_a_module_without_a_line_of_its_own_blames_nobody_elses(tmp_path: Path) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU())
    proof = onnxproof.export(module, (torch.randn(2, 8),), tmp_path / "m.onnx", budget_s=2, explain=False)
    assert proof.export is not None
    lines = [dim.source.file for dim in proof.export.dims if dim.source is not None]
    assert [file for file in lines if file == __file__ or "pytest" in file] == []
