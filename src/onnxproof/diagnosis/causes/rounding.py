"""Numbers are rounded by another rule.

What it is: half away from zero instead of half to even, truncation instead of floor, for negative numbers or exact
halves.

Why it happens: integer division and rounding have as many rules as there are frameworks.

How to see it: with the other rounding operator in the node's place the answers are right.

How to fix it: write the rule out in the module (`torch.div(a, b, rounding_mode="floor")`), or take the mended file.

Example: `x // 3` of negative integers.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from onnxproof.diagnosis.counterfactuals.swapped_operator import other_operator
from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench

if TYPE_CHECKING:
    from onnxproof.diagnosis.counterfactuals.changed_reference import Variant
    from onnxproof.reference.traced_value import TracedValue

TITLE = "numbers are rounded by another rule"
PRICE = 15


def test(bench: Workbench) -> Tried | str:
    """Each other rule in the module's own rounding, and each other rounding operator in the place of a located one."""
    return bench.whatif(_variants, cure=lambda: other_operator(bench, [("Round", "Floor", "Ceil")]))


def _variants(entry: "TracedValue") -> "Iterator[Variant]":
    import torch

    from onnxproof.diagnosis.counterfactuals.changed_reference import (
        Variant,
        instead,
        with_arguments,
    )

    def trunc_division(a: Any, b: Any) -> Any:
        return torch.div(a, b, rounding_mode="trunc")

    mode = entry.arguments.get("rounding_mode")
    if mode is not None:
        other = "trunc" if mode == "floor" else "floor"
        yield Variant(
            what=f"rounded by `{other}` instead of `{mode}`",
            change=with_arguments(rounding_mode=other),
        )
    if entry.op in ("floor_divide", "div") and (mode is not None or entry.op == "floor_divide"):
        yield Variant(
            what="by one floating-point division",
            change=instead(
                lambda a, b: torch.floor(
                    torch.as_tensor(a).float() / torch.as_tensor(b).float()
                ).to(a.dtype)
            ),
        )
    if entry.op == "floor_divide":
        yield Variant(what="rounded towards zero", change=instead(trunc_division))
    if entry.op in ("__rshift__", "bitwise_right_shift"):
        yield Variant(
            what="as a division that rounds towards zero",
            change=instead(lambda a, b: trunc_division(a, 2**b)),
        )
    if entry.op in ("remainder", "fmod"):
        yield Variant(
            what="with the sign of the other operand",
            change=instead(torch.fmod if entry.op == "remainder" else torch.remainder),
            code="attribute",
        )
    if entry.op in ("round", "floor", "ceil", "trunc"):
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
                yield Variant(what=f"by the rule `{name}`", change=instead(rule))
    if entry.op == "_to_copy" and "int" in entry.dtype:
        yield Variant(
            what="rounded before the cast to integers",
            change=lambda func, args, kwargs: func(torch.round(args[0]), *args[1:], **kwargs),
        )
