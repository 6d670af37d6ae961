"""Constants that tracing baked: shapes that hold for one size only, and tensors that are no weight of the module."""

from collections.abc import Iterator

import numpy as np

from onnxproof.inspection.view import Check, Rating, View, few, megabytes

_LARGE = 1024
"""Elements from which a constant that is no parameter is worth a word."""


def check(view: View) -> Iterator[Check]:
    """Shapes first, then large constants."""
    yield _shapes(view)
    if view.state:
        yield _strangers(view)


def _shapes(view: View) -> Check:
    """Reshape and Expand of a moving value to sizes that are all written down, in a file whose inputs are said to vary."""
    opened = any(not isinstance(dim, int) for port in view.file.inputs for dim in port.dims or ())
    if not opened:
        return Check(
            name="baked-shapes", rating=Rating.GOOD, what="no input varies, so no shape need to"
        )
    baked = []
    for node in view.file.model.graph.node:
        if (
            node.op_type in ("Reshape", "Expand", "Tile")
            and len(node.input) > 1
            and node.input[0] in view.moving
        ):
            shape = view.constants.get(node.input[1])
            if (
                shape is not None
                and node.op_type == "Reshape"
                and shape.size > 1
                and bool((shape > 0).all())
            ):
                baked.append(f"{node.name} to {shape.tolist()}")
    if not baked:
        return Check(
            name="baked-shapes",
            rating=Rating.GOOD,
            what="no value that varies is forced into one shape",
        )
    return Check(
        name="baked-shapes",
        rating=Rating.BAD,
        what=f"{len(baked)} values that vary are forced into a shape that was written down: {few(baked)}",
        help="the size of the example was traced as a number: use x.shape in forward, and export again with that dim open",
    )


def _strangers(view: View) -> Check:
    """Large constants that neither are nor derive from a parameter, as far as their sizes tell."""
    sizes = {tensor.numel() for tensor in view.state.values()}
    strange = [
        weight
        for weight in view.weights
        if weight.elements >= _LARGE
        and weight.elements not in sizes
        and not _part_of(weight.elements, sizes)
    ]
    if not strange:
        return Check(
            name="baked-constants",
            rating=Rating.GOOD,
            what="every large constant has the size of a parameter",
        )
    total = sum(weight.bytes for weight in strange)
    return Check(
        name="baked-constants",
        rating=Rating.ODD,
        what=f"{len(strange)} large constants are no parameter of the module, {megabytes(total)}: {few([w.name for w in strange])}",
        help="a mask or table that tracing computed: fine if it can't depend on the input's size, a fault if it should",
    )


def _part_of(elements: int, sizes: set[int]) -> bool:
    """A packed or split weight: a whole multiple of a parameter, or a whole part of one."""
    return any(
        size >= _LARGE // 4 and (elements % size == 0 or size % elements == 0)
        for size in sizes
        if size
    ) and bool(np.isfinite(elements))
