"""The natural scale of activations: runtimes compute them by polynomials, or as exp(x) - 1, whose error is absolute.

ONNX Runtime's Elu, Celu, Sigmoid, Tanh, Erf and their compounds are off by a few 2**-24 of the values between which the
function bends, also where its result is tiny; PyTorch uses expm1 and log1p there. Neither is wrong. What the function
is multiplied with multiplies that error: the input of silu, the alpha of celu, the first half of glu.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

Arguments = Mapping[str, Any]


def natural_scale(name: str, arguments: Arguments) -> Tensor | None:
    """What the absolute error of an activation is relative to, as a tensor that broadcasts to its result; None for other operations."""
    if name not in _SCALES:
        return None
    return _SCALES[name](arguments)


def is_activation(name: str) -> bool:
    """Whether an operation is one of these."""
    return name in _SCALES


def _one(arguments: Arguments) -> Tensor:
    return torch.ones(())


def _two(arguments: Arguments) -> Tensor:
    """Inside of a recurrent cell: measured in ONNX Runtime's GRU, off by 8 of these units at the ends, by 2 between them."""
    return torch.full((), 2.0)


def _times_input(arguments: Arguments) -> Tensor:
    """A bounded function times the input."""
    return torch.clamp(arguments["self"].abs(), min=1.0).nan_to_num()


def _exponential(arguments: Arguments) -> Tensor:
    """alpha (exp(x) - 1), times `scale`."""
    factor = abs(float(arguments.get("alpha", 1.0))) * abs(float(arguments.get("scale", 1.0)))
    return torch.tensor(max(1.0, factor))


def _softplus(arguments: Arguments) -> Tensor:
    """log(1 + exp(beta x)) / beta."""
    beta = abs(float(arguments.get("beta", 1.0)))
    if not beta:
        return torch.tensor(1.0)
    return torch.tensor(max(1.0, 1.0 / beta))


def _halves(arguments: Arguments) -> Tensor:
    """The first half times the sigmoid of the second."""
    dim = int(arguments.get("dim", -1))
    first = torch.chunk(arguments["self"], 2, dim=dim)[0]
    return first.abs().nan_to_num()


_SCALES: dict[str, Callable[[Arguments], Tensor]] = {
    "sigmoid": _one,
    "tanh": _one,
    "tanh_": _two,
    "erf": _one,
    "log_sigmoid_forward": _one,
    "silu": _times_input,
    "gelu": _times_input,
    "mish": _times_input,
    "elu": _exponential,
    "celu": _exponential,
    "selu": _exponential,
    "softplus": _softplus,
    "glu": _halves,
}
