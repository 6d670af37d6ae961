"""Lengths far beyond the example's: positions that a narrow type no longer counts, tables that were cut, sums that drift."""

from collections.abc import Iterator

from onnxproof.inputs.space import Space
from onnxproof.results import Case

_FAR = (300, 1030, 2060)
"""Just past 256, 1024 and 2048: the integers that bfloat16 and float16 count to, and the usual lengths of position tables."""


def generate(space: Space) -> Iterator[Case]:
    """Each open dim that is no batch, alone, shortest first: what would take too long is left out while it runs."""
    batches = {info.dims[0] for info in space.signature.inputs if len(info.dims) > 1}
    for size in _FAR:
        for dim in space.free_dims:
            admitted = space.admitted(dim.name, size)
            if dim.name in batches or admitted <= dim.example:
                continue
            sizes = space.sizes(**{dim.name: admitted})
            if space.fits(sizes):
                label = f"{dim.name}={admitted}"
                yield space.case(label, "lengths", label, sizes)
