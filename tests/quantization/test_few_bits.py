"""`quantize --scheme w4` by a budget: bits where they count, losses shown on texts that chose nothing, and a run that goes on where it was stopped."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from support.language_model import TOKENS, language_model, save, token_ids

import onnxproof
from onnxproof.cli import main
from onnxproof.errors import OnnxproofError
from onnxproof.quantization.blockwise import search as block_search
from onnxproof.quantization.blockwise.allocation import Allocation, path, spend
from onnxproof.quantization.blockwise.result import Blockwise
from onnxproof.quantization.blockwise.search import BlockSearch, search
from onnxproof.quantization.blockwise.side_by_side import numbers, write_both
from onnxproof.quantization.insert_qdq import Plan
from onnxproof.quantization.scoring import compute_outputs
from onnxproof.quantization.trials import QuantizationTrials
from onnxproof.quantization.tuning_state import Budget, Tuning
from onnxproof.report.text_pairs import row, summary


def _tuning(budget: Budget, **options: Any) -> Tuning:
    """A search's own state, without the stages around it."""
    return _tuning_of(language_model(**options), budget)


def _tuning_of(model: onnx.ModelProto, budget: Budget) -> Tuning:
    samples = [(f"texts {k}", {"input_ids": token_ids(10, seed=k)}) for k in range(4)]
    trials = QuantizationTrials(
        model=model,
        stats={},
        plan=Plan(),
        samples=samples,
        reference_outputs=compute_outputs(model, samples),
        deadline=0.0,
    )
    return Tuning(trials=trials, evaluator=None, plain=model, budget=budget)


def test_the_matrix_that_costs_most_is_named_and_gets_the_bits() -> None:
    tuning = search(_tuning(Budget(bits=5.2), head_gain=6.0), frozenset(), has_data=True)
    found = tuning.blockwise
    assert found is not None and found.unit == "nats"
    assert found.bits <= 5.2
    by_name = {each.name: each for each in found.matrices}
    assert by_name["head"].bits > max(by_name[name].bits for name in ("first", "second"))
    costs = [each.cost for each in found.matrices]
    assert costs == sorted(costs, reverse=True)
    chosen = [point for point in found.front if point.bits == found.bits]
    assert sum(costs) == pytest.approx(chosen[0].cost, rel=1e-6)
    assert by_name["first"].next_saves > 0 and by_name["first"].next_bytes > 0


def test_bits_that_are_left_are_spent_only_where_that_measurably_helps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last point of the path costs as before; what spends more is taken for a smaller KL alone."""

    # a timing decides the level, which changes the cost a little
    monkeypatch.setattr(BlockSearch, "_choose_level", lambda self, trial: (0, "", trial))

    def found_with(replacement: Callable[..., Allocation]) -> Blockwise:
        monkeypatch.setattr(block_search, "spend", replacement)
        tuning = search(_tuning(Budget(bits=5.0), head_gain=6.0), frozenset(), has_data=True)
        assert tuning.blockwise is not None
        return tuning.blockwise

    before = found_with(lambda choices, start, most: start)
    after = found_with(spend)
    worse = found_with(lambda choices, start, most: path(choices)[0])
    costs = [sum(each.cost for each in found.matrices) for found in (before, after, worse)]
    assert before.bits < after.bits <= 5.0 and costs[1] < costs[0]
    assert worse.bits == before.bits and costs[2] == costs[0]


def test_fewer_bits_than_four_take_two() -> None:
    tuning = search(_tuning(Budget(bits=3.5)), frozenset(), has_data=True)
    assert tuning.blockwise is not None and tuning.blockwise.bits <= 3.5
    forms = [each.form for each in tuning.blockwise.matrices]
    assert any(form.startswith("2 bits") for form in forms)


def test_a_loss_decides_how_many_bits_there_are() -> None:
    loose = search(_tuning(Budget(max_kl=0.3, confidence=0.9)), frozenset(), has_data=True)
    tight = search(_tuning(Budget(max_kl=0.002, confidence=0.9)), frozenset(), has_data=True)
    assert loose.blockwise is not None and tight.blockwise is not None
    assert tight.blockwise.bits > loose.blockwise.bits


@pytest.mark.parametrize("name", ["{}", "model.decoder.layers.11.self_attention.{}.weight" * 4])
def test_a_file_stays_within_its_size_whatever_its_names(name: str) -> None:
    """Names are written about ten times for each matrix, so that long ones are many bytes of a file."""
    model = language_model()
    names = {tensor.name: name.format(*[tensor.name] * 4) for tensor in model.graph.initializer}
    for tensor in model.graph.initializer:
        tensor.name = names[tensor.name]
    for node in model.graph.node:
        node.input[:] = [names.get(each, each) for each in node.input]
    smallest = search(_tuning_of(model, Budget(bits=1.0)), frozenset(), has_data=True)
    most = int(1.5 * smallest.trials.quantized.ByteSize())
    found = search(_tuning_of(model, Budget(max_size=most)), frozenset(), has_data=True)
    assert 0.95 * most < found.trials.quantized.ByteSize() <= most


def test_a_loss_is_kept_with_hardly_more_bits_than_lose_too_much() -> None:
    tuning = search(_tuning(Budget(max_kl=0.001, confidence=0.9)), frozenset(), has_data=True)
    found = tuning.blockwise
    assert found is not None
    fewer = [point.bits for point in found.front if point.bits < found.bits]
    assert fewer and found.bits - max(fewer) < 0.2


def test_an_excluded_node_stays_float() -> None:
    tuning = search(_tuning(Budget()), frozenset({"head"}), has_data=True)
    kinds = {node.name: node.op_type for node in tuning.trials.quantized.graph.node}
    assert kinds["head"] == "MatMul" and kinds["second"] == "MatMulNBits"
    assert kinds["embed"] == "GatherBlockQuantized"


def test_a_text_is_quantized_judged_and_taken_up_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = save(tmp_path / "model.onnx")
    text, cache = tmp_path / "text.txt", tmp_path / "cache"
    words = np.random.default_rng(3).integers(0, TOKENS, 256 * 24)
    text.write_text(" ".join(f"w{word}" for word in words))
    _write_tokenizer(tmp_path / "tokenizer.json")
    command = ["quantize", str(model), "--scheme", "w4", "--text", str(text)]
    command += ["--max-kl", "1e-9", "--cache", str(cache), "--time", "1", "--quiet"]
    files, results = [], []
    for name in ("one", "two"):
        target, result = tmp_path / f"{name}.onnx", tmp_path / f"{name}.json"
        page = tmp_path / f"{name}.html"
        outputs = ["-o", str(target), "--json", str(result), "--html", str(page)]
        code = main([*command, *outputs])
        assert code == 1  # nobody keeps KL below 1e-9
        files.append(target.read_bytes())
        results.append(json.loads(result.read_text()))
    assert files[0] == files[1]
    assert results[0]["recalled"] == 0
    # timings decide which accuracy levels are tried, so that a few graphs may be new
    assert 2 * results[1]["recalled"] > results[1]["tried"] > 0
    blocks = results[0]["blockwise"]
    assert not results[0]["met"] and results[0]["outcome"] != "shown"
    assert blocks["kl"]["low"] <= blocks["kl"]["drop"] <= blocks["kl"]["high"]
    assert {each["name"] for each in blocks["matrices"]} == {"table", "first", "second", "head"}
    assert 'data-chart="matrices"' in page.read_text() and 'data-chart="front"' in page.read_text()
    printed = capsys.readouterr().out
    assert "bits a weight, KL" in printed and "perplexity" in printed
    texts = results[0]["proof"]["texts"]
    assert len(texts) == 4 and all(pair["tokens"] == 32 for pair in texts)
    assert all(pair["prompt"].startswith("w") for pair in texts)  # words, and no numbers
    assert "What both write after the same beginning" in page.read_text()


def test_two_models_that_part_are_shown_from_there_on() -> None:
    plain = language_model()
    samples = [("texts", {"input_ids": token_ids(6, length=40)})]
    same = write_both(plain, language_model(), samples, numbers)
    assert [pair.first_apart for pair in same] == [None] * 4
    assert all(pair.reference == pair.candidate == pair.same for pair in same)
    pairs = write_both(plain, language_model(head_gain=-1.0), samples, numbers)
    assert {pair.first_apart for pair in pairs} == {0}
    shown = row(pairs[0])
    assert shown["same"] == "" and shown["reference"] != shown["candidate"]
    assert shown["count"] == "0 of 20"
    assert summary(pairs).startswith("0 of 4 texts are the same for 20 tokens; the first parts")


def test_what_is_no_language_model_writes_nothing() -> None:
    samples = [("texts", {"input_ids": token_ids(6, length=1)})]
    assert write_both(language_model(), language_model(), samples, numbers) == ()


def _write_tokenizer(path: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    vocabulary = {f"w{word}": word for word in range(TOKENS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(path))


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--scheme", "u8s8", "--calibration", "ids.npz", "--bits", "4"], "option-does-nothing"),
        (["--scheme", "w4", "--text", "missing.txt"], "no-such-file"),
        (["--scheme", "w4", "--text", "text.txt"], "no-tokenizer"),
        (["--scheme", "w4", "--tokenizer", "tokenizer.json"], "option-does-nothing"),
        (["--scheme", "w4", "--text", "text.txt", "--calibration", "ids.npz"], "two-calibrations"),
        (["--scheme", "w4", "--max-kl", "0.1"], "no-texts"),
        (["--scheme", "w4", "--max-size", "big"], "bad-size"),
        (["--scheme", "w4", "--max-perplexity", "-1%"], "bad-perplexity"),
        (["--scheme", "w4", "--bits", "0"], "bad-limit"),
    ],
)
def test_what_makes_no_sense_is_said_before_anything_is_done(
    options: list[str],
    code: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "model.onnx")
    np.savez("ids.npz", input_ids=token_ids())
    Path("text.txt").write_text("words")
    assert main(["quantize", "model.onnx", "-o", "out.onnx", *options]) == 2
    assert f"error[{code}]" in capsys.readouterr().err
    assert not Path("out.onnx").exists()


def test_losses_of_text_need_a_language_model(tmp_path: Path) -> None:
    import torch

    module = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    with pytest.raises(OnnxproofError, match="need scores of the next token"):
        onnxproof.quantize(
            module,
            tmp_path / "out.onnx",
            example_inputs=(torch.randn(4, 64),),
            calibration=[(np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32),)],
            scheme="w4",
            budget=Budget(max_kl=0.1),
        )
