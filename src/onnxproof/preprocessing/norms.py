"""The usual ways to scale an input, and what turns one into another: so that an affine difference has a name."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
_SAME = 2e-4
"""Of a constant: mean and standard deviation are written down with three or four digits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Norm:
    """`(x - mean) / spread`, for each channel or for all of them."""

    name: str
    mean: tuple[float, ...] = (0.0,)
    spread: tuple[float, ...] = (1.0,)

    def affine(self, channels: int) -> tuple[Array, Array]:
        """Factor and shift of each channel."""
        mean, spread = (
            np.array(v * channels if len(v) == 1 else v, np.float64)
            for v in (self.mean, self.spread)
        )
        return 1 / spread, -mean / spread

    def fits(self, channels: int) -> bool:
        """True when it can be meant for so many channels."""
        return len(self.mean) in (1, channels) and len(self.spread) in (1, channels)


def _of_both_ranges(
    name: str, mean: tuple[float, ...], spread: tuple[float, ...]
) -> tuple[Norm, Norm]:
    return (
        Norm(name=f"{name} on values of 0 to 1", mean=mean, spread=spread),
        Norm(
            name=f"{name} on values of 0 to 255",
            mean=tuple(255 * v for v in mean),
            spread=tuple(255 * v for v in spread),
        ),
    )


NONE = Norm(name="no scaling")
IMAGES = (
    NONE,
    Norm(name="a division by 255", spread=(255.0,)),
    *_of_both_ranges(
        "the mean and standard deviation of ImageNet", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    ),
    *_of_both_ranges("a mean and a standard deviation of 0.5", (0.5,), (0.5,)),
    *_of_both_ranges(
        "the mean and standard deviation of CLIP",
        (0.48145466, 0.4578275, 0.40821073),
        (0.26862954, 0.26130258, 0.27577711),
    ),
    *_of_both_ranges(
        "the mean of ImageNet without the standard deviation", (0.485, 0.456, 0.406), (1.0,)
    ),
    Norm(name="the means of Caffe", mean=(123.68, 116.779, 103.939)),
    Norm(name="the means of Caffe in the order of BGR", mean=(103.939, 116.779, 123.68)),
    *_of_both_ranges("the mean and standard deviation of MNIST", (0.1307,), (0.3081,)),
    *_of_both_ranges(
        "the mean and standard deviation of CIFAR-10",
        (0.4914, 0.4822, 0.4465),
        (0.2470, 0.2435, 0.2616),
    ),
)
SOUNDS = (
    NONE,
    Norm(name="a division by 32768", spread=(32768.0,)),
    Norm(name="a division by 32767", spread=(32767.0,)),
    Norm(name="a division by 2147483648", spread=(2147483648.0,)),
    Norm(name="a division by 128", spread=(128.0,)),
)
LOGARITHMS = (
    NONE,
    Norm(name="a logarithm to the base 10", spread=(np.log(10),)),
    Norm(name="a logarithm to the base 2", spread=(np.log(2),)),
    Norm(name="decibels of power", spread=(np.log(10) / 10,)),
    Norm(name="decibels of amplitude", spread=(np.log(10) / 20,)),
)
"""Relative to the natural logarithm."""
USUAL = (*IMAGES, *SOUNDS[1:], *LOGARITHMS[1:])


def pairs(norms: tuple[Norm, ...], channels: int) -> Iterator[tuple[Norm, Norm]]:
    """Two different ones, those that differ least from none first."""
    fitting = [norm for norm in norms if norm.fits(channels)]
    yield from sorted(itertools.permutations(fitting, 2), key=lambda pair: NONE not in pair)


def undoing(own: Norm, other: Norm, channels: int) -> tuple[Array, Array]:
    """What must be done to an input before `other`, so that it comes out as with `own`."""
    (a, b), (c, d) = own.affine(channels), other.affine(channels)
    return a / c, (b - d) / c


def turning(own: Norm, other: Norm, channels: int) -> tuple[Array, Array]:
    """What turns the result of `own` into that of `other`."""
    (a, b), (c, d) = own.affine(channels), other.affine(channels)
    return c / a, d - b * c / a


def alike(one: tuple[Array, Array], two: tuple[Array, Array], within: float = _SAME) -> bool:
    """Whether two affine maps are one, but for the digits that constants are written down with, or that rounding leaves."""
    (factor, shift), (other, moved) = one, two
    scale = np.maximum(np.abs(moved), np.maximum(np.abs(factor), np.abs(other)) * 1e-2)
    return bool(
        (np.abs(factor - other) <= within * np.abs(other)).all()
        and (np.abs(shift - moved) <= 10 * within * scale).all()
    )
