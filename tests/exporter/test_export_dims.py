"""Dims that stay open, or say what fixed them; assumptions about sizes, and branches on values.

Each pitfall is first shown on the naive call of torch.onnx.export, which succeeds with a wrong or crippled model; then
`onnxproof.export` must not let it pass.
"""

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from support.exports import answer, calm, dim, export, finding, naive  # noqa: F401 - the fixture is used by being here
from torch import nn

import onnxproof
from onnxproof.exporter import guards as kept_guards
from onnxproof.options import ExportOptions
from onnxproof.results import Verdict


class Sentence(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.out = nn.Embedding(50, 8), nn.Linear(8, 4)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        weight = mask.unsqueeze(-1).float()
        return self.out((self.table(ids) * weight).sum(1) / weight.sum(1).clamp(min=1))


def test_without_a_word_about_dims_the_naive_file_takes_one_size_and_ours_takes_all(
    tmp_path: Path,
) -> None:
    inputs = (torch.randint(0, 50, (1, 6)), torch.ones(1, 6, dtype=torch.long))
    crippled = naive(Sentence().eval(), inputs, tmp_path / "naive.onnx")
    with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument):
        answer(crippled, torch.zeros(2, 6, dtype=torch.long), torch.ones(2, 6, dtype=torch.long))

    proof = export(Sentence(), inputs, tmp_path / "m.onnx")
    assert proof.verdict is Verdict.FAITHFUL
    assert [(row.input, row.name) for row in proof.export.dims] == [
        ("ids", "batch"),
        ("ids", "sequence"),
        ("mask", "batch"),
        ("mask", "sequence"),
    ]
    assert answer(
        onnxruntime.InferenceSession(tmp_path / "m.onnx"),
        torch.zeros(3, 9, dtype=torch.long),
        torch.ones(3, 9, dtype=torch.long),
    ).shape == (3, 4)


class Steps(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = torch.zeros(x.shape[0], 4)
        for step in range(x.shape[1]):
            state = torch.tanh(self.cell(x[:, step]) + state)
        return state


def test_a_loop_over_a_length_is_unrolled_by_the_naive_call_in_silence_and_told_by_ours(
    tmp_path: Path,
) -> None:
    module, x = Steps().eval(), torch.randn(2, 5, 4)
    auto = torch.export.Dim.AUTO
    wrong = naive(module, (x,), tmp_path / "naive.onnx", dynamic_shapes=({0: auto, 1: auto},))
    longer = torch.randn(2, 7, 4)
    assert (
        np.abs(answer(wrong, longer) - module(longer).detach().numpy()).max() > 1e-2
    )  # it takes seven steps, and walks five of them

    proof = export(module, (x,), tmp_path / "m.onnx")
    assert proof.verdict is Verdict.FAITHFUL and dim(proof, "x", 1).name == "sequence"
    assert [a.name for a in proof.export.attempts if a.worked] == [
        "scripted"
    ] and "keeps x[1] open" in proof.export.attempts[-1].what
    assert (
        np.abs(
            answer(onnxruntime.InferenceSession(tmp_path / "m.onnx"), longer)
            - module(longer).detach().numpy()
        ).max()
        < 1e-5
    )


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
    assert [
        d.dim_value
        for d in onnx.load(tmp_path / "m.onnx").graph.input[0].type.tensor_type.shape.dim
    ] == [0, 5, 4]
    assert proof.verdict is Verdict.FAITHFUL  # on what the file takes
    assert [(a.name, a.worked) for a in proof.export.attempts] == [("scripted", False)]


def test_a_loop_that_nothing_keeps_open_and_that_must_vary_is_an_error_at_its_line(
    tmp_path: Path,
) -> None:
    with pytest.raises(onnxproof.OnnxproofError) as caught:
        export(
            Walks(),
            (torch.randn(2, 5, 4),),
            tmp_path / "m.onnx",
            options=ExportOptions(dynamic={"x": {1: "seq"}}),
        )
    said = str(caught.value)
    assert (
        "dim 1 of `x` should vary, and the module fixes it at 5" in said
        and "`for step in range(x.shape[1]):`" in said
        and f"--> {__file__}:" in said
    )
    assert "tried scripted: " in said and not (tmp_path / "m.onnx").exists()


def test_a_loop_over_a_length_that_must_vary_is_kept_by_scripting(tmp_path: Path) -> None:
    proof = export(
        Steps(),
        (torch.randn(2, 5, 4),),
        tmp_path / "m.onnx",
        options=ExportOptions(dynamic={"x": {1: "seq"}}),
    )
    assert proof.verdict is Verdict.FAITHFUL
    assert proof.export is not None and [a.name for a in proof.export.attempts if a.worked] == [
        "scripted"
    ]
    assert dim(proof, "x", 1).name == "seq"
    assert "Loop" in {node.op_type for node in onnx.load(tmp_path / "m.onnx").graph.node}


def test_names_statics_and_ranges_of_the_user_win(tmp_path: Path) -> None:
    options = ExportOptions(
        dynamic={"ids": {1: "tokens"}},
        static={"ids": (0,), "mask": (0,)},
        ranges={"tokens": (1, 12)},
    )
    proof = export(
        Sentence(),
        (torch.randint(0, 50, (2, 6)), torch.ones(2, 6, dtype=torch.long)),
        tmp_path / "m.onnx",
        options=options,
    )
    assert dim(proof, "ids", 0).reason == "you asked for it"
    assert (
        dim(proof, "mask", 1).name,
        dim(proof, "mask", 1).promised,
        dim(proof, "mask", 1).maximum,
    ) == ("tokens", True, 12)
    assert all(
        size <= 12
        for gap in proof.gaps
        if gap.case.startswith("tokens=")
        for size in [int(gap.case.partition("=")[2].split()[0])]
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (ExportOptions(dynamic={"y": {0: "b"}}), "error[unknown-input]: there is no input `y`"),
        (ExportOptions(dynamic={"ids": {5: "b"}}), "error[unknown-axis]: `ids` has no axis 5"),
        (
            ExportOptions(dynamic={"ids": {0: "b"}}, static={"ids": (0,)}),
            "error[both-ways]: axis 0 of `ids` is asked to be dynamic and static",
        ),
        (
            ExportOptions(ranges={"tokns": (1, 9)}),
            "error[unknown-dim]: there is no dim `tokns` to give a range to",
        ),
    ],
)
def test_wishes_that_make_no_sense(tmp_path: Path, options: ExportOptions, words: str) -> None:
    with pytest.raises(onnxproof.OnnxproofError) as caught:
        export(
            Sentence(),
            (torch.randint(0, 50, (2, 6)), torch.ones(2, 6, dtype=torch.long)),
            tmp_path / "m.onnx",
            options=options,
        )
    assert words in str(caught.value)
    assert not (tmp_path / "m.onnx").exists()


class Cached(nn.Module):
    def forward(
        self, x: torch.Tensor, past_key: torch.Tensor, mask: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        keys = torch.cat([past_key, x], 2)
        return {
            "scores": (x @ keys.transpose(2, 3)).masked_fill(~mask[:, None, None, :], -1e9),
            "present": keys,
        }


def test_a_dim_that_follows_from_others_is_named_by_them_and_dict_outputs_keep_their_keys(
    tmp_path: Path,
) -> None:
    inputs = (torch.randn(2, 2, 3, 4), torch.randn(2, 2, 5, 4), torch.ones(2, 8, dtype=torch.bool))
    proof = export(Cached(), inputs, tmp_path / "m.onnx")
    assert proof.verdict is Verdict.FAITHFUL
    assert dim(proof, "past_key", 2).name == "past"
    assert set(dim(proof, "mask", 1).name.split(" + ")) == {"past", dim(proof, "x", 2).name}
    assert [port.name for port in onnx.load(tmp_path / "m.onnx").graph.output] == [
        "scores",
        "present",
    ]


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


def test_a_branch_on_a_size_is_frozen_by_the_naive_call_and_an_assumption_of_ours(
    tmp_path: Path,
) -> None:
    module, x = Large(), torch.randn(2, 4)
    wrong = naive(module, (x,), tmp_path / "naive.onnx", dynamic_shapes=({0: "batch"},))
    many = torch.randn(5, 4)
    assert np.abs(answer(wrong, many) - module(many).numpy()).max() > 1e-2

    proof = export(module, (x,), tmp_path / "m.onnx")
    assert proof.verdict is Verdict.DIVERGED
    assert proof.export is not None
    guard = proof.export.guards[0]
    assert (guard.text, guard.source is not None and guard.source.text) == (
        "batch <= 3",
        "if x.shape[0] > 3:",
    )
    assert (
        guard.tested
        == "inside (batch 3): it answers as the module does; outside (batch 4): its answer is not the module's"
    )
    assert (
        "the file accepts batch 4, but was traced for batch <= 3 at test_export_dims.py:"
        in finding(proof, "guard").what
    )
    metadata = {prop.key: prop.value for prop in onnx.load(tmp_path / "m.onnx").metadata_props}
    assert [g.text for g in kept_guards.from_metadata(metadata)] == ["batch <= 3"]
    assert json.loads(metadata["onnxproof.dims"])[0]["maximum"] == 3


class Lonely(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] == 1:
            return x * 3
        return x * 2


def test_a_size_of_one_that_is_special_is_an_assumption_and_tried(tmp_path: Path) -> None:
    wrong = naive(
        Lonely(),
        (torch.randn(2, 4),),
        tmp_path / "naive.onnx",
        dynamic_shapes=({0: torch.export.Dim.AUTO},),
    )
    one = torch.randn(1, 4)
    assert (
        np.abs(answer(wrong, one) - Lonely()(one).numpy()).max() > 1e-2
    )  # it takes a batch of one, and answers as for two

    proof = export(Lonely(), (torch.randn(2, 4),), tmp_path / "m.onnx")
    assert proof.verdict is Verdict.DIVERGED
    guard = proof.export.guards[0]
    assert (guard.text, guard.source.text) == (
        "batch != 1",
        "if x.shape[0] == 1:",
    ) and "outside (batch 1): its answer is not the module's" in guard.tested
    assert "the file accepts batch 1, but was traced for batch != 1" in finding(proof, "guard").what


def test_within_a_promised_range_that_the_assumption_covers_the_same_model_is_faithful(
    tmp_path: Path,
) -> None:
    proof = export(
        Large(),
        (torch.randn(2, 4),),
        tmp_path / "m.onnx",
        options=ExportOptions(ranges={"batch": (1, 3)}),
    )
    assert proof.verdict is Verdict.FAITHFUL
    assert "your range for batch leaves them out" in proof.export.guards[0].tested


def test_an_assumption_that_is_undefined_at_a_size_does_not_cover_it() -> None:
    from sympy import Eq, Symbol
    from torch.utils._sympy.functions import PythonMod

    size = Symbol("s", integer=True, positive=True)
    remainder = Eq(PythonMod(12, size - 3), 0)
    assert kept_guards.holds(remainder, {size: 7})
    assert not kept_guards.holds(remainder, {size: 8})
    assert not kept_guards.holds(
        remainder, {size: 3}
    )  # a division by zero, as a window of Swin that is as large as the image


class Signed(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            y = x * 2
            y = y + 0.5
        else:
            y = x - 1
        return y


def test_a_branch_on_a_value_is_frozen_by_naive_tracing_and_rewritten_by_ours(
    tmp_path: Path,
) -> None:
    module, x = Signed(), torch.ones(2, 3)
    wrong = naive(module, (x,), tmp_path / "naive.onnx", dynamo=False)
    below = -3 * x
    assert np.abs(answer(wrong, below) - module(below).numpy()).max() > 0.5

    proof = export(module, (x,), tmp_path / "m.onnx")
    assert proof.verdict is Verdict.FAITHFUL
    assert [a.name for a in proof.export.attempts if a.worked] == ["branch"]
    assert np.array_equal(
        answer(onnxruntime.InferenceSession(tmp_path / "m.onnx"), below), module(below).numpy()
    )
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
