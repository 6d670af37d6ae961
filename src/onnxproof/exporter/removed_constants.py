"""Constants that the exporter's rewriter takes for 0 or 1 and removes: an added 1e-8, a factor of 1.000004.

onnxscript compares a constant with the 0 or 1 of its rules (`x + 0`, `x * 1`) within a tolerance of 1e-8 and 1e-5, so
`log(x + 1e-8)` becomes `log(x)`, which is -inf at 0. The calls of the captured program are looked for in the graph.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxproof.exporter.failures import last_user_line
from onnxproof.results import Finding

_OPERATORS = {
    "aten.add": ("Add", "+", 0.0),
    "aten.sub": ("Sub", "-", 0.0),
    "aten.mul": ("Mul", "*", 1.0),
    "aten.div": ("Div", "/", 1.0),
}
"""The ONNX operator, its sign, and the constant with which it changes nothing."""
_ABSOLUTE = 1e-8
_RELATIVE = 1e-5
"""The tolerances of onnxscript's rules, as its version 0.7.2 has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedConstant:
    """One operation that the rewriter removed although it changes its operand."""

    op_type: str
    sign: str
    value: float
    where: str = ""
    """File and line of the user's Python, as far as torch says."""

    def __str__(self) -> str:
        text = f"`{self.sign} {self.value:.9g}`"
        if self.where:
            return f"{text} at {self.where}"
        return text


def find_removed(onnx_program: Any) -> tuple[RemovedConstant, ...]:
    """The operations of the captured program with a constant near 0 or 1 that its ONNX graph lacks."""
    called = list(_calls(onnx_program.exported_program))
    if not called:
        return ()
    kept = set(_kept(onnx_program.model))
    return tuple(item for item in called if (item.op_type, _single(item.value)) not in kept)


def finding(removed: Sequence[RemovedConstant]) -> Finding:
    """What is said of a file that lacks them."""
    names = ", ".join(str(item) for item in dict.fromkeys(removed))
    return Finding(
        code="constant-removed",
        what=f"torch.onnx's rewriter took a constant for 0 or 1 and removed {names}",
        help="export with torch.onnx.export(..., optimize=False), or choose an epsilon above 1e-8",
    )


def _calls(program: Any) -> Iterator[RemovedConstant]:
    """The calls with a constant that the rewriter takes for the neutral one, but is not."""
    constants = _scalar_tensors(program)
    for node in program.graph.nodes:
        if node.op != "call_function":
            continue
        operator = ".".join(str(node.target).split(".")[:2])
        op_type, sign, neutral = _OPERATORS.get(operator, ("", "", 0.0))
        if not op_type or len(node.args) < 2:
            continue
        for argument in node.args[:2]:
            value = constants.get(getattr(argument, "name", ""), argument)
            if isinstance(value, float) and _is_mistaken(value, neutral):
                frame = last_user_line(node.meta.get("stack_trace") or "")
                where = f"{frame[0]}:{frame[1]}" if frame else ""
                yield RemovedConstant(op_type=op_type, sign=sign, value=value, where=where)


def _is_mistaken(value: float, neutral: float) -> bool:
    """Whether the rewriter takes the value for the neutral constant."""
    if _single(value) == neutral:
        return False
    return math.isclose(value, neutral, rel_tol=_RELATIVE, abs_tol=_ABSOLUTE)


def _scalar_tensors(program: Any) -> dict[str, float]:
    """Parameters, buffers and constants of one number, by the name of their placeholder."""
    signature = program.graph_signature
    values = {**program.state_dict, **program.constants}
    names = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    scalars = {}
    for placeholder, name in names.items():
        tensor = values.get(name)
        if tensor is not None and tensor.dim() == 0 and tensor.is_floating_point():
            scalars[placeholder] = float(tensor)
    return scalars


def _kept(model: Any) -> Iterator[tuple[str, float]]:
    """Operator and constant of every node that has one of a single number."""
    import onnx_ir as ir

    for node in model.graph.all_nodes():
        for value in node.inputs:
            tensor = None
            if value is not None:
                tensor = ir.convenience.get_const_tensor(value)
            if tensor is not None and tensor.size == 1:
                yield node.op_type, _single(float(tensor.numpy().reshape(-1)[0]))


def _single(value: float) -> float:
    """As float32, which is what a constant becomes in most graphs."""
    return float(np.float32(value))
