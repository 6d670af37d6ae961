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

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench

if TYPE_CHECKING:
    from onnxproof.diagnosis.counterfactuals.changed_reference import Variant
    from onnxproof.reference.traced_value import TracedValue

TITLE = "a mask is not applied as the module applies it"
PRICE = 7


def test(bench: Workbench) -> Tried | str:
    """Ignore, invert and fill the mask on the reference's side, or fill the fully masked rows on both; then each masking call inside the module."""
    by_input = _by_input(bench)
    return by_input if isinstance(by_input, Tried) else bench.whatif(partial(_variants, bench))


def _variants(bench: Workbench, entry: "TracedValue") -> "Iterator[Variant]":
    import torch

    from onnxproof.diagnosis.counterfactuals.changed_reference import (
        Variant,
        instead,
        skipped,
        with_arguments,
    )

    entries = bench.located.traced_values
    code = (
        "nan-handling"
        if any(entries[i].op in ("isnan", "isinf", "isfinite") for i in entry.inputs)
        else "masking"
    )
    if entry.op in ("masked_fill", "masked_fill_"):
        yield from _after_softmax(bench, entry)
        yield Variant(what="left out", change=skipped(), code=code)
        yield Variant(
            what="with its mask inverted",
            change=instead(lambda x, mask, value: x.masked_fill(~mask, value)),
            code=code,
        )
        for value in _hiding(bench):
            yield Variant(
                what=f"filling with {value:g}",
                change=instead(lambda x, mask, _, v=value: x.masked_fill(mask, v)),
                code=code,
            )
    if entry.op == "where":
        yield Variant(
            what="always taking its first value",
            change=instead(
                lambda mask, a, b: torch.broadcast_tensors(
                    mask, torch.as_tensor(a), torch.as_tensor(b)
                )[1].clone()
            ),
            code=code,
        )
        yield Variant(
            what="always taking its second value",
            change=instead(
                lambda mask, a, b: torch.broadcast_tensors(
                    mask, torch.as_tensor(a), torch.as_tensor(b)
                )[2].clone()
            ),
            code=code,
        )
        yield Variant(
            what="with its condition inverted",
            change=instead(lambda mask, a, b: torch.where(~mask, a, b)),
            code=code,
        )
        for value in _hiding(bench):
            yield Variant(
                what=f"hiding with {value:g}",
                change=instead(
                    lambda mask, a, b, v=value: torch.where(
                        mask, a, torch.full_like(torch.as_tensor(a), v)
                    )
                ),
                code=code,
            )
    if entry.op in ("tril", "triu", "tril_", "triu_"):
        diagonal = entry.arguments.get("diagonal", 0)
        for other in (diagonal - 1, diagonal + 1):
            yield Variant(what=f"with diagonal={other}", change=with_arguments(diagonal=other))
        yield Variant(what="left out", change=skipped())
    if entry.dtype == "bool" and entry.op in (
        "logical_and",
        "logical_or",
        "__and__",
        "bitwise_and",
        "bitwise_or",
        "__or__",
        "mul",
    ):
        yield Variant(what="without its second operand", change=skipped())
        yield Variant(what="without its first operand", change=skipped(1))
    if entry.op in ("logical_not", "bitwise_not"):
        yield Variant(what="left out", change=skipped())
    if entry.op == "_safe_softmax":
        yield Variant(
            what="as a plain softmax", change=instead(lambda x, dim, *rest: torch.softmax(x, dim))
        )
    if (
        entry.op == "mul" and len(entry.inputs) == 2
    ):  # a mask that is multiplied: hidden places become zero
        for place in (0, 1):
            if _is_flag(bench, entry.inputs[1 - place]):
                yield Variant(what="without its mask", change=skipped(place))


def _after_softmax(bench: Workbench, entry: "TracedValue") -> "Iterator[Variant]":
    """The mask put on the weights after the softmax instead of on the scores before it: rows no longer add up to one."""
    from onnxproof.diagnosis.counterfactuals.changed_reference import Variant

    softmax = next(
        (
            e
            for e in bench.located.traced_values[entry.place :]
            if "softmax" in e.op and e.outer is None and e.call > entry.call
        ),
        None,
    )
    masks: list[Any] = []

    def remember(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        masks[:] = [args[1]]
        return args[0].detach()

    def mask_late(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return func(*args, **kwargs).masked_fill(masks[0], 0.0)

    if softmax is not None:
        yield Variant(
            what="put after the softmax", change=remember, more=((softmax.call, mask_late),)
        )


def _is_flag(bench: Workbench, place: int) -> bool:
    value = bench.located.fetch(place)
    return value is not None and value.size > 1 and bool(np.isin(value, (0, 1)).all())


def _hiding(bench: Workbench) -> list[float]:
    """Large negative numbers that the file holds: what it hides places with."""
    from onnxproof.onnxmodel.onnx_file import constants

    values = {
        float(v)
        for array in constants(bench.scene.file).values()
        if array.dtype.kind == "f"
        for v in array.reshape(-1)
        if v < -10 or v == 0
    }
    return sorted(values)[:6]


def _by_input(bench: Workbench) -> Tried | str:
    case, oracle = bench.scene.case, bench.scene.reference
    masks = [n for n, a in case.inputs.items() if a.ndim and _is_mask(n, a)]
    if not masks:
        return "no input looks like a mask"
    answers = bench.answers()
    for name in masks:
        mask = case.inputs[name]
        for word, other in (
            (("ignored", _keep(mask)), ("inverted", _invert(mask)))
            if mask.ndim > 1 or mask.dtype.kind != "i"
            else [("ignored", _full(mask, case.inputs))]
        ):
            if answers is not None and not np.array_equal(other, mask):
                found = _run(oracle, {**case.inputs, name: other})
                if found is not None and bench.scene.error(answers, found) <= bench.limit:
                    return Tried(
                        proven=True,
                        after=0.0,
                        evidence=f"the module with `{name}` {word} gives what the candidate gives",
                    )
        filled = _fill_empty_rows(mask)
        if not np.array_equal(filled, mask):
            inputs = {**case.inputs, name: filled}
            truth = _run(oracle, inputs)
            after = (
                bench.distance(None, inputs=inputs, truth=truth)
                if truth is not None
                else float("inf")
            )
            if after <= bench.limit:
                return Tried(
                    proven=True,
                    after=after,
                    evidence=f"only rows of `{name}` that hide everything differ: with one place open in each, the two agree",
                )
        if case.group == "masks":
            inputs = {**case.inputs, name: _keep(mask)}
            truth = _run(oracle, inputs)
            after = (
                bench.distance(None, inputs=inputs, truth=truth)
                if truth is not None
                else float("inf")
            )
            if after <= bench.limit:
                return Tried(
                    proven=True,
                    after=after,
                    evidence=f"with `{name}` open everywhere the two agree; with places hidden they don't",
                )
    return "opening, ignoring or inverting the mask does not explain it"


def _run(oracle: Any, inputs: Any) -> Any:
    try:
        return oracle.truth(inputs) or oracle.run(inputs)
    except Exception:  # the module may refuse an odd mask: then this trial says nothing
        return None


def _is_mask(name: str, array: Any) -> bool:
    if array.dtype.kind == "b":
        return True
    if array.dtype.kind == "i" and array.ndim == 1 and "len" in name.lower():
        return True
    return "mask" in name.lower() or (
        array.dtype.kind == "f" and bool(np.isneginf(array.astype(np.float64)).any())
    )


def _full(lengths: Any, inputs: Any) -> Any:
    """Every length at the most that the other inputs hold."""
    longest = [
        array.shape[1]
        for array in inputs.values()
        if array.ndim > 1
        and array.shape[0] == lengths.shape[0]
        and array.shape[1] >= lengths.max(initial=0)
    ]
    full = np.full_like(lengths, max(longest, default=lengths.max(initial=0)))
    return (
        full if (full - lengths).max(initial=0) > 1 else lengths
    )  # one step short is also what a wrong comparison does


def _keep(mask: Any) -> Any:
    return np.zeros_like(mask) if mask.dtype.kind == "f" else np.ones_like(mask)


def _invert(mask: Any) -> Any:
    if mask.dtype.kind == "b":
        return ~mask
    return (
        np.where(mask == 0, -np.inf, 0).astype(mask.dtype) if mask.dtype.kind == "f" else 1 - mask
    )


def _fill_empty_rows(mask: Any) -> Any:
    hidden = np.isneginf(mask) if mask.dtype.kind == "f" else mask == 0
    empty = hidden.all(axis=-1, keepdims=True)
    return np.where(empty, _keep(mask), mask)
