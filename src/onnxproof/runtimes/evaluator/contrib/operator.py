"""What the operators of `com.microsoft` share."""

from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

Array = np.ndarray[Any, Any]
DOMAIN = "com.microsoft"


class Contrib(OpRun):
    """No schema of the standard, so defaults are those of the signatures here."""

    op_schema = None
    op_domain = DOMAIN


def add_bias(y: Array, bias: Array | None) -> Array:
    """The sum with a bias, where there is one."""
    if bias is None:
        return y
    return y + bias


def refuse_inputs(op_type: str, inputs: dict[str, Any]) -> None:
    """Raise for the inputs that are there: nothing is guessed about what was not compared with a kernel."""
    given = [name for name, value in inputs.items() if value is not None]
    if given:
        raise NotImplementedError(f"{op_type} with {', '.join(given)}")
