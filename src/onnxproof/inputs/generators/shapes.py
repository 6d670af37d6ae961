"""Every dim that may vary, alone and together: 1, 2, odd, large, one off the example, around recorded bounds, and empty."""

from collections.abc import Iterator

from onnxproof.inputs.space import Space
from onnxproof.results import Case, DimInfo, Domain

_BATCH = (1, 2, 7, 32)
_OTHER = (1, 2, 3, 5, 8, 17, 33, 64, 128)


def generate(space: Space) -> Iterator[Case]:
    """Together first (a fault of any dim shows), then one by one, then empty."""
    dims = space.free_dims
    if not dims:
        return
    together = {"one": 1, "two": 2, "odd": 5, "large": 0}
    for label, size in together.items():
        sizes = space.sizes(**{d.name: size or max(2 * d.example + 1, 9) for d in dims})
        if space.fits(sizes):
            yield space.case(
                f"all-{label}",
                "shapes",
                "every open dim " + (f"at {size}" if size else "large"),
                sizes,
                ordinary=size != 0,
            )
    for row in range(max(len(_sizes(space, dim)) for dim in dims)):
        for dim in dims:
            options = _sizes(space, dim)
            if row < len(options):
                sizes = space.sizes(**{dim.name: options[row]})
                if space.fits(sizes):
                    yield space.case(
                        f"{dim.name}={options[row]}", "shapes", f"{dim.name}={options[row]}", sizes
                    )
    if Domain.EMPTY in space.domains:
        for dim in dims:
            if dim.minimum == 0:
                yield space.case(
                    f"{dim.name}=0",
                    "shapes",
                    f"{dim.name}=0",
                    space.sizes(**{dim.name: 0}),
                    domain=Domain.EMPTY,
                )


def _sizes(space: Space, dim: DimInfo) -> list[int]:
    leading = {info.dims[0] for info in space.signature.inputs if info.dims}
    bound = dim.recorded[1]
    near = [bound, bound + 1] if bound is not None else []
    wanted = [
        *near,
        dim.example - 1,
        dim.example + 1,
        *(_BATCH if dim.name in leading else _OTHER),
        2 * dim.example,
        4 * dim.example + 1,
    ]
    return [size for size in dict.fromkeys(wanted) if size >= 1 and size != dim.example]
