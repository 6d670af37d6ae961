"""The usual ways to scale an input, and the affine map from one to another: it gives an affine difference a name."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
AffineMap = tuple[Array, Array]
"""Factor and shift of each channel."""
_TOLERANCE = 2e-4
"""Relative, of a constant: mean and standard deviation are written down with three or four digits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Norm:
    """`(x - mean) / std`, for each channel or for all of them."""

    name: str
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)

    def affine(self, channels: int) -> AffineMap:
        """Factor and shift of each channel."""
        mean = _per_channel(self.mean, channels)
        std = _per_channel(self.std, channels)
        return 1 / std, -mean / std

    def fits(self, channels: int) -> bool:
        """True if it has one constant, or one for each of that many channels."""
        return len(self.mean) in (1, channels) and len(self.std) in (1, channels)


def _per_channel(constants: tuple[float, ...], channels: int) -> Array:
    if len(constants) == 1:
        constants = constants * channels
    return np.array(constants, np.float64)


def _both_ranges(
    name: str,
    mean: tuple[float, ...],
    std: tuple[float, ...],
) -> tuple[Norm, Norm]:
    """The same constants for pixels from 0 to 1 and for pixels from 0 to 255."""
    levels_mean = tuple(255 * value for value in mean)
    levels_std = tuple(255 * value for value in std)
    return (
        Norm(name=f"{name} on values of 0 to 1", mean=mean, std=std),
        Norm(name=f"{name} on values of 0 to 255", mean=levels_mean, std=levels_std),
    )


NONE = Norm(name="no scaling")
IMAGES: tuple[Norm, ...] = (
    NONE,
    Norm(name="a division by 255", std=(255.0,)),
    *_both_ranges(
        "the mean and standard deviation of ImageNet",
        (0.485, 0.456, 0.406),
        (0.229, 0.224, 0.225),
    ),
    *_both_ranges("a mean and a standard deviation of 0.5", (0.5,), (0.5,)),
    *_both_ranges(
        "the mean and standard deviation of CLIP",
        (0.48145466, 0.4578275, 0.40821073),
        (0.26862954, 0.26130258, 0.27577711),
    ),
    *_both_ranges(
        "the mean of ImageNet without the standard deviation",
        (0.485, 0.456, 0.406),
        (1.0,),
    ),
    Norm(name="the means of Caffe", mean=(123.68, 116.779, 103.939)),
    Norm(name="the means of Caffe in the order of BGR", mean=(103.939, 116.779, 123.68)),
    *_both_ranges("the mean and standard deviation of MNIST", (0.1307,), (0.3081,)),
    *_both_ranges(
        "the mean and standard deviation of CIFAR-10",
        (0.4914, 0.4822, 0.4465),
        (0.2470, 0.2435, 0.2616),
    ),
)
SOUNDS: tuple[Norm, ...] = (
    NONE,
    Norm(name="a division by 32768", std=(32768.0,)),
    Norm(name="a division by 32767", std=(32767.0,)),
    Norm(name="a division by 2147483648", std=(2147483648.0,)),
    Norm(name="a division by 128", std=(128.0,)),
)
LOGARITHMS: tuple[Norm, ...] = (
    NONE,
    Norm(name="a logarithm to the base 10", std=(np.log(10),)),
    Norm(name="a logarithm to the base 2", std=(np.log(2),)),
    Norm(name="decibels of power", std=(np.log(10) / 10,)),
    Norm(name="decibels of amplitude", std=(np.log(10) / 20,)),
)
"""Factors relative to the natural logarithm."""
USUAL: tuple[Norm, ...] = (*IMAGES, *SOUNDS[1:], *LOGARITHMS[1:])


def norm_pairs(norms: tuple[Norm, ...], channels: int) -> Iterator[tuple[Norm, Norm]]:
    """All ordered pairs of different norms, those with `no scaling` first."""
    fitting = [norm for norm in norms if norm.fits(channels)]
    yield from sorted(itertools.permutations(fitting, 2), key=lambda pair: NONE not in pair)


def input_map(
    own: Norm,
    other: Norm,
    channels: int,
) -> AffineMap:
    """The map to apply to an input before `other`, so that the result is that of `own`."""
    own_factor, own_shift = own.affine(channels)
    factor, shift = other.affine(channels)
    return own_factor / factor, (own_shift - shift) / factor


def result_map(
    own: Norm,
    other: Norm,
    channels: int,
) -> AffineMap:
    """The map from the result of `own` to that of `other`."""
    own_factor, own_shift = own.affine(channels)
    factor, shift = other.affine(channels)
    return factor / own_factor, shift - own_shift * factor / own_factor


def same_map(
    first: AffineMap,
    second: AffineMap,
    tolerance: float = _TOLERANCE,
) -> bool:
    """Whether two affine maps are equal up to the digits of written constants, or up to what rounding changes."""
    factor, shift = first
    other_factor, other_shift = second
    largest_factor = np.maximum(np.abs(factor), np.abs(other_factor))
    scale = np.maximum(np.abs(other_shift), largest_factor * 1e-2)
    same_factor = np.abs(factor - other_factor) <= tolerance * np.abs(other_factor)
    same_shift = np.abs(shift - other_shift) <= 10 * tolerance * scale
    return bool(same_factor.all() and same_shift.all())
