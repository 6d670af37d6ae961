"""A mask is not applied as the module applies it.

What it is: the mask is ignored, inverted, or leaves rows with nothing to attend to in another state (PyTorch's
attention gives zeros there, a plain softmax gives NaN or an average).

Why it happens: a fast path for all-true masks was traced, `True` means keep on one side and hide on the other, or the
operator for the fully masked row has no counterpart in the standard.

How to see it: the module with its mask ignored, inverted or put elsewhere gives what the candidate gives. That the two
agree as soon as no row is fully masked makes it likely, no more.

How to fix it: trace with a padded example, guard fully masked rows with `torch.where`, or use a newer opset.

Example: scaled_dot_product_attention with a row of the mask all false.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch

from onnxproof.diagnosis.counterfactuals import mask_inputs
from onnxproof.diagnosis.counterfactuals.changed_reference import (
    Arguments,
    Keywords,
    Variant,
    call_instead,
    skip_call,
    with_arguments,
)
from onnxproof.diagnosis.counterfactuals.workbench import Array, Tried, Workbench
from onnxproof.onnxmodel.onnx_file import constants
from onnxproof.reference.traced_value import TracedValue

TITLE = "a mask is not applied as the module applies it"
PRICE = 7
CODES = ("masking", "nan-handling")
_LOGICAL = (
    "logical_and",
    "logical_or",
    "__and__",
    "bitwise_and",
    "bitwise_or",
    "__or__",
    "mul",
)
_LARGE_NEGATIVE = -10
"""A constant below this may hide scores before a softmax: exp(-10) is 5e-5. Not measured."""
_MOST_FILLS = 6
"""Constants of the file that are tried as what hides. Not measured."""


def test(workbench: Workbench) -> Tried | str:
    """Ignore or invert the masks that the module is given, then change each masking call inside it; that the two agree with open masks shows a likeness."""
    given = _try_mask_inputs(workbench)
    if given is not None and given.proven:
        return given
    tried = workbench.try_in_reference(partial(_variants, workbench))
    if isinstance(tried, Tried) and (tried.proven or given is None):
        return tried
    return given or _observe_open_masks(workbench) or tried


def _variants(workbench: Workbench, entry: TracedValue) -> Iterator[Variant]:
    """The masking calls of the module, left out or changed."""
    if entry.op in ("masked_fill", "masked_fill_"):
        yield from _after_softmax(workbench, entry)
        yield from _other_fills(workbench, entry)
    if entry.op == "where":
        yield from _other_selections(workbench, entry)
    if entry.op in ("tril", "triu", "tril_", "triu_"):
        yield from _other_triangles(entry)
    yield from _other_combinations(workbench, entry)


def _code(workbench: Workbench, entry: TracedValue) -> str:
    """A mask that is computed from what is not finite is a guard against NaN."""
    entries = workbench.located.traced_values
    if any(entries[place].op in ("isnan", "isinf", "isfinite") for place in entry.inputs):
        return "nan-handling"
    return "masking"


def _other_fills(workbench: Workbench, entry: TracedValue) -> Iterator[Variant]:
    code = _code(workbench, entry)
    yield Variant(what="left out", change=skip_call(), code=code)
    yield Variant(
        what="with its mask inverted",
        change=call_instead(lambda x, mask, value: x.masked_fill(~mask, value)),
        code=code,
    )
    for fill in _hiding_constants(workbench):
        yield Variant(
            what=f"filling with {fill:g}",
            change=call_instead(lambda x, mask, _, fill=fill: x.masked_fill(mask, fill)),
            code=code,
        )


def _computes_condition(workbench: Workbench) -> bool:
    """Whether the located node computes what a Where decides by: the condition is wrong then, and one that is always true or false only looks like it."""
    suspect = workbench.suspect
    if suspect is None:
        return False
    conditions = {node.input[0] for node in workbench.model.graph.node if node.op_type == "Where"}
    return not conditions.isdisjoint(suspect.output)


def _other_selections(workbench: Workbench, entry: TracedValue) -> Iterator[Variant]:
    def broadcast(mask: Any, one: Any, other: Any) -> Any:
        return torch.broadcast_tensors(mask, torch.as_tensor(one), torch.as_tensor(other))

    def hide(mask: Any, one: Any, other: Any, *, fill: float) -> Any:
        return torch.where(mask, one, torch.full_like(torch.as_tensor(one), fill))

    code = _code(workbench, entry)
    for place, value in enumerate(("first", "second"), start=1):
        if _computes_condition(workbench):
            break
        yield Variant(
            what=f"always taking its {value} value",
            change=call_instead(lambda *args, place=place: broadcast(*args)[place].clone()),
            code=code,
        )
    yield Variant(
        what="with its condition inverted",
        change=call_instead(lambda mask, a, b: torch.where(~mask, a, b)),
        code=code,
    )
    for fill in _hiding_constants(workbench):
        yield Variant(
            what=f"hiding with {fill:g}", change=call_instead(partial(hide, fill=fill)), code=code
        )


def _other_triangles(entry: TracedValue) -> Iterator[Variant]:
    diagonal = entry.arguments.get("diagonal", 0)
    for other in (diagonal - 1, diagonal + 1):
        yield Variant(what=f"with diagonal={other}", change=with_arguments(diagonal=other))
    yield Variant(what="left out", change=skip_call())


def _other_combinations(workbench: Workbench, entry: TracedValue) -> Iterator[Variant]:
    """Masks that are combined, negated or multiplied, and the softmax of rows that are fully masked."""
    if entry.dtype == "bool" and entry.op in _LOGICAL:
        yield Variant(what="without its second operand", change=skip_call())
        yield Variant(what="without its first operand", change=skip_call(1))
    if entry.op in ("logical_not", "bitwise_not"):
        yield Variant(what="left out", change=skip_call())
    if entry.op == "_safe_softmax":
        yield Variant(
            what="as a plain softmax",
            change=call_instead(lambda x, dim, *rest: torch.softmax(x, dim)),
        )
        yield Variant(
            what="with the least finite number for minus infinity",
            change=call_instead(lambda x, dim, *rest: torch.softmax(_finite(x), dim)),
        )
    if entry.op == "mul" and len(entry.inputs) == 2:
        for place in (0, 1):  # a mask that is multiplied: hidden places become zero
            if _is_zeros_and_ones(workbench, entry.inputs[1 - place]):
                yield Variant(what="without its mask", change=skip_call(place))


def _after_softmax(workbench: Workbench, entry: TracedValue) -> Iterator[Variant]:
    """The mask put on the weights after the softmax instead of on the scores before it: rows no longer add up to one."""
    masks: list[Any] = []

    def remember(func: Any, args: Arguments, kwargs: Keywords) -> Any:
        masks[:] = [args[1]]
        return args[0].detach()

    def mask_late(func: Any, args: Arguments, kwargs: Keywords) -> Any:
        return func(*args, **kwargs).masked_fill(masks[0], 0.0)

    for later in workbench.located.traced_values[entry.place :]:
        if "softmax" in later.op and later.outer is None and later.call > entry.call:
            yield Variant(
                what="put after the softmax", change=remember, more=((later.call, mask_late),)
            )
            return


def _finite(scores: Any) -> Any:
    """Scores with float32's least number in the place of minus infinity."""
    return scores.clamp(min=torch.finfo(torch.float32).min)


def _is_zeros_and_ones(workbench: Workbench, place: int) -> bool:
    value = workbench.located.fetch(place)
    if value is None or value.size < 2:
        return False
    return bool(np.isin(value, (0, 1)).all())


def _hiding_constants(workbench: Workbench) -> list[float]:
    """Large negative numbers that the file holds, and zero: what it hides places with."""
    values: set[float] = set()
    for array in constants(workbench.scene.file).values():
        if array.dtype.kind == "f":
            numbers = array.reshape(-1)
            values.update(float(v) for v in numbers if v < _LARGE_NEGATIVE or v == 0)
    return sorted(values)[:_MOST_FILLS]


def _try_mask_inputs(workbench: Workbench) -> Tried | None:
    """Each input that is a mask, ignored or inverted in the module: it then gives the candidate's outputs."""
    for name, mask in workbench.scene.case.inputs.items():
        if not mask.ndim or not mask_inputs.is_mask(name, mask):
            continue
        for what, _ in mask_inputs.other_masks(mask, workbench.scene.case.inputs):
            tried = workbench.try_counterfactual(
                workbench.changed_answers(partial(_answers_with, workbench, name, what)),
                f"the module with `{name}` {what} gives what the candidate gives",
            )
            if tried is not None:
                return tried
    return None


def _answers_with(
    workbench: Workbench, name: str, what: str, inputs: Mapping[str, Array]
) -> list[Array] | None:
    """What the module says when one mask is ignored or inverted."""
    others = dict(mask_inputs.other_masks(inputs[name], inputs))
    return _answers(workbench, {**inputs, name: others[what]})


def _observe_open_masks(workbench: Workbench) -> Tried | None:
    """Masks with which the two agree: where the fault shows, and not yet what it is.

    1. With the fully masked rows opened for both.
    2. Open everywhere for both, where the witness was made to test masks.
    """
    case = workbench.scene.case
    for name, mask in case.inputs.items():
        if not mask.ndim or not mask_inputs.is_mask(name, mask):
            continue
        open_rows = mask_inputs.fill_empty_rows(mask)
        if not np.array_equal(open_rows, mask) and _agree(workbench, name, open_rows):  # 1
            return Tried(
                evidence=f"only rows of `{name}` that hide everything differ: with one place open in each, the two agree"
            )
        if case.group == "masks" and _agree(workbench, name, mask_inputs.keep_all(mask)):  # 2
            return Tried(
                evidence=f"with `{name}` open everywhere the two agree; with places hidden they don't"
            )
    return None


def _agree(workbench: Workbench, name: str, mask: Array) -> bool:
    """Whether the module and the candidate agree with this mask."""
    inputs = {**workbench.scene.case.inputs, name: mask}
    truth = _answers(workbench, inputs)
    if truth is None:
        return False
    return workbench.distance(None, inputs=inputs, truth=truth) <= workbench.limit


def _answers(workbench: Workbench, inputs: Mapping[str, Array]) -> list[Array] | None:
    try:
        return workbench.truth_of(inputs)
    except Exception:  # the module may refuse an odd mask: then this trial says nothing
        return None
