"""The values that a function of JAX computes on the way to its answer: its jaxpr, evaluated equation by equation."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Step = tuple[str, Array]


def record(
    function: Callable[[Mapping[str, Array]], Any], inputs: Mapping[str, Array]
) -> list[Step]:
    """What a call computes step by step; nothing where the function can't be traced."""
    import jax

    try:
        closed = jax.make_jaxpr(function)(dict(inputs))
        steps: list[Step] = []
        leaves = jax.tree_util.tree_leaves(dict(inputs))
        _evaluate(closed.jaxpr, closed.consts, leaves, steps)
    except Exception:  # a function whose way depends on values has no jaxpr
        return []
    return steps


def _evaluate(
    jaxpr: Any, constants: Sequence[Any], arguments: Sequence[Any], steps: list[Step]
) -> list[Any]:
    """The outputs of a jaxpr; calls of others are followed, and each other result is a step."""
    values: dict[Any, Any] = {}

    def read(variable: Any) -> Any:
        return variable.val if hasattr(variable, "val") else values[variable]

    values |= zip(jaxpr.constvars, constants, strict=True)
    values |= zip(jaxpr.invars, arguments, strict=True)
    for equation in jaxpr.eqns:
        operands = [read(variable) for variable in equation.invars]
        inner = equation.params.get("jaxpr") or equation.params.get("call_jaxpr")
        is_call = hasattr(inner, "jaxpr") and len(inner.jaxpr.invars) == len(operands)
        if is_call and equation.primitive.name not in ("scan", "while", "cond"):
            results = _evaluate(inner.jaxpr, inner.consts, operands, steps)
        else:
            results = _evaluate_one(jaxpr, equation, operands)
            steps += [(equation.primitive.name, np.asarray(result)) for result in results]
        values |= zip(equation.outvars, results, strict=True)
    return [read(variable) for variable in jaxpr.outvars]


def _evaluate_one(jaxpr: Any, equation: Any, operands: Sequence[Any]) -> list[Any]:
    """One equation, as a jaxpr of its own."""
    import jax

    pairs = zip(equation.invars, operands, strict=True)
    known = {variable: value for variable, value in pairs if not hasattr(variable, "val")}
    alone = jaxpr.replace(
        constvars=[],
        invars=list(known),
        outvars=equation.outvars,
        eqns=[equation],
        debug_info=None,
    )
    return list(jax.core.eval_jaxpr(alone, [], *known.values()))
