"""Plain values: the example itself, fresh draws of its kind, and the same at other scales."""

from collections.abc import Iterator

from onnxproof.inputs.space import Role, Space
from onnxproof.results import Case

_SCALES = (10.0, 0.1, 100.0, 1e-3, 1e4, 1e-6)
"""Factors of the floats (not measured); half precision gets none beyond 1000."""


def generate(space: Space) -> Iterator[Case]:
    """The example, three draws, then other scales (floats only)."""
    yield Case(
        name="example",
        group="ordinary",
        about="the example itself",
        inputs={slot.name: slot.example for slot in space.slots},
        sizes=space.sizes(),
        ordinary=True,
    )
    for index, sizes in enumerate((space.roomy(), space.sizes(), space.sizes())):
        yield space.case(
            f"ordinary-{index}", "ordinary", "values like the example's", sizes, ordinary=True
        )
    if space.of_role(Role.FLOAT):
        for scale in _SCALES:
            if all(scale < 1e3 or slot.dtype.itemsize > 2 for slot in space.slots):
                yield space.case(
                    f"scale-{scale:g}",
                    "ordinary",
                    f"floats {scale:g} times as large",
                    space.roomy(),
                    scale=scale,
                )
