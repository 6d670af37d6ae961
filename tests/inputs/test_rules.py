"""What the user says of inputs: every generator, the search and a diagnosis keep to it, and a fault inside of it is still found."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest
import torch
from torch import Tensor, nn

import onnxproof
from onnxproof import Input, Subject, Verdict
from onnxproof.cli._subject_options import SubjectOptions
from onnxproof.errors import InputError, OnnxproofError, UsageError
from onnxproof.inputs import generators, inference, search
from onnxproof.inputs.rules import Rule, RuledOut, Rules, SizeRule, resolve
from onnxproof.onnxmodel import onnx_file
from onnxproof.results import DimInfo, InputInfo, OutputInfo, Signature

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
SPEECH = """<ir_version: 9, opset_import: ["": 17]>
speech (float[batch, samples] x, int64 sr) => (float[batch] y) {{
    wide = Constant<value_int = 16000>()
    is_wide = Equal(sr, wide)
    one = Constant<value_float = 1.0>()
    narrow = Constant<value_float = {narrow}>()
    factor = Where(is_wide, one, narrow)
    size = Abs(x)
    mean = ReduceMean<axes = [1], keepdims = 0>(size)
    y = Mul(mean, factor)
}}"""
RATES = {"sr": Input(values=(8000, 16000))}


class Speech(nn.Module):
    """Knows two rates, and answers to any other, or to windows of another length, with something else than the file."""

    def __init__(self, *, windowed: bool = False) -> None:
        super().__init__()
        self.windowed = windowed

    def forward(self, x: Tensor, sr: Tensor) -> Tensor:
        factor = torch.where(sr == 16000, 1.0, torch.where(sr == 8000, 0.5, 0.25))
        mean = x.abs().mean(1) * factor
        if self.windowed and x.shape[1] != 4 * int(sr) // 125:
            return mean + 1
        return mean


def speech_file(folder: Path, narrow: float = 0.5) -> Path:
    path = folder / "speech.onnx"
    onnx.save(onnx.parser.parse_model(SPEECH.format(narrow=narrow)), path)
    return path


def speech(*, windowed: bool = False, **said: Any) -> Subject:
    example = {"x": torch.randn(2, 512), "sr": torch.tensor(16000)}
    return Subject(module=Speech(windowed=windowed), example_inputs=example, **said)


def verify(subject: Subject, path: Path, **options: Any) -> onnxproof.Proof:
    return onnxproof.verify(subject, path, budget_s=30, **options)


def test_without_a_word_a_rate_that_never_comes_is_tried(tmp_path: Path) -> None:
    proof = verify(speech(), speech_file(tmp_path), explain=False)
    assert proof.verdict is Verdict.DIVERGED


def test_declared_rates_alone_are_tried_and_each_of_them_is(tmp_path: Path) -> None:
    proof = verify(speech(inputs=RATES), speech_file(tmp_path))
    assert proof.verdict is Verdict.FAITHFUL
    assert {"sr=8000", "sr=16000"} <= proof.sizes.keys()


def test_a_fault_at_the_other_declared_rate_is_found_and_its_node_named(tmp_path: Path) -> None:
    proof = verify(speech(inputs=RATES), speech_file(tmp_path, narrow=0.4))
    assert proof.verdict is Verdict.DIVERGED
    assert proof.witness is not None and proof.location is not None
    assert int(proof.witness.inputs["sr"]) == 8000
    assert "factor" in proof.location.nodes  # the Where that holds the wrong constant


def test_a_size_that_follows_from_a_value_moves_with_it(tmp_path: Path) -> None:
    path = speech_file(tmp_path)
    alone = verify(speech(inputs=RATES, windowed=True), path, explain=False)
    assert alone.verdict is Verdict.DIVERGED
    related = speech(inputs=RATES, dims={"samples": "4*sr // 125"}, windowed=True)
    proof = verify(related, path)
    assert proof.verdict is Verdict.FAITHFUL
    assert proof.sizes["sr=8000"]["samples"] == 256
    assert {sizes["samples"] for sizes in proof.sizes.values() if sizes} == {256, 512}


CLAMP = """<ir_version: 9, opset_import: ["": 17]>
pixels (float[batch, 6] x) => (float[batch, 6] y) { y = Sqrt(x) }"""


class Pixels(nn.Module):
    """Cuts off what no pixel is; the file does not."""

    def forward(self, x: Tensor) -> Tensor:
        return x.clamp(0, 1).sqrt()


def test_a_range_holds_for_every_case(tmp_path: Path) -> None:
    path = tmp_path / "pixels.onnx"
    onnx.save(onnx.parser.parse_model(CLAMP), path)
    example = (torch.rand(2, 6),)
    free = Subject(module=Pixels(), example_inputs=example)
    assert verify(free, path, explain=False).verdict is Verdict.DIVERGED
    bound = Subject(module=Pixels(), example_inputs=example, inputs={"x": Input(range=(0, 1))})
    proof = verify(bound, path)
    assert proof.verdict is Verdict.FAITHFUL
    assert "x=0" in proof.sizes


TOKENS = """<ir_version: 9, opset_import: ["": 17]>
tokens (int64[batch, seq] ids) => (float[batch, seq, 2] y)
<float[5, 2] table = {0, 0, 1, 2, 3, 4, 5, 6, 7, 8}> { y = Gather(table, ids) }"""


class Tokens(nn.Module):
    """The row of the padding token is another one than the file's."""

    def __init__(self) -> None:
        super().__init__()
        table = torch.arange(9.0)[1:].reshape(4, 2)
        self.table = nn.Parameter(torch.cat([torch.full((1, 2), 9.0), table]))

    def forward(self, ids: Tensor) -> Tensor:
        return self.table[ids]


def test_tokens_to_avoid_never_come(tmp_path: Path) -> None:
    path = tmp_path / "tokens.onnx"
    onnx.save(onnx.parser.parse_model(TOKENS), path)
    example = (torch.tensor([[1, 2, 3], [4, 3, 2]]),)
    free = Subject(module=Tokens(), example_inputs=example)
    assert verify(free, path, explain=False).verdict is Verdict.DIVERGED
    said = Subject(
        module=Tokens(), example_inputs=example, inputs={"ids": Input(avoid=(0,), range=(0, 4))}
    )
    assert verify(said, path).verdict is Verdict.FAITHFUL


def test_values_are_drawn_from_a_file_of_real_ones(tmp_path: Path) -> None:
    np.savez(tmp_path / "real.npz", sr=np.array([8000, 16000]), x=RNG.uniform(-1, 1, (9, 512)))
    path = speech_file(tmp_path)
    options = SubjectOptions(values_from=str(tmp_path / "real.npz"))
    proof = verify(speech(inputs=options.inputs()), path)
    assert proof.verdict is Verdict.FAITHFUL
    assert "sr=8000" in proof.sizes


def test_the_users_data_is_not_bent_to_what_was_said(tmp_path: Path) -> None:
    row = {"x": np.ones((1, 512), np.float32), "sr": np.array(44100)}
    good = {"x": np.ones((1, 512), np.float32), "sr": np.array(8000)}
    proof = verify(speech(inputs=RATES, data=[good, row]), speech_file(tmp_path))
    (finding,) = [finding for finding in proof.findings if finding.code == "data-dropped"]
    assert "`sr` holds 44100, and 8000, 16000 are declared" in finding.what
    assert proof.verdict is Verdict.FAITHFUL


# --- the input space ---------------------------------------------------------------------------------------------

SIGNATURE = Signature(
    inputs=(
        InputInfo(
            name="x", dtype="float32", shape=(2, 8), dims=("batch", "seq"), onnx_name="pixels"
        ),
        InputInfo(name="ids", dtype="int64", shape=(2, 8), dims=("batch", "seq"), onnx_name="ids"),
    ),
    outputs=(OutputInfo(name="y", dtype="float32", shape=(2, 8)),),
    dims=(DimInfo(name="batch", example=2), DimInfo(name="seq", example=8)),
)
DECLARED = {"pixels": Input(range=(0, 1)), "ids": Input(avoid=(0, 7), range=(0, 9))}


@pytest.fixture
def rules() -> Rules:
    return resolve(DECLARED, {"seq": "4..64:4"}, SIGNATURE, {})


@pytest.fixture
def space(rules: Rules, tmp_path: Path) -> Any:
    example = {
        "x": RNG.random((2, 8)).astype(np.float32),
        "ids": RNG.integers(1, 7, (2, 8)),
    }
    file = onnx_file.read(speech_file(tmp_path))
    return inference.make_space(SIGNATURE, example, file, rules=rules)


def keeps(inputs: Mapping[str, Array]) -> bool:
    x, ids = inputs["x"], inputs["ids"]
    inside = x.min(initial=0) >= 0 and x.max(initial=1) <= 1
    return bool(inside and ids.min(initial=1) >= 1 and not np.isin(ids, (0, 7, 10)).any())


def test_every_generator_keeps_to_the_rules(space: Any) -> None:
    cases = list(generators.plan(space))
    assert len(cases) > 40
    for case in cases:
        assert keeps(case.inputs), case.name
        assert case.inputs["x"].shape[1] in (0, *range(4, 65, 4)), case.name
    contents = {tuple(array.tobytes() for array in case.inputs.values()) for case in cases}
    assert len(contents) == len(cases), "what became the same is one case"


def test_a_search_is_brought_back_into_the_rules(space: Any, rules: Rules) -> None:
    case = next(iter(generators.plan(space)))
    mutated = (search.mutate(case, step, seed=0) for step in range(40))
    case = next(other for other in mutated if not keeps(other.inputs))
    with pytest.raises(RuledOut, match="`x` holds"):
        rules.check(case.inputs)
    assert keeps(space.fitted(case).inputs)


@pytest.mark.parametrize(
    ("words", "size", "nearest"),
    [("1..512", 600, 512), ("8..512:8", 13, 16), ("16,32", 1, 16), ("..4", 9, 4), ("3..", 1, 3)],
)
def test_sizes_are_brought_to_the_nearest_that_is_declared(
    words: str, size: int, nearest: int
) -> None:
    rule = SizeRule.parse(words)
    assert rule.nearest(size) == nearest and rule.allows(nearest) and not rule.allows(size)


@pytest.mark.parametrize(
    "words", ["", "9..1", "1..8:0", "a..b", "seq & past", "3.1", "-4", "seq/2"]
)
def test_sizes_that_make_no_sense_are_refused(words: str) -> None:
    with pytest.raises(UsageError, match="can't be understood as the sizes of a dim"):
        SizeRule.parse(words)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int64", "uint8"])
def test_what_is_fitted_keeps_to_the_rule_in_every_dtype(dtype: str) -> None:
    array = (RNG.standard_normal(50) * 30).astype(dtype)
    for rule in (
        Rule(name="x", low=0.1, high=5.3),
        Rule(name="x", values=np.array([1, 2, 60])),
        Rule(name="x", low=0, high=9, avoid=np.array([0, 1])),
    ):
        assert rule.breach(array)
        assert not rule.breach(rule.fit(array))


def test_names_that_no_input_and_no_dim_has(tmp_path: Path) -> None:
    path = speech_file(tmp_path)
    with pytest.raises(InputError, match=r"no input `rate`\n  = note: its inputs are `x`, `sr`"):
        verify(speech(inputs={"rate": Input(values=(1,))}), path)
    with pytest.raises(InputError, match=r"no open dim is called `len`\n.*`batch`, `samples`"):
        verify(speech(dims={"len": "1..5"}), path)
    with pytest.raises(InputError, match=r"no open dim is called `rate`"):
        verify(speech(dims={"samples": "2*rate"}), path)
    with pytest.raises(InputError, match=r"of the dims: samples is 512, and 2\*batch is declared"):
        verify(speech(dims={"samples": "2*batch"}), path)
    with pytest.raises(InputError, match=r"example-ruled-out.*`sr` holds 16000, and 8000 are"):
        verify(speech(inputs={"sr": Input(values=(8000,))}), path)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"values": ["sr"]}, "`--values sr` can't be understood"),
        ({"values": ["sr=fast"]}, "`fast` of `--values` is no number"),
        ({"value_range": ["x=1"]}, "`--range` can't be understood: `1`"),
        ({"value_range": ["x=2..1"]}, "nothing lies between 2 and 1"),
        ({"declared": ["x"]}, "`--input x` can't be understood"),
    ],
)
def test_words_that_make_no_sense(options: dict[str, Any], words: str) -> None:
    with pytest.raises(OnnxproofError, match=words):
        SubjectOptions(**options).inputs()
