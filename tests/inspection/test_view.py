"""How an inspection writes sizes and names."""

import pytest

from onnxproof.inspection.view import format_bytes, list_names


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0.0 kB"), (99_999, "100.0 kB"), (100_000, "0.1 MB"), (2_500_000_000, "2,500.0 MB")],
)
def test_sizes_are_written_in_kilobytes_or_megabytes(size: int, text: str) -> None:
    assert format_bytes(size) == text


def test_names_beyond_the_first_are_counted() -> None:
    assert list_names(["a"]) == "`a`"
    assert list_names(["a", "b", "c", "d", "e"]) == "`a`, `b`, `c` and 2 more"
