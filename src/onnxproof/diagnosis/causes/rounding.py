"""Numbers are rounded by another rule.

What it is: half away from zero instead of half to even, truncation instead of floor, for negative numbers or exact
halves.

Why it happens: integer division and rounding have as many rules as there are frameworks.

How to see it: with the other rounding operator in the node's place the answers are right.

How to fix it: write the rule out in the module (`torch.div(a, b, rounding_mode="floor")`), or take the mended file.

Example: `x // 3` of negative integers.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch

from onnxproof.diagnosis.counterfactuals.changed_reference import (
    Variant,
    call_instead,
    with_arguments,
)
from onnxproof.diagnosis.counterfactuals.swapped_operator import try_other_operators
from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench
from onnxproof.reference.traced_value import TracedValue

TITLE = "numbers are rounded by another rule"
PRICE = 15
CODES = ("rounding", "attribute")


def test(workbench: Workbench) -> Tried | str:
    """Each other rule in the module's own rounding, and each other rounding operator in the place of a located one."""
    return workbench.try_in_reference(
        _variants,
        remedy=lambda: try_other_operators(workbench, [("Round", "Floor", "Ceil")]),
    )


def _variants(entry: TracedValue) -> Iterator[Variant]:
    yield from _other_divisions(entry)
    yield from _other_remainders(entry)
    yield from _other_rules(entry)
    if entry.op == "_to_copy" and "int" in entry.dtype:
        yield Variant(
            what="rounded before the cast to integers",
            change=lambda func, args, kwargs: func(torch.round(args[0]), *args[1:], **kwargs),
        )


def _other_divisions(entry: TracedValue) -> Iterator[Variant]:
    """Integer division, by its rounding mode or as a shift."""
    mode = entry.arguments.get("rounding_mode")
    if mode is not None:
        other = "trunc" if mode == "floor" else "floor"
        yield Variant(
            what=f"rounded by `{other}` instead of `{mode}`",
            change=with_arguments(rounding_mode=other),
        )
    if entry.op == "floor_divide" or (entry.op == "div" and mode is not None):
        yield Variant(what="by one floating-point division", change=call_instead(_float_division))
    if entry.op == "floor_divide":
        yield Variant(what="rounded towards zero", change=call_instead(_trunc_division))
    if entry.op in ("__rshift__", "bitwise_right_shift"):
        yield Variant(
            what="as a division that rounds towards zero",
            change=call_instead(lambda a, b: _trunc_division(a, 2**b)),
        )


def _float_division(a: Any, b: Any) -> Any:
    quotient = torch.as_tensor(a).float() / torch.as_tensor(b).float()
    return torch.floor(quotient).to(a.dtype)


def _trunc_division(a: Any, b: Any) -> Any:
    return torch.div(a, b, rounding_mode="trunc")


def _other_remainders(entry: TracedValue) -> Iterator[Variant]:
    others: dict[str, Callable[..., Any]] = {"remainder": torch.fmod, "fmod": torch.remainder}
    if entry.op in others:
        yield Variant(
            what="with the sign of the other operand",
            change=call_instead(others[entry.op]),
            code="attribute",
        )


def _other_rules(entry: TracedValue) -> Iterator[Variant]:
    """Each other rule by which a fraction becomes whole."""
    if entry.op not in ("round", "floor", "ceil", "trunc"):
        return
    rules: dict[str, Callable[[Any], Any]] = {
        "floor": torch.floor,
        "ceil": torch.ceil,
        "trunc": torch.trunc,
        "round": torch.round,
        "half up": lambda x: torch.floor(x + 0.5),
        "half away from zero": lambda x: torch.sign(x) * torch.floor(x.abs() + 0.5),
    }
    for name, rule in rules.items():
        if name != entry.op:
            yield Variant(what=f"by the rule `{name}`", change=call_instead(rule))
