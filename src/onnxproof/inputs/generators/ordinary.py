"""Plain values: the example itself, fresh draws of its kind, and the same at other scales."""

from collections.abc import Iterator

from onnxproof.inputs.space import Role, Space
from onnxproof.results import Case

_SCALES = (10.0, 0.1, 100.0, 1e-3, 1e4, 1e-6)


def generate(space: Space) -> Iterator[Case]:
    """The example, three draws, then other scales (floats only)."""
    yield Case(
        name="example",
        group="ordinary",
        about="the example itself",
        inputs={s.name: s.example for s in space.slots},
        sizes=space.sizes(),
        ordinary=True,
    )
    for index in range(3):
        name = f"ordinary-{index}"
        yield space.case(
            name,
            "ordinary",
            "values like the example's",
            space.sizes() if index else space.roomy(),
            ordinary=True,
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
