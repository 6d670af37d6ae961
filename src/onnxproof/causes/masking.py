"""A mask is not applied as the module applies it.

What it is: the mask is ignored, inverted, or leaves rows with nothing to attend to in another state (PyTorch's
attention gives zeros there, a plain softmax gives NaN or an average).

Why it happens: a fast path for all-true masks was traced, `True` means keep on one side and hide on the other, or the
operator for the fully masked row has no counterpart in the standard.

How to see it: the module with its mask ignored (or inverted) gives what the candidate gives; or the two agree as soon
as no row is fully masked.

How to fix it: trace with a padded example, guard fully masked rows with `torch.where`, or use a newer opset.

Example: scaled_dot_product_attention with a row of the mask all false.
"""

from typing import Any

import numpy as np

from onnxproof.causes._workbench import Tried, Workbench
from onnxproof.locate._match import relative

TITLE = "a mask is not applied as the module applies it"
PRICE = 7


def test(bench: Workbench) -> Tried | str:
    """Ignore, invert and fill the mask on the reference's side, or fill the fully masked rows on both."""
    case, oracle = bench.scene.case, bench.scene.oracle
    masks = [n for n, a in case.inputs.items() if a.ndim and _is_mask(n, a)]
    if not masks:
        return "no input looks like a mask"
    answers = bench.answers()
    for name in masks:
        mask = case.inputs[name]
        for word, other in (("ignored", _keep(mask)), ("inverted", _invert(mask))):
            if answers is not None and not np.array_equal(other, mask):
                found = _run(oracle, {**case.inputs, name: other})
                if found is not None and max(relative(a, f) for a, f in zip(answers, found, strict=True)) <= bench.limit:
                    return Tried(proven=True, after=0.0, evidence=f"the module with `{name}` {word} gives what the candidate gives")
        filled = _fill_empty_rows(mask)
        if not np.array_equal(filled, mask):
            inputs = {**case.inputs, name: filled}
            truth = _run(oracle, inputs)
            after = bench.distance(None, inputs=inputs, truth=truth) if truth is not None else float("inf")
            if after <= bench.limit:
                return Tried(proven=True, after=after, evidence=f"only rows of `{name}` that hide everything differ: with one place open in each, the two agree")
        if case.group == "masks":
            inputs = {**case.inputs, name: _keep(mask)}
            truth = _run(oracle, inputs)
            after = bench.distance(None, inputs=inputs, truth=truth) if truth is not None else float("inf")
            if after <= bench.limit:
                return Tried(proven=True, after=after, evidence=f"with `{name}` open everywhere the two agree; with places hidden they don't")
    return "opening, ignoring or inverting the mask does not explain it"


def _run(oracle: Any, inputs: Any) -> Any:
    try:
        return oracle.truth(inputs) or oracle.run(inputs)
    except Exception:  # the module may refuse an odd mask: then this trial says nothing
        return None


def _is_mask(name: str, array: Any) -> bool:
    if array.dtype.kind == "b":
        return True
    return "mask" in name.lower() or (array.dtype.kind == "f" and bool(np.isneginf(array.astype(np.float64)).any()))


def _keep(mask: Any) -> Any:
    return np.zeros_like(mask) if mask.dtype.kind == "f" else np.ones_like(mask)


def _invert(mask: Any) -> Any:
    if mask.dtype.kind == "b":
        return ~mask
    return np.where(mask == 0, -np.inf, 0).astype(mask.dtype) if mask.dtype.kind == "f" else 1 - mask


def _fill_empty_rows(mask: Any) -> Any:
    hidden = np.isneginf(mask) if mask.dtype.kind == "f" else mask == 0
    empty = hidden.all(axis=-1, keepdims=True)
    return np.where(empty, _keep(mask), mask)
