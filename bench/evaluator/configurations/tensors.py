"""Inverses, spectra, crops, samples, windows, triangles and n-grams."""

import numpy as np

from bench.evaluator.configurations.draw import Configuration, Draw, configuration


@configuration("Inverse")
def inverse(draw: Draw) -> Configuration:
    """Matrices that are far from singular."""
    size = draw.size(1, 6)
    return Configuration(inputs=[draw.floats(2, size, size) + 4 * np.eye(size, dtype=np.float32)])


@configuration("Rfft")
def spectrum(draw: Draw) -> Configuration:
    """The CPU has no kernel: by the sum that defines it."""
    length = 2 * draw.size(1, 9)
    x = draw.floats(draw.size(1, 4), length)
    frequencies = np.arange(length // 2 + 1)
    waves = np.exp(-2j * np.pi * np.outer(np.arange(length), frequencies) / length)
    wanted = x.astype(np.float64) @ waves
    return Configuration(
        inputs=[x],
        attributes={"normalized": 0, "onesided": 1, "signal_ndim": 1},
        expected=[np.stack([wanted.real, wanted.imag], axis=-1)],
    )


@configuration("Irfft")
def signal(draw: Draw) -> Configuration:
    """The CPU has no kernel: by the sum that defines it."""
    half = draw.size(1, 9)
    length = 2 * half
    x = draw.floats(draw.size(1, 4), half + 1, 2)
    parts = x[..., 0] + 1j * x[..., 1].astype(np.float64)
    twice = np.full(half + 1, 2.0)
    twice[[0, -1]] = 1.0
    waves = np.exp(2j * np.pi * np.outer(np.arange(half + 1), np.arange(length)) / length)
    wanted = ((parts * twice) @ waves).real
    # The imaginary parts of the first and last frequency do not count.
    wanted -= (1j * parts[:, [0, -1]].imag @ waves[[0, -1]]).real
    return Configuration(
        inputs=[x],
        attributes={"normalized": 0, "onesided": 1, "signal_ndim": 1},
        expected=[wanted / length],
    )


@configuration("CropAndResize")
def crop(draw: Draw) -> Configuration:
    """Boxes within the image and beyond it."""
    count = draw.size(1, 4)
    boxes = draw.rng.uniform(-0.2, 1.2, (count, 4)).astype(np.float32)
    return Configuration(
        inputs=[
            draw.floats(3, 2, draw.size(2, 7), draw.size(2, 7)),
            boxes,
            draw.integers(0, 3, count).astype(np.int32),
            draw.integers(1, 6, 2).astype(np.int32),
        ],
        attributes={
            "mode": draw.one_of("bilinear", "nearest"),
            "extrapolation_value": draw.one_of(0.0, 0.5),
        },
    )


@configuration("GridSample")
def grid_sample(draw: Draw) -> Configuration:
    """Every mode and padding."""
    grid = draw.rng.uniform(-1.3, 1.3, (2, draw.size(1, 5), 4, 2)).astype(np.float32)
    return Configuration(
        inputs=[draw.floats(2, 3, draw.size(2, 6), draw.size(2, 6)), grid],
        attributes={
            "mode": draw.one_of("bilinear", "nearest", "bicubic"),
            "padding_mode": draw.one_of("zeros", "border", "reflection"),
            "align_corners": int(draw.coin()),
        },
    )


@configuration("NGramRepeatBlock")
def ngrams(draw: Draw) -> Configuration:
    """Few tokens, so that they repeat."""
    size = draw.size(1, 3)
    ids = draw.integers(0, 4, 2, draw.size(size, 12))
    return Configuration(inputs=[ids, draw.floats(2, 4)], attributes={"ngram_size": size})


@configuration("Trilu")
def triangle(draw: Draw) -> Configuration:
    """Either triangle, any diagonal."""
    x = draw.floats(2, draw.size(1, 6), draw.size(1, 6))
    diagonal = draw.maybe(np.array(draw.size(-4, 4), np.int64))
    return Configuration(inputs=[x, diagonal], attributes={"upper": int(draw.coin())})


@configuration("UnfoldTensor")
def unfold(draw: Draw) -> Configuration:
    """Any axis, windows that overlap or not."""
    attributes = {"dim": draw.size(-1, 2), "size": draw.size(1, 3), "step": draw.size(1, 3)}
    return Configuration(inputs=[draw.floats(3, 5, 4)], attributes=attributes)


@configuration("CDist")
def distances(draw: Draw) -> Configuration:
    """Both distances that the kernel has."""
    width = draw.size(1, 8)
    return Configuration(
        inputs=[draw.floats(draw.size(1, 5), width), draw.floats(draw.size(1, 5), width)],
        attributes={"metric": draw.one_of("euclidean", "sqeuclidean")},
    )


@configuration("Pad")
def pad(draw: Draw) -> Configuration:
    """Every mode."""
    mode = draw.one_of("constant", "reflect", "edge")
    value = draw.maybe(draw.floats(1)) if mode == "constant" else None
    pads = draw.integers(0, 3, 4)
    return Configuration(inputs=[draw.floats(3, 4), pads, value], attributes={"mode": mode})
