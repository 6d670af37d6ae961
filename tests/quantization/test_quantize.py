"""`onnxproof.quantize` and its command: what it keeps, what it proves, what it refuses, and that nothing is half-written."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from support.quantized_faults import Normed, convnet, imbalanced, mlp
from torch import nn

import onnxproof
from onnxproof.cli import main
from onnxproof.errors import InputError, OnnxproofError, UsageError
from onnxproof.exporter import export
from onnxproof.onnxmodel.onnx_file import read
from onnxproof.options import Policy
from onnxproof.quantization import recipes, schemes
from onnxproof.quantization.float_graph import Index, prepare
from onnxproof.quantization.insert_qdq import HEAVY, Plan, choose, insert
from onnxproof.quantization.kernel_report import count_kernels
from onnxproof.quantization.scoring import compute_outputs
from onnxproof.quantization.trials import QuantizationTrials, recompute_statistics
from onnxproof.reference import subject
from onnxproof.results import Verdict

QUICK = onnxproof.Budget(seconds=20)


def data(shape: tuple[int, ...], rows: int = 192, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal((rows, *shape)).astype(np.float32)


def exported(module: nn.Module, x: Any, path: Path) -> Path:
    torch.manual_seed(0)
    export.write(
        subject.load(module.eval(), (torch.from_numpy(x[:2]),), dynamic_shapes=({0: "batch"},)),
        path,
    )
    return path


@pytest.fixture(scope="module")
def conv(tmp_path_factory: Any) -> tuple[Path, Any]:
    torch.manual_seed(0)
    x = data((3, 8, 8))
    return exported(convnet(), x, tmp_path_factory.mktemp("conv") / "conv.onnx"), x


def quantized(source: Any, output: Path, x: Any, **options: Any) -> onnxproof.Quantized:
    return onnxproof.quantize(
        source,
        output,
        **{
            "calibration": {"x": x},
            "budget": QUICK,
            "proof_s": 1.0,
            "policy": Policy(domains=()),
            **options,
        },
    )


def test_a_conv_net_is_quantized_and_proven(conv: Any, tmp_path: Path) -> None:
    source, x = conv
    result = quantized(source, tmp_path / "int8.onnx", x)
    assert result.verdict is Verdict.FAITHFUL and result.met and result.score.sqnr_db > 33
    assert (
        result.path.is_file()
        and read(result.path).quantized
        and [p.name for p in tmp_path.iterdir()] == ["int8.onnx"]
    )
    done, heavy = result.census.heavy
    assert done == heavy == 4  # every heavy node runs as integers
    assert [entry.stage for entry in result.ledger] == [
        "ONNX, float",
        "Q/DQ, not optimised",
        "Q/DQ, as served (ort)",
    ]
    assert result.size < 0.7 * result.float_size  # of a net of a few thousand weights
    assert any(point.best for point in result.front) and {
        step.name for step in result.steps
    } >= set(recipes.names()) - {"keep-float"}
    with pytest.raises(TypeError, match="more than a yes or no"):
        bool(result)


def test_the_answers_themselves_are_never_rounded(conv: Any, tmp_path: Path) -> None:
    source, x = conv
    result = quantized(source, tmp_path / "int8.onnx", x, recipes=())
    made = onnx.load(result.path)
    makers = {name: node.op_type for node in made.graph.node for name in node.output}
    assert {makers[port.name] for port in made.graph.output} == {
        "Gemm"
    } and result.census.heavy == (4, 4)  # the integer kernel gives float


def test_the_imbalanced_twin_is_as_good_and_equalization_did_it(tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = data((3, 8, 8))
    result = quantized(
        exported(imbalanced(), x, tmp_path / "float.onnx"), tmp_path / "int8.onnx", x
    )
    steps = {step.name: step for step in result.steps}
    assert (
        steps["equalize"].kept
        and steps["equalize"].before_db < 15 < 25 < steps["equalize"].after_db
    )
    assert (
        result.verdict is Verdict.FAITHFUL
        and result.kept_float == ()
        and result.census.fallback == {}
    )


def test_a_run_that_is_taken_up_again_chooses_by_the_latencies_of_the_first(
    conv: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, x = conv
    first = quantized(source, tmp_path / "a.onnx", x, cache=tmp_path / "cache", recipes=())
    monkeypatch.setattr(
        "onnxproof.quantization.tuning.latencies",
        lambda models, batch: [float(k) for k in range(len(models), 0, -1)],
    )  # another machine, or a busy one
    second = quantized(source, tmp_path / "b.onnx", x, cache=tmp_path / "cache", recipes=())
    assert first.path.read_bytes() == second.path.read_bytes()


def test_the_same_data_gives_the_same_file_and_a_second_run_recalls_the_first(
    conv: Any, tmp_path: Path
) -> None:
    source, x = conv
    first = quantized(
        source, tmp_path / "a.onnx", x, cache=tmp_path / "cache", recipes=("equalize", "fit-ranges")
    )
    second = quantized(
        source, tmp_path / "b.onnx", x, cache=tmp_path / "cache", recipes=("equalize", "fit-ranges")
    )
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
    assert first.recalled < first.tried and second.recalled == second.tried == first.tried


class Relu6(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.deep, self.last = (
            nn.Conv2d(3, 16, 3, padding=1),
            nn.Conv2d(16, 16, 3, groups=16),
            nn.Conv2d(16, 4, 1),
        )
        self.first.weight.data *= (2.0 ** torch.linspace(-8, 0, 16))[:, None, None, None]
        self.first.bias.data *= 2.0 ** torch.linspace(-8, 0, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(
            nn.functional.max_pool2d(
                nn.functional.relu6(self.deep(nn.functional.relu6(self.first(x)))), 2
            )
        )


@pytest.mark.parametrize(
    ("module", "shape", "recipe", "makers"),
    [
        (convnet, (3, 8, 8), "equalize", "Conv"),
        (imbalanced, (3, 8, 8), "equalize", "Conv"),
        (Relu6, (3, 8, 8), "equalize", "Conv"),
        (Normed, (16,), "smooth", "LayerNormalization"),
    ],
)
def test_rescaling_leaves_the_float_answers_as_they_are(
    module: Any, shape: Any, recipe: str, makers: str, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    x = data(shape, 64)
    model = prepare(exported(module(), x, tmp_path / "float.onnx"))
    samples = [("x", {next(iter(Index(model).inputs)): x})]
    trials = QuantizationTrials(
        model=model,
        stats=recompute_statistics(model, samples),
        plan=Plan(),
        samples=samples,
        reference_outputs=compute_outputs(model, samples),
    )
    applied = recipes.load(recipe).apply(trials)
    assert not isinstance(applied, str) and applied.model is not None
    before, after = trials.reference_outputs[0][0], compute_outputs(applied.model, samples)[0][0]
    assert np.abs(before - after).max() < 1e-4 * np.abs(before).max()
    assert any(node.op_type == makers for node in model.graph.node)


def test_learned_rounding_beats_rounding_to_nearest(tmp_path: Path) -> None:
    torch.manual_seed(0)
    mixing = torch.randn(16, 16)
    x = (data((16,), 256) @ (mixing.numpy() * np.linspace(0.01, 1, 16)[:, None])).astype(
        np.float32
    )  # inputs that go together: where learning helps
    model = prepare(exported(nn.Sequential(nn.Linear(16, 8)), x, tmp_path / "float.onnx"))
    samples = [("x", {next(iter(Index(model).inputs)): x})]
    plan = Plan(
        nodes=choose(model, HEAVY),
        float_outputs=frozenset(Index(model).outputs),
        calibrator="min-max",
        activations="uint16",
    )
    trials = QuantizationTrials(
        model=model,
        stats=recompute_statistics(model, samples),
        plan=plan,
        samples=samples,
        reference_outputs=compute_outputs(model, samples),
    ).quantize_and_score()
    applied = recipes.load("learn-rounding").apply(trials)
    assert not isinstance(applied, str), applied
    assert trials.with_applied(applied).score.sqnr_db > trials.score.sqnr_db + 1


def test_seven_bits_only_where_products_saturate(conv: Any, tmp_path: Path) -> None:
    source, x = conv
    plain = quantized(source, tmp_path / "here.onnx", x, recipes=("reduce-range",), target="vnni")
    assert "nothing saturates" in plain.steps[-1].what
    torch.manual_seed(0)
    net = mlp()
    net[0].weight.data = net[0].weight.data.abs().clamp(min=0.2)
    y = np.abs(data((16,)))
    result = quantized(
        exported(net, y, tmp_path / "mlp.onnx"),
        tmp_path / "old.onnx",
        y,
        recipes=("reduce-range",),
        target="avx2",
    )
    step = next(step for step in result.steps if step.name == "reduce-range")
    assert step.kept and "would be touched" in step.what
    small = [
        np.abs(onnx.numpy_helper.to_array(t).astype(int)).max()
        for t in onnx.load(result.path).graph.initializer
        if t.data_type == onnx.TensorProto.INT8 and len(t.dims) > 1
    ]
    assert min(small) <= 64 < max(small)  # the first layer, and only it


@pytest.mark.parametrize("scheme", schemes.names())
def test_every_scheme_makes_a_model_that_runs_and_is_near(scheme: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = data((16,))
    source = exported(
        nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)),
        x,
        tmp_path / "float.onnx",
    )
    result = quantized(source, tmp_path / "made.onnx", x, scheme=scheme, recipes=())
    least = {"w4": 12, "u8s8_tensor": 25, "s8s8": 25, "u8s8": 25, "dynamic": 25}.get(scheme, 35)
    assert result.score.sqnr_db > least, result.score
    assert result.size < result.float_size


def test_a_transformer_keeps_its_products_and_norms_float(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.0)
    x = data((6, 32), 64)
    result = quantized(
        module.eval(),
        tmp_path / "int8.onnx",
        x,
        example_inputs=(torch.from_numpy(x[:2]),),
        dynamic_shapes={"src": {0: "batch"}},
        recipes=("smooth",),
        calibration=[(x[k : k + 16],) for k in range(0, 64, 16)],
    )
    assert result.verdict is Verdict.FAITHFUL and result.score.sqnr_db > 30
    assert (
        result.census.integer.get("MatMulIntegerToFloat", 0) + result.census.integer.get("QGemm", 0)
        >= 2
    )
    assert result.ledger[0].stage == "PyTorch, float"


def test_the_budget_is_kept_by_what_stays_float_where_recipes_are_not_enough(
    tmp_path: Path,
) -> None:
    torch.manual_seed(0)
    x = data((3, 8, 8))
    source = exported(imbalanced(), x, tmp_path / "float.onnx")
    result = quantized(
        source,
        tmp_path / "int8.onnx",
        x,
        recipes=(),
        budget=onnxproof.Budget(min_sqnr=22.0, seconds=30),
    )
    assert result.met and result.kept_float and result.score.sqnr_db > 20, (
        result.score,
        result.steps,
    )
    assert "stay float" in result.steps[-1].what


def labels(source: Path, x: Any) -> Any:
    model = onnx.load(source)
    return compute_outputs(model, [("x", {model.graph.input[0].name: x})])[0][0].argmax(1)


def test_a_drop_is_told_with_its_interval(conv: Any, tmp_path: Path) -> None:
    source, x = conv
    result = quantized(
        source,
        tmp_path / "int8.onnx",
        x,
        evaluate=(x, labels(source, x)),
        budget=onnxproof.Budget(max_drop=0.02, seconds=20),
        recipes=("equalize",),
    )
    assert (
        result.metric is not None
        and result.metric.before == 1.0
        and result.metric.samples == len(x)
    )
    assert result.metric.low <= result.metric.drop <= result.metric.high
    assert result.met == (result.metric.high <= 0.02)


def raises(predict: Any) -> float:
    raise RuntimeError("no labels here")


def wrong(**changes: Any) -> dict[str, Any]:
    return changes


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        (wrong(calibration=None), InputError, "the scheme `u8s8` needs calibration data"),
        (wrong(calibration=[]), InputError, "the calibration data is empty"),
        (
            wrong(evaluate=(data((3, 8, 8)), np.zeros(7))),
            InputError,
            "there are 7 labels for 192 inputs",
        ),
        (wrong(evaluate=raises), InputError, "the evaluator raised RuntimeError: no labels here"),
        (
            wrong(evaluate=lambda predict: float("nan")),
            InputError,
            "the evaluator gave NaN or infinity",
        ),
        (
            wrong(evaluate=(data((3, 8, 8)) * 255, np.zeros(192))),
            InputError,
            "25[0-9] times smaller than the data it is evaluated on",
        ),
        (wrong(budget=0.01), UsageError, "a largest drop needs a metric"),
        (wrong(scheme="int3"), UsageError, "there is no scheme `int3`"),
        (wrong(recipes=("magic",)), UsageError, "there is no recipe `magic`"),
        (wrong(calibrator="mean"), UsageError, "there is no calibrator `mean`"),
        (wrong(exclude=("no_such_node",)), UsageError, "names no node of the simplified graph"),
        (
            wrong(scheme="dynamic", exclude=("node_conv2d",)),
            UsageError,
            "`exclude` does nothing under the scheme `dynamic`",
        ),
        (
            wrong(scheme="w8", recipes=("equalize",)),
            UsageError,
            "`recipe` does nothing under the scheme `w8`",
        ),
        (
            wrong(scheme="fp16", calibrator="entropy"),
            UsageError,
            "`calibrator` does nothing under the scheme `fp16`",
        ),
        (
            wrong(scheme="dynamic", target="avx2"),
            UsageError,
            "`target` does nothing under the scheme `dynamic`",
        ),
        (wrong(target="arm"), UsageError, "there is no target `arm`"),
    ],
)
def test_bad_input_is_told_and_nothing_is_written(
    options: Any, kind: type[OnnxproofError], words: str, conv: Any, tmp_path: Path
) -> None:
    source, x = conv
    budget = options.pop(
        "budget", onnxproof.Budget(max_drop=0.01, seconds=5) if "evaluate" in options else QUICK
    )
    with pytest.raises(kind, match=words):
        quantized(source, tmp_path / "int8.onnx", x, **{"recipes": (), "budget": budget, **options})
    assert list(tmp_path.iterdir()) == []


def test_a_quantized_model_is_not_quantized_again(conv: Any, tmp_path: Path) -> None:
    source, x = conv
    quantized(source, tmp_path / "int8.onnx", x, recipes=())
    with pytest.raises(UsageError, match="is quantized already"):
        quantized(tmp_path / "int8.onnx", tmp_path / "again.onnx", x)
    with pytest.raises(UsageError, match="is the model that is being quantized"):
        quantized(source, source, x)
    assert not (tmp_path / "again.onnx").exists()


def test_a_folder_that_may_not_be_written_is_told_at_once(conv: Any, tmp_path: Path) -> None:
    source, x = conv
    with pytest.raises(
        UsageError, match=r"error\[cannot-write\]: there is no folder `.*no` to write the model to"
    ):
        quantized(source, tmp_path / "no" / "int8.onnx", x)
    if os.geteuid():  # root may write anywhere
        (tmp_path / "locked").mkdir(mode=0o500)
        with pytest.raises(UsageError, match="the model can't be written: Permission denied"):
            quantized(source, tmp_path / "locked" / "int8.onnx", x)


def test_a_model_without_anything_to_quantize_is_told(tmp_path: Path) -> None:
    x = data((16,), 8)
    with pytest.raises(UsageError, match="no node of this model can be quantized"):
        quantized(exported(nn.Sigmoid(), x, tmp_path / "float.onnx"), tmp_path / "int8.onnx", x)


def test_options_that_would_do_nothing_are_errors(conv: Any) -> None:
    model = prepare(conv[0])
    ranges = dict.fromkeys(Index(model).float_values(), (-1.0, 1.0))
    with pytest.raises(UsageError, match="no node `nowhere`"):
        insert(model, ranges, Plan(nodes=("nowhere",)))
    with pytest.raises(UsageError, match="no value `nothing`"):
        insert(model, ranges, Plan(nodes=choose(model, HEAVY), wide=frozenset({"nothing"})))


def test_quantize_is_the_function_whatever_was_imported_first() -> None:
    code = (
        "import onnxproof.quantization.quantize, onnxproof.cli.quantize, onnxproof\n"
        "import onnxproof.quantization\n"
        "assert callable(onnxproof.quantize) and onnxproof.quantize.__name__ == 'quantize'\n"
        "from onnxproof import quantize\nassert callable(quantize)\n"
    )
    for lines in (code, "import onnxproof\nassert callable(onnxproof.quantize)\n" + code):
        subprocess.run(
            [sys.executable, "-c", lines],
            check=True,
            env=os.environ | {"PYTHONPATH": str(Path(onnxproof.__file__).parent.parent)},
        )


def test_the_command_line(conv: Any, tmp_path: Path, capsys: Any) -> None:
    source, x = conv
    np.savez(tmp_path / "calib.npz", x=x)
    np.savez(tmp_path / "eval.npz", x=x, labels=labels(source, x))
    (tmp_path / "metric.py").write_text(
        "import numpy as np\n\n\ndef accuracy(predict):\n    d = np.load("
        + repr(str(tmp_path / "eval.npz"))
        + ")\n"
        "    return predict(d['x'])[0].argmax(1) == d['labels']\n"
    )
    code = main(
        [
            "quantize",
            str(source),
            "-o",
            str(tmp_path / "int8.onnx"),
            "--calibration",
            str(tmp_path / "calib.npz"),
            "--evaluate",
            f"{tmp_path / 'metric.py'}:accuracy",
            "--max-drop",
            "10%",
            "--time",
            "10",
            "--recipe",
            "equalize",
            "--json",
            str(tmp_path / "out.json"),
        ]
    )
    told = " ".join(capsys.readouterr().out.split())
    assert code == 0
    assert (
        told.startswith("FAITHFUL")
        and "4 of 4 heavy nodes run as integers" in told
        and "Q/DQ, as served (ort)" in told
    )
    document = json.loads((tmp_path / "out.json").read_text())
    assert (
        document["schema"] == "quantized-1"
        and document["met"] is True
        and document["proof"]["verdict"] == "faithful"
    )
    assert (
        main(["quantize", str(source), "-o", str(tmp_path / "other.onnx"), "--max-drop", "lots"])
        == 2
    )
    assert "`--max-drop lots` makes no sense" in capsys.readouterr().err
    assert (
        main(
            [
                "quantize",
                str(source),
                "-o",
                str(tmp_path / "int8.onnx"),
                "--calibration",
                str(tmp_path / "calib.npz"),
                "--max-latency",
                "0.000001",
                "--time",
                "5",
                "--recipe",
                "none",
                "-q",
            ]
        )
        == 1
    )


def test_the_census_tells_integer_kernels_from_float_ones(conv: Any, tmp_path: Path) -> None:
    source, x = conv
    assert count_kernels(source).heavy == (0, 4)
    wide = quantized(source, tmp_path / "wide.onnx", x, scheme="a16w8", recipes=())
    assert (
        wide.census.heavy == (0, 4) and wide.census.conversions > 0
    )  # 16 bits have no integer kernels on x86
