"""RNN, LSTM and GRU as the standard defines them: every activation, the clip, lengths, peepholes, both directions."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

from onnxproof.runtimes.evaluator import attributes as attribute_reader

Array = np.ndarray[Any, Any]
_ALPHA = {
    "leakyrelu": 0.01,
    "thresholdedrelu": 1.0,
    "hardsigmoid": 0.2,
    "elu": 1.0,
    "affine": 1.0,
    "scaledtanh": 1.0,
}
_BETA = {"hardsigmoid": 0.5, "affine": 0.0, "scaledtanh": 1.0}


def _elu(x: Array, a: float, b: float) -> Array:
    return np.where(x < 0, a * np.expm1(np.minimum(x, 0)), x)


_FUNCTIONS: dict[str, Callable[[Array, float, float], Array]] = {
    "sigmoid": lambda x, a, b: 0.5 * (1 + np.tanh(0.5 * x)),
    "tanh": lambda x, a, b: np.tanh(x),
    "relu": lambda x, a, b: np.maximum(x, 0),
    "affine": lambda x, a, b: a * x + b,
    "leakyrelu": lambda x, a, b: np.where(x < 0, a * x, x),
    "thresholdedrelu": lambda x, a, b: np.where(x >= a, x, 0),
    "scaledtanh": lambda x, a, b: a * np.tanh(b * x),
    "hardsigmoid": lambda x, a, b: np.clip(a * x + b, 0, 1),
    "elu": _elu,
    "softsign": lambda x, a, b: x / (1 + np.abs(x)),
    "softplus": lambda x, a, b: np.logaddexp(0, x),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attributes:
    """The attributes of the three operators, as the standard names them."""

    activations: Sequence[str] | None = None
    activation_alpha: Sequence[float] | None = None
    activation_beta: Sequence[float] | None = None
    clip: float | None = None
    direction: str = "forward"
    layout: int = 0
    linear_before_reset: int = 0
    """GRU alone: the reset gate acts after the product instead of before it."""
    input_forget: int = 0
    """LSTM alone: the input and the forget gate are one."""


@dataclass(frozen=True, slots=True)
class _Inputs:
    """The inputs of the three operators, in their order."""

    x: Array
    w: Array
    r: Array
    b: Array | None = None
    lengths: Array | None = None
    h: Array | None = None
    c: Array | None = None
    peepholes: Array | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cell:
    """The weights of one direction, its activations and its attributes."""

    w: Array
    r: Array
    b: Array
    """The biases of the input and of the state."""
    peepholes: Array | None
    functions: Sequence[Callable[[Array], Array]]
    attributes: _Attributes

    def activate(self, place: int, x: Array) -> Array:
        """The activation at a place, of the clipped values."""
        clip = self.attributes.clip
        if clip:
            x = np.clip(x, -clip, clip)
        return self.functions[place](x)


class _Recurrent(OpRun):
    """What the three have in common: directions, lengths, layouts, activations."""

    op_domain = ""
    gates = 1
    usual: tuple[str, ...] = ("Tanh",)
    """Its activations where the node names none."""

    def _run(self, *inputs: Any, **attributes: Any) -> tuple[Array, ...]:
        """Every direction by itself; the results side by side."""
        options = attribute_reader.read(_Attributes, attributes)
        operands = _Inputs(*inputs)
        if options.layout:
            operands = _batch_second(operands)
        cells = self._cells(operands, options)
        runs = [
            self._unroll(
                operands,
                place,
                cell,
                backwards=options.direction == "reverse" or place == 1,
            )
            for place, cell in enumerate(cells)
        ]
        y = np.stack([run[0] for run in runs], axis=1)
        last = np.stack([run[1] for run in runs])
        last_cell = np.stack([run[2] for run in runs])
        if options.layout:
            y = y.transpose(2, 0, 1, 3)
            last, last_cell = last.swapaxes(0, 1), last_cell.swapaxes(0, 1)
        return (y, last, last_cell)[: max(1, len(self.onnx_node.output))]

    def _cells(self, operands: _Inputs, options: _Attributes) -> list[_Cell]:
        """One for each direction."""
        directions, hidden, each = len(operands.w), operands.r.shape[-1], len(self.usual)
        functions = _functions(
            options.activations or self.usual * directions,
            options.activation_alpha,
            options.activation_beta,
        )
        biases = operands.b
        if biases is None:
            biases = np.zeros((directions, 2 * self.gates * hidden), operands.x.dtype)
        return [
            _Cell(
                w=operands.w[k],
                r=operands.r[k],
                b=biases[k].reshape(2, -1),
                peepholes=None if operands.peepholes is None else operands.peepholes[k],
                functions=functions[k * each : (k + 1) * each],
                attributes=options,
            )
            for k in range(directions)
        ]

    def _unroll(
        self,
        operands: _Inputs,
        place: int,
        cell: _Cell,
        *,
        backwards: bool,
    ) -> tuple[Array, Array, Array]:
        """All steps; a row whose length is over keeps its state and gives zeros, and backwards begins at its last step."""
        x = operands.x
        steps, batch = x.shape[:2]
        start = np.zeros((batch, operands.r.shape[-1]), x.dtype)
        h = start if operands.h is None else operands.h[place]
        c = start if operands.c is None else operands.c[place]
        lengths = operands.lengths
        if lengths is None:
            lengths = np.full(batch, steps)
        y = np.zeros((steps, *h.shape), x.dtype)
        order = range(steps)
        for t in reversed(order) if backwards else order:
            alive = (t < lengths)[:, None]
            new_h, new_c = self._step(cell, x[t], h, c)
            h = np.where(alive, new_h, h)
            c = np.where(alive, new_c, c)
            y[t] = np.where(alive, new_h, 0)
        return y.astype(x.dtype), h.astype(x.dtype), c.astype(x.dtype)

    def _step(
        self,
        cell: _Cell,
        x: Array,
        h: Array,
        c: Array,
    ) -> tuple[Array, Array]:
        """The next state, and the next state of the cell."""
        raise NotImplementedError


def _batch_second(operands: _Inputs) -> _Inputs:
    """Layout 1 has the batch first, in the inputs and in the states."""
    names = ("x", "h", "c")
    values = {name: getattr(operands, name) for name in names}
    swapped = {name: v.swapaxes(0, 1) for name, v in values.items() if v is not None}
    return replace(operands, **swapped)


class RNN(_Recurrent):
    """H = f(X W + H R + b)."""

    def _step(
        self,
        cell: _Cell,
        x: Array,
        h: Array,
        c: Array,
    ) -> tuple[Array, Array]:
        """One gate."""
        return cell.activate(0, x @ cell.w.T + h @ cell.r.T + cell.b.sum(0)), c


class GRU(_Recurrent):
    """Gates in the order update, reset, hidden."""

    gates = 3
    usual = ("Sigmoid", "Tanh")

    def _step(
        self,
        cell: _Cell,
        x: Array,
        h: Array,
        c: Array,
    ) -> tuple[Array, Array]:
        """The reset gate acts before the product, or after it (linear_before_reset)."""
        n = h.shape[-1]
        from_input = x @ cell.w.T + cell.b[0]
        from_state = h @ cell.r[: 2 * n].T + cell.b[1, : 2 * n]
        update = cell.activate(0, from_input[:, :n] + from_state[:, :n])
        reset = cell.activate(0, from_input[:, n : 2 * n] + from_state[:, n:])
        weights, bias = cell.r[2 * n :].T, cell.b[1, 2 * n :]
        if cell.attributes.linear_before_reset:
            product = reset * (h @ weights + bias)
        else:
            product = (reset * h) @ weights + bias
        hidden = cell.activate(1, from_input[:, 2 * n :] + product)
        return (1 - update) * hidden + update * h, c


class LSTM(_Recurrent):
    """Gates in the order input, output, forget, cell."""

    gates = 4
    usual = ("Sigmoid", "Tanh", "Tanh")

    def _step(
        self,
        cell: _Cell,
        x: Array,
        h: Array,
        c: Array,
    ) -> tuple[Array, Array]:
        """Peepholes look at the cell; with input_forget the two gates are one."""
        n = h.shape[-1]
        gates = x @ cell.w.T + h @ cell.r.T + cell.b.sum(0)
        i, o, f, new = (gates[:, k * n : (k + 1) * n] for k in range(4))
        peepholes = np.zeros((3, n), x.dtype)
        if cell.peepholes is not None:
            peepholes = cell.peepholes.reshape(3, n)
        i = cell.activate(0, i + peepholes[0] * c)
        f = 1 - i if cell.attributes.input_forget else cell.activate(0, f + peepholes[2] * c)
        new_c = f * c + i * cell.activate(1, new)
        o = cell.activate(0, o + peepholes[1] * new_c)
        return o * cell.functions[2](new_c), new_c


def _functions(
    names: Sequence[str],
    alphas: Sequence[float] | None,
    betas: Sequence[float] | None,
) -> list[Callable[[Array], Array]]:
    """The activations with their parameters, which are given in order to those that take one."""
    next_alpha, next_beta = iter(alphas or ()), iter(betas or ())
    functions: list[Callable[[Array], Array]] = []
    for name in (n.lower() for n in names):
        a = next(next_alpha, _ALPHA[name]) if name in _ALPHA else 0.0
        b = next(next_beta, _BETA[name]) if name in _BETA else 0.0
        functions.append(functools.partial(_call, _FUNCTIONS[name], a, b))
    return functions


def _call(
    function: Callable[[Array, float, float], Array],
    a: float,
    b: float,
    x: Array,
) -> Array:
    return function(x, a, b)
