"""A text as calibration data: cut into sequences, with masks and positions; what can't be read is an error with its reason."""

from pathlib import Path

import numpy as np
import pytest

from onnxproof.errors import InputError
from onnxproof.onnxmodel.onnx_file import Port
from onnxproof.quantization.calibration.texts import read_text

IDS = Port(name="input_ids", dtype="int64", dims=("texts", 4))
MASK = Port(name="attention_mask", dtype="int64", dims=("texts", 4))
PLACES = Port(name="position_ids", dtype="int64", dims=("texts", 4))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 1, "c": 2}, unk_token="a"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "text.txt").write_text("a b c a  b c a b  c a")
    return tmp_path


def test_a_text_becomes_sequences_of_the_length_that_the_graph_takes(folder: Path) -> None:
    arrays = read_text(folder / "text.txt", None, (IDS, MASK, PLACES), folder)
    np.testing.assert_array_equal(arrays["input_ids"], [[0, 1, 2, 0], [1, 2, 0, 1]])
    np.testing.assert_array_equal(arrays["attention_mask"], np.ones((2, 4)))
    np.testing.assert_array_equal(arrays["position_ids"], [[0, 1, 2, 3]] * 2)


def test_a_text_that_is_too_short_says_how_long_it_is(folder: Path) -> None:
    (folder / "text.txt").write_text("a b c")
    with pytest.raises(InputError, match="has 3 tokens, and one sequence has 4"):
        read_text(folder / "text.txt", None, (IDS,), folder)


def test_a_damaged_tokenizer_is_named(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(InputError, match=r"tokenizer\.json` is no tokenizer"):
        read_text(folder / "text.txt", folder / "tokenizer.json", (IDS,), None)


def test_a_text_says_nothing_about_pixels(folder: Path) -> None:
    pixels = Port(name="pixel_values", dtype="float32", dims=("texts", 3))
    with pytest.raises(InputError, match="says nothing about the input `pixel_values`"):
        read_text(folder / "text.txt", None, (IDS, pixels), folder)
