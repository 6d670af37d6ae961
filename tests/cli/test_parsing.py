"""From the words of options to values."""

import pytest

from onnxproof.cli import _parsing as parsing
from onnxproof.errors import OnnxproofError


@pytest.mark.parametrize(
    ("words", "range_"),
    [("1..8", (1, 8)), ("..8", (None, 8)), ("4..", (4, None)), ("..", (None, None))],
)
def test_a_range_of_sizes(words: str, range_: tuple[int | None, int | None]) -> None:
    assert parsing.dim_ranges([f"seq={words}"]) == {"seq": range_}


@pytest.mark.parametrize("words", ["seq", "seq=", "seq=8..1", "seq=a..b", "2=1..8", "seq=1..-8"])
def test_what_is_no_range_is_an_error(words: str) -> None:
    with pytest.raises(OnnxproofError, match="can't be understood"):
        parsing.dim_ranges([words])


@pytest.mark.parametrize("words", ["x", "-1%", "101%", "nan"])
def test_what_is_no_drop_is_an_error(words: str) -> None:
    with pytest.raises(OnnxproofError, match="makes no sense"):
        parsing.share(words)
