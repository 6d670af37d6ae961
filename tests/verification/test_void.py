"""References and data that prove nothing: none of them may pass as FAITHFUL, and the reason is named."""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import onnxproof
from onnxproof import Policy, Verdict
from onnxproof.cli import main
from onnxproof.runtimes import reference as evaluator

FINITE = Policy(domains=())
X = torch.linspace(-1.5, 2.0, 12).reshape(3, 4) + 0.01
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def graph(
    path: Path,
    nodes: Sequence[onnx.NodeProto],
    *,
    out: int = FLOAT,
    constants: dict[str, Any] | None = None,
    rows: int | str = 3,
) -> Path:
    """A file that takes `x` and gives `y`."""
    held = [
        numpy_helper.from_array(np.asarray(value), name)
        for name, value in (constants or {}).items()
    ]
    made = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info("x", FLOAT, [rows, 4])],
        [helper.make_tensor_value_info("y", out, None)],
        held,
    )
    onnx.save(
        helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path
    )
    return path


def shifted(path: Path, by: float, **options: Any) -> Path:
    """y = x + by."""
    return graph(
        path,
        [helper.make_node("Add", ["x", "c"], ["y"])],
        constants={"c": np.float32(by)},
        **options,
    )


def scaled(path: Path, by: float, **options: Any) -> Path:
    """y = x * by."""
    return graph(
        path,
        [helper.make_node("Mul", ["x", "c"], ["y"])],
        constants={"c": np.float32(by)},
        **options,
    )


def constant(path: Path, value: Any, out: int = FLOAT) -> Path:
    """y is always the same, though x is looked at."""
    return graph(
        path,
        [helper.make_node("Identity", ["c"], ["y"])],
        out=out,
        constants={"c": np.asarray(value)},
    )


class Of(torch.nn.Module):
    """A module from a function."""

    def __init__(self, function: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self._function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self._function(x)


class Drawing(torch.nn.Module):
    """Draws from a generator of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand(x.shape, generator=self.generator).to(x.dtype)


class Counting:
    """State that lives outside of the module, where nobody puts it back."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x + self.calls


def layer() -> torch.nn.Module:
    """Dropout that an evaluation does not turn off."""
    return Of(lambda x: torch.nn.functional.dropout(x, 0.3, training=True))


def prove(module: torch.nn.Module, path: Path, **options: Any) -> onnxproof.Proof:
    return onnxproof.verify(
        module, path, (X,), **{"policy": FINITE, "budget_s": 4, "explain": False} | options
    )


def codes(proof: onnxproof.Proof) -> set[str]:
    return {finding.code for finding in proof.findings}


RANDOM: dict[str, Callable[[], torch.nn.Module]] = {
    "randn_like": lambda: Of(lambda x: x + torch.randn_like(x)),
    "rand": lambda: Of(lambda x: x + torch.rand(x.shape).to(x.dtype)),
    "a little of it": lambda: Of(lambda x: x + 1e-3 * torch.randn_like(x)),
    "bernoulli": lambda: Of(lambda x: x + torch.bernoulli(torch.full_like(x, 0.5))),
    "dropout": layer,
    "randperm": lambda: Of(lambda x: x[:, torch.randperm(4)]),
    "multinomial": lambda: Of(lambda x: x + torch.multinomial(torch.ones(3, 9), 4).to(x.dtype)),
    "rrelu": lambda: Of(lambda x: torch.nn.functional.rrelu(x, 0.1, 0.9, training=True)),
    "numpy": lambda: Of(lambda x: x + float(np.random.rand())),
    "python": lambda: Of(lambda x: x + random.random()),
    "a generator": Drawing,
    "state outside": lambda: Of(Counting()),
    "the time": lambda: Of(lambda x: x + (time.perf_counter() * 1e3) % 7),
    "for some inputs": lambda: Of(
        lambda x: x + torch.randn_like(x) if float(x[0, 0]) != float(X[0, 0]) else x + 0.5
    ),
    "another shape each time": lambda: Of(lambda x: x[torch.rand(3) > 0.5]),
}


@pytest.mark.parametrize("by", [0.0, 0.5, 5.0])
@pytest.mark.parametrize("kind", RANDOM)
def test_a_random_reference_proves_nothing(tmp_path: Path, kind: str, by: float) -> None:
    proof = prove(RANDOM[kind](), shifted(tmp_path / "m.onnx", by))
    assert proof.verdict is Verdict.VACUOUS, proof.sentence()
    found = next(
        finding for finding in proof.findings if finding.code == "nondeterministic-reference"
    )
    assert "output `output`" in found.what
    assert "nothing is proven: the reference " in proof.sentence()
    with pytest.raises(onnxproof.VerdictError, match="nothing is proven: the reference"):
        proof.raise_for_verdict()


def test_random_integers_prove_nothing(tmp_path: Path) -> None:
    proof = prove(
        Of(lambda x: torch.randint(0, 9, x.shape)),
        graph(tmp_path / "m.onnx", [helper.make_node("Cast", ["x"], ["y"], to=INT64)], out=INT64),
    )
    assert (proof.verdict, "nondeterministic-reference" in codes(proof)) == (Verdict.VACUOUS, True)


def test_that_the_file_draws_too_makes_nothing_better(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("RandomNormalLike", ["x"], ["r"]),
        helper.make_node("Add", ["x", "r"], ["y"]),
    ]
    noise = graph(tmp_path / "noise.onnx", nodes)
    proof = prove(RANDOM["randn_like"](), noise)
    assert (proof.verdict, "nondeterministic-reference" in codes(proof)) == (Verdict.VACUOUS, True)
    both = onnxproof.diff(noise, noise, policy=FINITE, budget_s=4, explain=False)
    assert (both.verdict, "nondeterministic-reference" in codes(both)) == (Verdict.VACUOUS, True)


def test_a_file_that_draws_is_wrong_where_the_reference_does_not(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("RandomNormalLike", ["x"], ["r"]),
        helper.make_node("Add", ["x", "r"], ["y"]),
    ]
    assert (
        prove(torch.nn.Identity(), graph(tmp_path / "noise.onnx", nodes)).verdict
        is Verdict.DIVERGED
    )


def test_one_random_output_of_two_takes_the_verdict_away_and_is_named(tmp_path: Path) -> None:
    path = graph(
        tmp_path / "m.onnx",
        [helper.make_node("Identity", ["x"], ["y"]), helper.make_node("Add", ["x", "x"], ["z"])],
    )
    model = onnx.load(path)
    model.graph.output.append(helper.make_tensor_value_info("z", FLOAT, [3, 4]))
    onnx.save(model, path)
    proof = prove(Of(lambda x: {"y": x + torch.randn_like(x), "z": x + x}), path)
    assert proof.verdict is Verdict.VACUOUS and "output `y`" in proof.sentence()
    assert {gap.void is not None for gap in proof.gaps if gap.output == "y"} == {True}
    assert {gap.void is not None for gap in proof.gaps if gap.output == "z"} == {False}
    wrong = prove(Of(lambda x: {"y": x + torch.randn_like(x), "z": x}), path)
    assert wrong.verdict is Verdict.DIVERGED and "output `z`" in wrong.sentence()


STEADY: dict[str, Callable[[], torch.nn.Module]] = {
    "plain": lambda: Of(lambda x: x + 0.5),
    "dropout in eval": lambda: torch.nn.Sequential(torch.nn.Dropout(0.5), Of(lambda x: x + 0.5)),
    "random numbers that nobody uses": lambda: Of(lambda x: (torch.randn_like(x), x + 0.5)[1]),
    "order of equals": lambda: Of(
        lambda x: (
            x[torch.randperm(3)]
            .sort(0)
            .values[torch.argsort(torch.argsort(x, 0), 0), torch.arange(4)]
            + 0.5
        )
    ),
}


@pytest.mark.parametrize("kind", STEADY)
def test_a_steady_reference_is_believed(tmp_path: Path, kind: str) -> None:
    proof = prove(STEADY[kind](), shifted(tmp_path / "m.onnx", 0.5))
    assert proof.verdict is Verdict.FAITHFUL, proof.sentence()
    assert not codes(proof) & {
        "nondeterministic-reference",
        "truth-not-believed",
        "reference-modes",
        "constant-reference",
        "noisy-output",
    }
    assert prove(STEADY[kind](), shifted(tmp_path / "m.onnx", 0.501)).verdict is Verdict.DIVERGED


def test_random_numbers_with_a_seed_of_their_own_are_compared(tmp_path: Path) -> None:
    """Each call draws the same, so a file can hold them; in float64 the same seed draws others, so there is no truth."""

    def seeded(x: torch.Tensor) -> torch.Tensor:
        return x + torch.randn(9, 4, generator=torch.Generator().manual_seed(5), dtype=x.dtype)[:3]

    drawn = (seeded(torch.zeros(3, 4))).numpy()
    file = graph(
        tmp_path / "m.onnx", [helper.make_node("Add", ["x", "c"], ["y"])], constants={"c": drawn}
    )
    proof = prove(Of(seeded), file)
    assert (proof.verdict, "truth-not-believed" in codes(proof)) == (Verdict.FAITHFUL, True), (
        proof.sentence()
    )
    other = graph(
        tmp_path / "m.onnx",
        [helper.make_node("Add", ["x", "c"], ["y"])],
        constants={"c": drawn + np.float32(0.01)},
    )
    assert prove(Of(seeded), other).verdict is Verdict.DIVERGED


CONSTANT: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], Any, int]] = {
    "zeros": (lambda x: x * 0.0, np.zeros((3, 4), np.float32), FLOAT),
    "a dead activation": (
        lambda x: torch.relu(-x.abs() - 1.0),
        np.zeros((3, 4), np.float32),
        FLOAT,
    ),
    "everything masked": (
        lambda x: x.masked_fill(torch.ones_like(x, dtype=torch.bool), -1.0),
        -np.ones((3, 4), np.float32),
        FLOAT,
    ),
    "a table": (
        lambda x: torch.arange(12.0).reshape(3, 4).to(x.dtype) + 0 * x,
        np.arange(12, dtype=np.float32).reshape(3, 4),
        FLOAT,
    ),
    "integers": (lambda x: torch.argmax(x * 0 + torch.arange(4), 1), np.full(3, 3), INT64),
    "booleans": (lambda x: x * x < 0, np.zeros((3, 4), bool), BOOL),
}


@pytest.mark.parametrize("kind", CONSTANT)
def test_a_reference_that_ignores_its_inputs_proves_nothing(tmp_path: Path, kind: str) -> None:
    function, value, out = CONSTANT[kind]
    proof = prove(Of(function), constant(tmp_path / "m.onnx", value, out))
    assert proof.verdict is Verdict.VACUOUS, proof.sentence()
    assert (
        "nothing is proven: the reference gives the same answer whatever it is asked: `output` did not change by a bit"
        in proof.sentence()
    )
    wrong = constant(
        tmp_path / "wrong.onnx", ~value if out == BOOL else value + np.asarray(1, value.dtype), out
    )
    assert prove(Of(function), wrong).verdict is Verdict.DIVERGED


def test_a_constant_output_beside_others_is_noted_alone(tmp_path: Path) -> None:
    path = graph(
        tmp_path / "m.onnx",
        [helper.make_node("Identity", ["x"], ["y"])],
        constants={"z": np.arange(3, dtype=np.float32)},
    )
    model = onnx.load(path)
    model.graph.output.append(helper.make_tensor_value_info("z", FLOAT, [3]))
    onnx.save(model, path)
    proof = prove(Of(lambda x: {"y": x, "z": torch.arange(3.0)}), path)
    assert proof.verdict is Verdict.FAITHFUL
    assert [finding.what for finding in proof.findings if finding.code == "constant-reference"] == [
        "output `z` does not depend on the inputs: the reference gave the same for all of them"
    ]


def test_what_depends_on_sizes_alone_is_no_constant(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], end=1),
        helper.make_node("Squeeze", ["s"], ["n"]),
        helper.make_node("Range", ["zero", "n", "one"], ["y"]),
    ]
    path = graph(
        tmp_path / "m.onnx",
        nodes,
        out=INT64,
        constants={"zero": np.int64(0), "one": np.int64(1)},
        rows="rows",
    )
    proof = prove(Of(lambda x: torch.arange(x.shape[0])), path, dynamic_shapes=({0: "rows"},))
    assert proof.verdict is Verdict.FAITHFUL, proof.sentence()


@pytest.mark.parametrize("value", [np.nan, 1.0], ids=["nan", "a number"])
def test_nothing_but_nan_proves_nothing(tmp_path: Path, value: float) -> None:
    proof = prove(
        Of(lambda x: x * float("nan")),
        constant(tmp_path / "m.onnx", np.full((3, 4), value, np.float32)),
    )
    assert proof.verdict is Verdict.VACUOUS
    assert "output `output` of the reference has no finite number in any case" in proof.sentence()


def test_nothing_at_all_proves_nothing(tmp_path: Path) -> None:
    empty = graph(
        tmp_path / "m.onnx",
        [helper.make_node("Slice", ["x", "zero", "zero", "one"], ["y"])],
        constants={"zero": np.array([0]), "one": np.array([1])},
    )
    proof = prove(Of(lambda x: x[:, :0]), empty)
    assert (proof.verdict, proof.sentence()) == (
        Verdict.VACUOUS,
        "nothing was compared, so nothing is proven",
    )


def test_noise_in_which_any_answer_passes_proves_nothing(tmp_path: Path) -> None:
    """sin(3e12 x) is decided by rounding alone: its negative is as good."""
    nodes = [helper.make_node("Mul", ["x", "c"], ["z"]), helper.make_node("Sin", ["z"], ["y"])]
    proof = prove(
        Of(lambda x: torch.sin(x * 3e12)),
        graph(tmp_path / "m.onnx", nodes, constants={"c": np.float32(-3e12)}),
        only=("example", "ordinary-1", "ordinary-2"),
    )
    assert proof.verdict is Verdict.VACUOUS, proof.sentence()
    assert "so any answer would pass: nothing is proven of it" in proof.sentence()


def test_large_noise_of_rounding_is_said_and_still_tells_an_empty_answer(tmp_path: Path) -> None:
    """The noise of sin(3e4 x) is a thousandth of it and more: `allclose` fails, and the reason is stated; zeros are no answer."""
    path = graph(
        tmp_path / "m.onnx",
        [
            helper.make_node("Mul", ["x", "a"], ["w"]),
            helper.make_node("Mul", ["w", "b"], ["z"]),
            helper.make_node("Sin", ["z"], ["y"]),
        ],
        constants={"a": np.float32(300.1), "b": np.float32(3000.1)},
    )
    module = Of(lambda x: torch.sin(x * 300.1 * 3000.1))
    proof = prove(module, path)
    rows = {gap.group for gap in proof.gaps}
    failing = {gap.group for gap in proof.gaps if gap.allowance > 1}
    assert proof.verdict is Verdict.FAITHFUL, proof.sentence()
    assert rows != failing or "noisy-output" in codes(proof)
    assert prove(module, scaled(tmp_path / "zero.onnx", 0.0)).verdict is Verdict.DIVERGED


TRUTHS: dict[str, Callable[[], torch.nn.Module]] = {
    "another branch": lambda: Of(lambda x: x * 3 if x.dtype == torch.float64 else x * 2),
    "another constant": lambda: Of(lambda x: x * (2 if torch.finfo(x.dtype).bits == 32 else 2.02)),
    "nothing but NaN": lambda: Of(
        lambda x: x * 2 if x.dtype == torch.float32 else x * float("nan")
    ),
    "more outputs": lambda: Of(lambda x: x * 2 if x.dtype == torch.float32 else (x * 2, x)),
    "a hard-coded dtype": lambda: Of(
        lambda x: x.float() * 2 if x.dtype == torch.float32 else x.float() + 1
    ),
}


@pytest.mark.parametrize("kind", TRUTHS)
def test_a_truth_that_is_another_function_is_not_believed(tmp_path: Path, kind: str) -> None:
    proof = prove(TRUTHS[kind](), scaled(tmp_path / "m.onnx", 2.0))
    assert proof.verdict is Verdict.FAITHFUL, proof.sentence()
    assert "truth-not-believed" in codes(proof)
    assert {gap.noise_kind.value for gap in proof.gaps if gap.compared} == {"perturbed"}
    for wrong in (2.02, 3.0, 5.0):
        assert (
            prove(TRUTHS[kind](), scaled(tmp_path / "wrong.onnx", wrong)).verdict
            is Verdict.DIVERGED
        )
    assert prove(TRUTHS[kind](), scaled(tmp_path / "wrong.onnx", 2.001)).verdict in (
        Verdict.DRIFT,
        Verdict.DIVERGED,
    )


def test_an_evaluator_that_is_wrong_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The graph's float64 evaluation is planted: half of what it should be."""
    right, wrong = scaled(tmp_path / "right.onnx", 1.5), scaled(tmp_path / "wrong.onnx", 3.0)
    honest = evaluator.ReferenceSession.run
    monkeypatch.setattr(
        evaluator.ReferenceSession,
        "run",
        lambda self, inputs: [None if y is None else y / 2 for y in honest(self, inputs)],
    )
    proof = onnxproof.diff(right, right, policy=FINITE, budget_s=4, explain=False)
    assert (proof.verdict, "truth-not-believed" in codes(proof)) == (Verdict.FAITHFUL, True)
    assert (
        onnxproof.diff(right, wrong, policy=FINITE, budget_s=4, explain=False).verdict
        is Verdict.DIVERGED
    )


def test_a_reference_whose_modes_disagree_is_told(tmp_path: Path) -> None:
    """Under `no_grad` torch's encoder gives zeros where a mask hides; with gradients it does not."""
    torch.manual_seed(0)
    encoder = torch.nn.TransformerEncoder(
        torch.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 1
    ).eval()

    class Masked(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = encoder

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = torch.zeros(1, 3, dtype=torch.bool)
            hidden[0, 2] = True
            return self.encoder(x[None], src_key_padding_mask=hidden)[0]

    proof = prove(Masked().eval(), shifted(tmp_path / "m.onnx", 0.0))
    found = [finding.what for finding in proof.findings if finding.code == "reference-modes"]
    assert (
        len(found) == 1
        and "output `output` is another one with gradients than under `no_grad`" in found[0]
    )
    assert "truth-not-believed" not in codes(proof)


@dataclass(frozen=True)
class Slow:
    seconds: float

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(self.seconds)
        return x + 0.5


def test_one_case_is_not_a_proof(tmp_path: Path) -> None:
    path = shifted(tmp_path / "m.onnx", 0.5, rows="rows")
    proof = prove(Of(Slow(1.0)), path, dynamic_shapes=({0: "rows"},), budget_s=0.5)
    assert proof.verdict is Verdict.VACUOUS
    assert (
        proof.sentence().startswith("not enough was compared: ") and "missing" in proof.sentence()
    )


def test_a_short_budget_bends_to_the_floor_and_the_headline_tells(tmp_path: Path) -> None:
    path = shifted(tmp_path / "m.onnx", 0.5, rows="rows")
    proof = prove(Of(Slow(0.01)), path, dynamic_shapes=({0: "rows"},), budget_s=0.01)
    if (
        proof.verdict is Verdict.VACUOUS
    ):  # a machine so busy that not even four passes fit into two seconds
        assert proof.sentence().startswith("not enough was compared: ")
        return
    assert proof.verdict is Verdict.FAITHFUL
    assert proof.sentence().endswith("; not all cases were run, since the budget of 0.01 s ended")
    assert {"example"} < set(proof.sizes) and len(
        {sizes.get("rows") for sizes in proof.sizes.values()}
    ) >= 2


def test_a_reference_that_takes_the_example_alone_proves_nothing(tmp_path: Path) -> None:
    def picky(x: torch.Tensor) -> torch.Tensor:
        if not torch.equal(x.float(), X):
            raise ValueError("not the example")
        return x + 0.5

    proof = prove(Of(picky), shifted(tmp_path / "m.onnx", 0.5))
    assert proof.verdict is Verdict.VACUOUS
    assert "not enough was compared: other values than the example's is missing" in proof.sentence()


def test_chosen_cases_are_enough_for_who_chose_them_and_the_headline_says_so(
    tmp_path: Path,
) -> None:
    path = shifted(tmp_path / "m.onnx", 0.5)
    proof = prove(Of(lambda x: x + 0.5), path, only=("ordinary-1",))
    assert proof.verdict is Verdict.FAITHFUL and proof.sentence().endswith(
        "; only chosen cases were run"
    )
    assert proof.chosen == ("ordinary-1",)
    nothing = prove(Of(lambda x: x + 0.5), path, only=("no-such-case",))
    assert (nothing.verdict, nothing.sentence()) == (
        Verdict.VACUOUS,
        "nothing is proven: there is no case `no-such-case`",
    )


def test_a_whole_run_says_nothing_of_what_was_left_out(tmp_path: Path) -> None:
    proof = prove(Of(lambda x: x + 0.5), shifted(tmp_path / "m.onnx", 0.5), budget_s=60)
    assert proof.complete and proof.sentence().endswith(" times the rounding noise")


def test_the_headline_has_the_largest_figure_of_the_proof(tmp_path: Path) -> None:
    proof = prove(
        Of(lambda x: torch.tanh(x / 3)),
        graph(
            tmp_path / "m.onnx",
            [helper.make_node("Div", ["x", "c"], ["z"]), helper.make_node("Tanh", ["z"], ["y"])],
            constants={"c": np.float32(3)},
        ),
    )
    assert f"at most {max(gap.noise_ratio for gap in proof.gaps):.1f} times" in proof.sentence()
    first, *others = proof.gaps
    moved = replace(
        proof,
        gaps=(
            replace(first, noise_ratio=1.41, worst_ratio=0.1),
            *(replace(gap, noise_ratio=1.2, worst_ratio=9.0) for gap in others),
        ),
    )
    assert "at most 1.4 times" in moved.sentence()


def test_a_stored_proof_stays_vacuous_under_another_policy(tmp_path: Path) -> None:
    proof = prove(RANDOM["randn_like"](), shifted(tmp_path / "m.onnx", 0.5))
    assert proof.judged(Policy(noise_limit=1e9, worst_limit=1e9)).verdict is Verdict.VACUOUS


def test_the_command_ends_with_three(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shifted(tmp_path / "m.onnx", 0.5)
    (tmp_path / "model.py").write_text(
        "import torch\nclass M(torch.nn.Module):\n    def forward(self, x):\n        return x + torch.randn_like(x)\n"
        "def build():\n    return M().eval(), (torch.ones(3, 4),)\n"
    )
    assert main(["verify", "model.py:build", "m.onnx", "--budget", "4", "-q"]) == 3
    assert (
        "VACUOUS  nothing is proven: the reference draws random numbers: output `output`"
        in capsys.readouterr().out
    )
