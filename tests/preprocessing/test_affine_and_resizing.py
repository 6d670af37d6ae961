"""Fits of a factor and a shift, the usual norms, and the matrices by which images are resized: on small arrays."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from onnxproof.preprocessing import affine, as_arguments, norms
from onnxproof.preprocessing.resizing import MODES, geometries, resize_matrix


def test_the_factor_and_the_shift_of_each_channel_are_found() -> None:
    source = np.random.default_rng(0).normal(size=(2, 3, 10))
    factor = np.array([2.0, -1.0, 0.5])
    shift = np.array([0.0, 3.0, -1.0])
    target = affine.scale_channels(source, factor, shift, 1)
    scales = affine.fit_channels(source, target, 1)
    assert scales is not None
    np.testing.assert_allclose(scales[0], factor)
    np.testing.assert_allclose(scales[1], shift, atol=1e-12)


def test_a_constant_channel_or_too_few_values_have_no_fit() -> None:
    assert affine.fit_channels(np.ones((3, 10)), np.ones((3, 10)), 0) is None
    assert affine.fit_channels(np.arange(6.0).reshape(2, 3), np.ones((2, 3)), 0) is None


def test_columns_that_are_no_basis_have_no_coefficients() -> None:
    column = np.arange(1.0, 9.0)[:, None]
    fit = affine.fit_columns(column, 3 * column[:, 0])
    assert fit is not None
    assert fit[0] == pytest.approx([3.0])
    assert fit[1] < 1e-12
    assert affine.fit_columns(np.hstack([column, 2 * column]), column[:, 0]) is None


def test_the_maps_between_two_norms_undo_each_other_on_input_and_result() -> None:
    own, other = norms.IMAGES[1], norms.IMAGES[2]
    x = np.random.default_rng(0).uniform(0, 255, (5, 3))
    own_factor, own_shift = own.affine(3)
    other_factor, other_shift = other.affine(3)
    own_result = x * own_factor + own_shift
    factor, shift = norms.input_map(own, other, 3)
    np.testing.assert_allclose((x * factor + shift) * other_factor + other_shift, own_result)
    factor, shift = norms.result_map(own, other, 3)
    np.testing.assert_allclose(own_result * factor + shift, x * other_factor + other_shift)
    assert norms.same_map(own.affine(3), own.affine(3))
    assert not norms.same_map(own.affine(3), other.affine(3))
    assert norms.NONE in next(norms.norm_pairs(norms.IMAGES, 3))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("before", "after"), [(9, 4), (5, 5), (4, 11)])
def test_the_shares_of_each_new_pixel_add_up_to_one(mode: str, before: int, after: int) -> None:
    matrix = resize_matrix(before, after, mode)
    assert matrix.shape == (after, before)
    np.testing.assert_allclose(matrix.sum(1), 1)


def test_bilinear_is_that_of_torch() -> None:
    row = torch.arange(7.0)[None, None] ** 2
    resized = F.interpolate(row, 4, mode="linear", align_corners=False)[0, 0]
    np.testing.assert_allclose(resize_matrix(7, 4, "bilinear") @ row[0, 0].numpy(), resized)


def test_every_geometry_gives_the_size_asked_for() -> None:
    image = np.random.default_rng(0).uniform(0, 255, (30, 20, 3))
    usual = list(geometries((30, 20), (12, 12)))
    assert len(usual) > 10
    for geometry in usual:
        assert geometry.apply(image, "bilinear", (12, 12), np.arange(12)).shape == (12, 12, 3)


def test_what_a_preprocessing_returns_becomes_arguments() -> None:
    assert as_arguments({"x": 1}) == ((), {"x": 1})
    assert as_arguments([1, 2]) == ((1, 2), {})
    assert as_arguments(3) == ((3,), {})
