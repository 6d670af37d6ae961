"""A file that takes batches of one size only, while its module takes others: no case can show it, since none fits the file."""

from collections.abc import Mapping

import numpy as np

from onnxproof.reference.protocol import Array, Reference
from onnxproof.results import Finding, Signature

_CLOSE = 1e-3
"""How near the rows of a larger batch must be to those of the example: an answer of a batch is rounded otherwise, not more. Not measured."""


def examine(reference: Reference, signature: Signature) -> list[Finding]:
    """A finding where the file has fixed a first dim that the module lets vary; it is tried with one row more."""
    if reference.session is None or signature.dims or not signature.inputs:
        return []
    example = reference.example()
    size = _common_rows(example)
    if size is None:
        return []
    longer = {name: np.concatenate([array, array[:1]]) for name, array in example.items()}
    try:
        before, after = reference.run(example), reference.run(longer)
    except Exception:  # any refusal is an answer here
        return []
    pairs = zip(before, after, strict=True)
    if not before or not all(_follows(old, new, size) for old, new in pairs):
        return []
    names = ", ".join(f"`{info.onnx_name or info.name}`" for info in signature.inputs)
    first = signature.inputs[0].name
    return [
        Finding(
            code="batch-fixed",
            what=f"the file takes batches of {size} only (dim 0 of {names}), and the module takes others: {size + 1} was tried",
            help=f"export again with that dim dynamic; `--dynamic {first}:0=batch` makes it count",
        )
    ]


def _common_rows(example: Mapping[str, Array]) -> int | None:
    """The size of the first dim that all inputs share; None where they don't, or it is 0."""
    rows = {array.shape[:1] for array in example.values()}
    if len(rows) != 1 or rows == {()} or rows == {(0,)}:
        return None
    return int(rows.pop()[0])


def _follows(old: Array, new: Array, size: int) -> bool:
    """Whether an output has one row more, and the same rows before it."""
    if new.shape != (size + 1, *old.shape[1:]) or old.shape[:1] != (size,):
        return False
    return bool(np.allclose(old, new[:size], rtol=_CLOSE, atol=_CLOSE, equal_nan=True))
