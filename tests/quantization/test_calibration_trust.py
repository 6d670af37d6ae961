"""The calibration data is not its own judge: wrong or too little data is named, and the verdict is at best DRIFT before the file gets its name."""

import functools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits
from torch import nn

import onnxproof
from onnxproof.cli import main
from onnxproof.exporter import export
from onnxproof.inputs import training_statistics
from onnxproof.onnxmodel import onnx_file
from onnxproof.options import Policy
from onnxproof.quantization.calibration import batches, data_quality, data_trust
from onnxproof.quantization.calibration.observe import HELD_OUT, is_held_out, observe
from onnxproof.quantization.calibration.observer import Observer
from onnxproof.quantization.float_graph import prepare
from onnxproof.reference import subject
from onnxproof.reference.protocol import open_reference
from onnxproof.results import Finding, Verdict, judging
from onnxproof.runtimes.session.execution import Clock

Array = np.ndarray[Any, Any]
TRAINED = 1200


def network(*, norms: bool) -> nn.Module:
    torch.manual_seed(0)
    norm: Callable[[int], nn.Module] = nn.BatchNorm2d if norms else lambda channels: nn.Identity()
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        norm(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 16, 3, padding=1),
        norm(16),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


class Trained:
    """A net trained on the digits, as they are (0 to 1) or standardised, with the images it has not seen."""

    def __init__(self, folder: Path, *, norms: bool, standard: bool) -> None:
        images, labels = load_digits(return_X_y=True)
        x = (images / 16).astype(np.float32).reshape(-1, 1, 8, 8)
        self.mean, self.deviation = (
            (x.mean(), x.std()) if standard else (np.float32(0), np.float32(1))
        )
        order = np.random.default_rng(0).permutation(len(x))
        x, self.labels = ((x - self.mean) / self.deviation)[order], labels[order]
        self.x, self.test = x, x[TRAINED:]
        self.net = network(norms=norms)
        optimiser = torch.optim.Adam(self.net.parameters(), 4e-3)
        for _ in range(6 if norms else 12):
            for start in range(0, TRAINED, 64):
                optimiser.zero_grad()
                loss = nn.functional.cross_entropy(
                    self.net(torch.from_numpy(x[start : start + 64])),
                    torch.from_numpy(self.labels[start : start + 64]),
                )
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
        self.net.eval()
        self.subject = subject.load(
            self.net, (torch.from_numpy(x[:2]),), dynamic_shapes=({0: "batch"},)
        )
        self.file = folder / f"{norms}-{standard}.onnx"
        export.write(self.subject, self.file)
        self.plain, self.ports = prepare(self.file), onnx_file.read(self.file).inputs

    def one_class(self, label: int) -> Array:
        return self.x[self.labels == label][:100]


KINDS = {
    (
        norms,
        standard,
    ): f"{'norms' if norms else 'no-norms'}-{'standardised' if standard else 'plain'}"
    for norms in (True, False)
    for standard in (False, True)
}


@pytest.fixture(scope="module")
def nets(tmp_path_factory: Any) -> Callable[[tuple[bool, bool]], Trained]:
    folder = tmp_path_factory.mktemp("nets")
    return functools.cache(lambda kind: Trained(folder, norms=kind[0], standard=kind[1]))


@pytest.fixture(params=list(KINDS), ids=list(KINDS.values()))
def trained(request: Any, nets: Any) -> Any:
    return nets(request.param)


@pytest.fixture(params=[(True, True), (False, False)], ids=["norms-standardised", "no-norms-plain"])
def two(request: Any, nets: Any) -> Any:
    """Two of them, for what takes seconds."""
    return nets(request.param)


@pytest.fixture
def normed(nets: Any) -> Any:
    return nets((True, False))


def doubts(made: Trained, x: Array) -> list[str]:
    """The codes that keep a verdict from FAITHFUL, from calibration data alone; the proof may add more."""
    return [finding.code for finding in findings(made, x) if finding.doubts]


def findings(made: Trained, x: Array, example: Array | None = None) -> list[Finding]:
    name = made.ports[0].name
    divided, few = batches.divide_few_batches(
        batches.split_batches({name: x}, made.ports), made.ports, HELD_OUT
    )
    stream = list(divided)
    seen = observe(Observer(made.plain), iter(stream), batch_count=few)
    return data_trust.examine(
        made.subject,
        made.plain,
        made.file,
        seen,
        stream,
        {name: made.x[:2] if example is None else example},
    )


@pytest.mark.parametrize("rows", [16, 64, 256, 500])
def test_good_data_is_not_doubted(trained: Trained, rows: int) -> None:
    assert doubts(trained, trained.test[:rows]) == []
    made_up = torch.randn(2, 1, 8, 8).numpy()
    assert [
        f.code for f in findings(trained, trained.test[:rows], example=made_up) if f.doubts
    ] == []


def test_brighter_darker_and_noisier_images_are_not_doubted(trained: Trained) -> None:
    """What augmentation makes of images: another contrast, some noise, moved by a pixel."""
    rng = np.random.default_rng(0)
    for x in (
        trained.test * np.float32(1.25),
        trained.test * np.float32(0.8),
        trained.test + 0.1 * rng.standard_normal(trained.test.shape).astype(np.float32),
        np.roll(trained.test, 1, -1),
    ):
        assert doubts(trained, x[:256]) == []


WRONG: dict[str, Callable[[Trained], Array]] = {
    **{
        f"times {factor:g}": (lambda made, factor=factor: made.test[:256] * np.float32(factor))
        for factor in (1 / 255, 0.1, 0.3, 3, 10, 255)
    },
    "0 to 255": lambda made: (made.test[:256] * made.deviation + made.mean) * np.float32(255),
    "zeros": lambda made: made.test[:256] * 0,
    "one colour": lambda made: made.test[:256] * 0 + 1,
    "a colour each": lambda made: np.broadcast_to(
        np.random.default_rng(0).random((256, 1, 1, 1), np.float32), (256, 1, 8, 8)
    ).copy(),
    "one image, many times": lambda made: np.repeat(made.test[:1], 64, 0),
    "one class": lambda made: made.one_class(3),
    "one sample": lambda made: made.test[:1],
    "four samples": lambda made: made.test[:4],
    "fifteen samples": lambda made: made.test[:15],
}


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_data_is_doubted(trained: Trained, kind: str) -> None:
    found = [finding for finding in findings(trained, WRONG[kind](trained)) if finding.doubts]
    assert found, kind
    assert all(finding.help for finding in found)
    few = [finding for finding in found if finding.code == "few-samples"]
    assert bool(few) == (
        "sample" in kind or "zeros" in kind or kind.split()[-1] == "colour" or "one image" in kind
    )


@pytest.mark.parametrize(
    ("factor", "words"),
    [
        (255, "25[0-9] times larger than in training .*was normalisation left out"),
        (1 / 255, "25[0-9] times smaller than in training .*normalised twice"),
        (3, "3.0. times larger"),
        (0.3, "3.3. times smaller"),
    ],
)
def test_batch_norms_know_the_scale_without_any_example(
    normed: Trained, factor: float, words: str
) -> None:
    made_up = np.random.default_rng(0).standard_normal((2, 1, 8, 8)).astype(np.float32)
    found = findings(normed, normed.test[:256] * np.float32(factor), example=made_up)
    assert next(f for f in found if f.code == "calibration-suspicious").doubts
    assert re.search(words, found[0].what), found[0].what


def test_batch_norms_know_missing_standardisation(nets: Any) -> None:
    made = nets((True, True))
    raw = made.test[:256] * made.deviation + made.mean
    assert "calibration-suspicious" in doubts(made, raw)


def test_batch_norms_know_noise_from_smooth_images() -> None:
    """On images whose neighbouring pixels agree, noise of the same mean and deviation is told by its channels."""
    rng = np.random.default_rng(0)
    coarse = rng.standard_normal((256, 1, 4, 4))
    smooth = np.asarray(
        nn.functional.interpolate(torch.from_numpy(coarse), size=(24, 24), mode="bicubic").numpy(),
        np.float32,
    )
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 16, 3), nn.BatchNorm2d(16), nn.ReLU())
    with torch.no_grad():
        for _ in range(100):
            net(torch.from_numpy(smooth[:128]))
    net.eval()
    said = {}
    for name, x in {
        "smooth": smooth[128:],
        "noise": (rng.standard_normal(smooth.shape) * smooth.std() + smooth.mean()).astype(
            np.float32
        ),
    }.items():
        found = subject.load(net, (torch.from_numpy(x[:2]),))
        said[name] = training_statistics.examine(found, open_reference(found, Clock()), [{"x": x}])
    assert said["smooth"].asked and not said["smooth"].doubt
    assert "is it noise" in said["noise"].doubt or "than in training" in said["noise"].doubt


def test_statistics_that_know_no_data_have_no_say() -> None:
    torch.manual_seed(0)
    fresh, by_hand = (
        nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU()).eval() for _ in range(2)
    )
    by_hand[1].running_mean.normal_()  # type: ignore[operator,union-attr]
    x = np.random.default_rng(0).standard_normal((32, 1, 8, 8)).astype(np.float32) * 100
    for net in (fresh, by_hand):
        found = subject.load(net, (torch.from_numpy(x[:2]),))
        assert not training_statistics.examine(
            found, open_reference(found, Clock()), [{"x": x}]
        ).asked


def norm_file(path: Path, *, scale: float = 1.2) -> Path:
    """Conv, BatchNormalization with statistics of randn inputs, ReLU: as an exporter without folding writes them."""
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((8, 1, 3, 3)).astype(np.float32)
    arrays = {
        "w": weight,
        "s": np.full(8, scale, np.float32),
        "b": np.full(8, 0.1, np.float32),
        "m": np.zeros(8, np.float32),
        "v": (weight**2).sum((1, 2, 3)),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv"),
        helper.make_node("BatchNormalization", ["c", "s", "b", "m", "v"], ["n"], name="norm"),
        helper.make_node("Relu", ["n"], ["y"], name="relu"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 1, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 8, 6, 6])],
        [numpy_helper.from_array(a, n) for n, a in arrays.items()],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path
    )
    return path


@pytest.mark.parametrize(
    ("factor", "doubted"), [(1.0, False), (1.3, False), (0.1, True), (3.0, True), (255.0, True)]
)
def test_the_batch_norms_of_a_file_are_asked(factor: float, doubted: bool, tmp_path: Path) -> None:
    found = subject.load(str(norm_file(tmp_path / "n.onnx")), None)
    x = np.random.default_rng(1).standard_normal((128, 1, 8, 8)).astype(np.float32) * np.float32(
        factor
    )
    said = training_statistics.examine(found, open_reference(found, Clock()), [{"x": x}])
    assert said.asked and bool(said.doubt) == doubted
    assert not doubted or "the BatchNorm `norm` sees values" in said.doubt


@pytest.mark.parametrize(
    ("high", "doubted"), [(255.0, False), (40.0, False), (1.0, True), (255.0**2, True)]
)
@pytest.mark.parametrize("nodes", [("Div",), ("Mul",), ("Sub", "Div"), ("Cast", "Div")])
def test_a_division_by_255_in_the_graph_says_what_the_inputs_are(
    nodes: tuple[str, ...], high: float, doubted: bool, tmp_path: Path
) -> None:
    constants = {"Div": 255.0, "Mul": 1 / 255, "Sub": 127.5}
    made, value = [], "x"
    for place, kind in enumerate(nodes):
        words: dict[str, Any] = {"to": TensorProto.FLOAT} if kind == "Cast" else {}
        made.append(
            helper.make_node(
                kind, [value, *([] if kind == "Cast" else [kind])], [f"v{place}"], **words
            )
        )
        value = f"v{place}"
    made.append(helper.make_node("MatMul", [value, "w"], ["y"]))
    weights = [
        numpy_helper.from_array(np.float32(constants[kind]), kind)
        for kind in nodes
        if kind in constants
    ]
    weights.append(numpy_helper.from_array(np.ones((4, 2), np.float32), "w"))
    graph = helper.make_graph(
        made,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 2])],
        weights,
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
        tmp_path / "p.onnx",
    )
    found = subject.load(str(tmp_path / "p.onnx"), None)
    x = np.random.default_rng(0).random((32, 4), np.float32) * np.float32(high)
    said = training_statistics.examine(found, open_reference(found, Clock()), [{"x": x}])
    assert said.asked and bool(said.doubt) == doubted
    assert not doubted or "as for pixels" in said.doubt


def test_an_example_that_is_unlike_is_told_and_no_doubt_where_the_statistics_fit(
    normed: Trained,
) -> None:
    found = {f.code: f for f in findings(normed, normed.test[:256], example=normed.test[:2] * 255)}
    assert (
        "example-unlike" in found
        and not found["example-unlike"].doubts
        and "calibration-scale" not in found
    )


@pytest.mark.parametrize(
    ("array", "made_up"),
    [
        (np.random.default_rng(0).standard_normal((1, 3, 16, 16)), True),
        (np.random.default_rng(0).random((1, 3, 16, 16)), True),
        (np.zeros((2, 4)), True),
        (np.ones((2, 4)), True),
        (load_digits().data[:2] / 16, False),
        (np.sin(np.linspace(0, 50, 1000)), False),
        (np.random.default_rng(0).standard_normal((1, 3, 16, 16)) * 40, False),
    ],
)
def test_examples_that_are_made_up_are_known(array: Array, made_up: bool) -> None:
    assert training_statistics.looks_made_up(array) == made_up


def quantized(made: Trained, x: Array, path: Path, **options: Any) -> onnxproof.Quantized:
    return onnxproof.quantize(
        made.net,
        path,
        **{
            "calibration": {"input": x},
            "example_inputs": (torch.from_numpy(made.x[:2]),),
            "dynamic_shapes": ({0: "batch"},),
            "recipes": (),
            "budget": onnxproof.Budget(seconds=5),
            "proof_s": 0.5,
            "policy": Policy(domains=()),
            **options,
        },
    )


def real_db(made: Trained, path: Path) -> float:
    """What the file keeps on all images that nobody calibrated with."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path))
    wanted = made.net(torch.from_numpy(made.test)).detach().numpy()
    error = session.run(None, {session.get_inputs()[0].name: made.test})[0] - wanted
    return float(10 * np.log10((wanted**2).sum() / (error**2).sum()))


def test_a_good_calibration_is_faithful_and_its_claim_holds(two: Trained, tmp_path: Path) -> None:
    result = quantized(two, two.test[:64], tmp_path / "q.onnx")
    assert result.verdict is Verdict.FAITHFUL, result.proof.sentence()
    assert abs(result.score.sqnr_db - real_db(two, result.path)) < 5


@pytest.mark.parametrize("kind", ["times 255", "times 0.3", "one sample", "one class"])
def test_wrong_data_is_never_faithful(two: Trained, kind: str, tmp_path: Path) -> None:
    result = quantized(two, WRONG[kind](two), tmp_path / "q.onnx")
    assert result.verdict in (Verdict.DRIFT, Verdict.DIVERGED)
    assert result.path.exists() and any(finding.doubts for finding in result.proof.findings)
    assert result.proof.judged(Policy()).verdict is result.verdict  # stored proofs stay as they are


def test_one_sample_claims_no_more_than_there_is(two: Trained, tmp_path: Path) -> None:
    result = quantized(two, two.test[:1], tmp_path / "q.onnx")
    assert (
        result.score.sqnr_db < real_db(two, result.path) + 8
    )  # the sample itself keeps 15 dB and more beyond it


def test_data_of_the_users_own_lifts_the_doubt_of_few_samples(
    normed: Trained, tmp_path: Path
) -> None:
    result = quantized(
        normed, normed.test[:15], tmp_path / "q.onnx", data={"input": normed.test[100:200]}
    )
    few = next(finding for finding in result.findings if finding.code == "few-samples")
    assert not few.doubts and result.proof.quality() == pytest.approx(
        real_db(normed, result.path), abs=4
    )


def test_the_doubt_is_in_the_headline_and_the_exit_code_is_that_of_drift(
    normed: Trained, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "one.npz", input=normed.test[:1])
    words = [
        "quantize",
        str(normed.file),
        "-o",
        "q.onnx",
        "--calibration",
        "one.npz",
        "--recipe",
        "none",
        "--time",
        "3",
        "-q",
    ]
    codes = [main(words), main([*words, "--strict"])]
    printed = capsys.readouterr().out
    assert "(in doubt)" in printed and "there is 1 calibration sample" in printed
    assert codes in ([0, 1], [1, 1])  # DRIFT passes unless strict; DIVERGED never


def test_the_data_is_split_by_samples_where_batches_are_few() -> None:
    port = onnx_file.Port(name="x", dtype="float32", dims=("n", 3))
    for rows in (2, 4, 5, 7, 31, 64, 100, 320):
        divided, few = batches.divide_few_batches(
            batches.split_batches(
                {"x": np.arange(rows * 3, dtype=np.float32).reshape(rows, 3)}, [port]
            ),
            [port],
            HELD_OUT,
        )
        stream = list(divided)
        held = [place for place in range(len(stream)) if is_held_out(place, few)]
        assert (
            1 <= len(held) <= len(stream) // 2
            and sum(len(batch["x"]) for _, batch in stream) == rows
        )
        assert {tuple(row) for _, batch in stream for row in batch["x"]} == {
            tuple(row) for row in np.arange(rows * 3, dtype=np.float32).reshape(rows, 3)
        }


@pytest.mark.parametrize("count", [1, 2, 4, 5, 10])
def test_a_batch_of_fixed_size_is_held_out_whole(count: int) -> None:
    port = onnx_file.Port(name="x", dtype="float32", dims=(8, 3))
    divided, few = batches.divide_few_batches(
        batches.split_batches({"x": np.zeros((8 * count, 3), np.float32)}, [port]), [port], HELD_OUT
    )
    stream = list(divided)
    assert [len(batch["x"]) for _, batch in stream] == [8] * count
    assert (
        sum(is_held_out(place, few) for place in range(count))
        == {1: 0, 2: 1, 4: 1, 5: 1, 10: 2}[count]
    )


def test_explain_asks_the_calibration_data_it_is_given(
    normed: Trained, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    norm_file(tmp_path / "float.onnx")
    x = np.random.default_rng(0).standard_normal((160, 1, 8, 8)).astype(np.float32)
    onnxproof.quantize(
        "float.onnx",
        "q.onnx",
        calibration={"x": x},
        recipes=(),
        proof_s=0.5,
        budget=onnxproof.Budget(seconds=3),
    )
    for name, factor in (("good", 1), ("bad", 255)):
        np.savez(tmp_path / f"{name}.npz", x=x[:100] * np.float32(factor))
    verdicts = {}
    for name in ("good", "bad"):
        main(
            [
                "explain",
                "float.onnx",
                "q.onnx",
                "--data",
                "good.npz",
                "--calibration",
                f"{name}.npz",
                "--budget",
                "2",
                "--json",
                f"{name}.json",
                "-q",
            ]
        )
        stored = json.loads((tmp_path / f"{name}.json").read_text())
        verdicts[name] = (
            stored["verdict"],
            [finding["code"] for finding in stored["findings"] if finding["doubts"]],
        )
    assert verdicts == {"good": ("faithful", []), "bad": ("drift", ["calibration-suspicious"])}


def test_verify_asks_the_data_a_quantized_file_is_judged_by(tmp_path: Path) -> None:
    norm_file(tmp_path / "float.onnx")
    x = np.random.default_rng(0).standard_normal((160, 1, 8, 8)).astype(np.float32)
    for factor, code in ((1, None), (255, "data-suspicious")):
        path = tmp_path / f"q{factor}.onnx"
        onnxproof.quantize(
            str(tmp_path / "float.onnx"),
            path,
            calibration={"x": x * np.float32(factor)},
            recipes=(),
            proof_s=0.5,
            budget=onnxproof.Budget(seconds=3),
        )
        proof = onnxproof.verify(
            str(tmp_path / "float.onnx"),
            path,
            data=[(x[:32] * np.float32(factor),)],
            budget_s=1,
            explain=False,
        )
        assert proof.verdict is (Verdict.FAITHFUL if code is None else Verdict.DRIFT)
        assert [finding.code for finding in proof.findings if finding.doubts] == (
            [] if code is None else [code]
        )


def test_a_busy_machine_does_not_change_what_quality_is_judged_by(
    normed: Trained, tmp_path: Path
) -> None:
    """However short the time, a quantized file is judged by the data and not by a made-up example that was reached first."""
    result = quantized(
        normed,
        normed.test[:160],
        tmp_path / "q.onnx",
        proof_s=0.001,
        example_inputs=(torch.randn(2, 1, 8, 8),),
    )
    assert {gap.group for gap in judging.asked(result.proof.gaps)} == {
        "data"
    } and result.verdict is Verdict.FAITHFUL


def test_a_doubt_makes_a_verdict_at_best_drift_and_nothing_worse() -> None:
    from support.made_proofs import gap

    doubt = Finding(code="few-samples", what="there is 1 calibration sample", doubts=True)
    for ratio, verdict in ((1.0, Verdict.DRIFT), (1e6, Verdict.DIVERGED)):
        assert (
            judging.judge(
                [gap("example", "ordinary", "ort", ratio, allowance=100.0)],
                Policy(),
                findings=[doubt],
            )
            is verdict
        )
    assert judging.judge([], Policy(), findings=[doubt]) is Verdict.VACUOUS


def test_one_sided_data_is_no_doubt_where_the_model_has_one_largest_output_anywhere() -> None:
    answers = [[np.eye(10, dtype=np.float32)[np.full(64, 3)]]]
    assert [f.doubts for f in data_quality._check_classes(answers, lambda: answers)] == [False]
    others = [[np.eye(10, dtype=np.float32)[[1, 2, 5, 7]]]]
    assert [f.doubts for f in data_quality._check_classes(answers, lambda: others)] == [True]


def test_the_same_sample_many_times_is_one() -> None:
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    assert data_quality.count_distinct([("a", {"x": x}), ("b", {"x": x[:2]})]) == 3
