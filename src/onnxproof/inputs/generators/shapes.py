"""Every dim that may vary, alone and together: 1, 2, odd, large, one off the example, around recorded bounds, and empty."""

import itertools
from collections.abc import Iterator

from onnxproof.inputs.space import Space
from onnxproof.results import Case, DimInfo, Domain

_TOGETHER = {"one": 1, "two": 2, "odd": 5}
_BATCH = (1, 2, 7, 32)
_OTHER = (1, 2, 3, 5, 8, 17, 33, 64, 128)


def generate(space: Space) -> Iterator[Case]:
    """Together first (a fault of any dim shows), then one by one, then empty."""
    if not space.free_dims:
        return
    yield from _together(space)
    yield from _one_by_one(space)
    if Domain.EMPTY in space.domains:
        yield from _empty(space)


def _together(space: Space) -> Iterator[Case]:
    """All open dims at one size, then all of them large."""
    for label, size in _TOGETHER.items():
        wanted = {dim.name: space.admitted(dim.name, size) for dim in space.free_dims}
        sizes = space.sizes(**wanted)
        if space.fits(sizes):
            about = f"every open dim at {size}"
            if set(wanted.values()) != {size}:
                about += ", or the nearest that is declared"
            yield space.case(f"all-{label}", "shapes", about, sizes, ordinary=True)
    large = {
        dim.name: space.admitted(dim.name, max(2 * dim.example + 1, 9)) for dim in space.free_dims
    }
    sizes = space.sizes(**large)
    if space.fits(sizes):
        yield space.case("all-large", "shapes", "every open dim large", sizes)


def _one_by_one(space: Space) -> Iterator[Case]:
    """The first size of every dim, then the second of every dim, and so on."""
    options = {dim.name: _sizes(space, dim) for dim in space.free_dims}
    for row in itertools.zip_longest(*options.values()):
        for name, size in zip(options, row, strict=True):
            if size is None:
                continue
            sizes = space.sizes(**{name: size})
            if space.fits(sizes):
                yield space.case(f"{name}={size}", "shapes", f"{name}={size}", sizes)


def _empty(space: Space) -> Iterator[Case]:
    for dim in space.free_dims:
        if dim.minimum == 0:
            label = f"{dim.name}=0"
            sizes = space.sizes(**{dim.name: 0})
            yield space.case(label, "shapes", label, sizes, domain=Domain.EMPTY)


def _sizes(space: Space, dim: DimInfo) -> list[int]:
    """Other sizes of one dim than the example's, around the recorded bound first."""
    leading = {info.dims[0] for info in space.signature.inputs if info.dims}
    usual: tuple[int, ...] = _OTHER
    if dim.name in leading:
        usual = _BATCH
    example = dim.example
    sizes = []
    bound = dim.recorded[1]
    if bound is not None:
        sizes += [bound, bound + 1]
    sizes += [example - 1, example + 1]
    sizes += usual
    sizes += [2 * example, 4 * example + 1]
    sizes = [space.admitted(dim.name, size) for size in sizes]
    return [size for size in dict.fromkeys(sizes) if size >= 1 and size != example]
