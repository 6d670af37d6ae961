"""The waterfall: shares of the error's energy add up to one."""

import math

import pytest

from onnxproof.quantization.attribution import gain
from onnxproof.quantization.waterfall import _shares


def test_shares_add_up_to_one() -> None:
    shares = _shares([("served", 10.0), ("calibration", 20.0), ("8-bit weights", 40.0)])
    assert [share.code for share in shares] == ["calibration", "8-bit weights", "rest"]
    assert [share.share for share in shares] == pytest.approx([0.9, 0.099, 0.001])
    assert [share.db for share in shares] == [10.0, 20.0, 0.0]


def test_levels_beyond_measure_are_capped() -> None:
    shares = _shares([("served", 10.0), ("runtime", math.inf)])
    assert (shares[0].db, shares[0].share) == (190.0, pytest.approx(1.0))
    assert gain(-math.inf, math.inf) == 300.0
