"""Named parts of sequences, maps and strings: there and back."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from onnxproof.numerics import port_values

KEYS = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=5)


@given(st.lists(KEYS, unique=True, min_size=1, max_size=4), st.integers(1, 4))
def test_rows_of_maps_come_back(keys: list[str], rows: int) -> None:
    values = [
        {key: float(row * 10 + place) for place, key in enumerate(keys)} for row in range(rows)
    ]
    flat = port_values.flatten("p", values)
    assert list(flat) == [f"p[{key}]" for key in keys]
    assert port_values.assemble(flat, {"p": "seq(map(string,tensor(float)))"}) == {"p": values}


@given(st.integers(1, 5))
def test_sequences_come_back_with_their_length(count: int) -> None:
    values = [np.full(place + 1, place, np.float32) for place in range(count)]
    flat = port_values.flatten("xs", values)
    assert int(flat.pop("len(xs)")) == count
    back = port_values.assemble(flat, {"xs": "seq(tensor(float))"})["xs"]
    assert all(np.array_equal(one, other) for one, other in zip(values, back, strict=True))


@given(st.lists(st.text(max_size=8), min_size=1, max_size=6))
def test_strings_are_equal_as_numbers_exactly_where_they_are_equal(texts: list[str]) -> None:
    texts = [text.rstrip("\0") for text in texts]  # numpy keeps no null at the end
    codes = port_values.encode(np.array(texts))
    for one, code in zip(texts, codes, strict=True):
        assert port_values.decode(int(code)) == one
        for other, another in zip(texts, codes, strict=True):
            assert (code == another) == (one == other)


@given(KEYS, st.sampled_from(["", "len", "[0]", "[setosa]"]))
def test_names_split_and_join(root: str, part: str) -> None:
    assert port_values.split(port_values.join(root, part)) == (root, part)


def test_a_row_without_a_key_has_no_number_there() -> None:
    flat = port_values.flatten("p", [{"a": 1.0}, {"b": 2.0}])
    assert np.isnan(flat["p[a]"][1]) and np.isnan(flat["p[b]"][0])
