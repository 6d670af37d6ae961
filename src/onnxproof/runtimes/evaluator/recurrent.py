"""RNN, LSTM and GRU as the standard defines them: every activation, the clip, lengths, peepholes, both directions."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

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
_FUNCTIONS: dict[str, Callable[[Array, float, float], Array]] = {
    "sigmoid": lambda x, a, b: 0.5 * (1 + np.tanh(0.5 * x)),
    "tanh": lambda x, a, b: np.tanh(x),
    "relu": lambda x, a, b: np.maximum(x, 0),
    "affine": lambda x, a, b: a * x + b,
    "leakyrelu": lambda x, a, b: np.where(x < 0, a * x, x),
    "thresholdedrelu": lambda x, a, b: np.where(x >= a, x, 0),
    "scaledtanh": lambda x, a, b: a * np.tanh(b * x),
    "hardsigmoid": lambda x, a, b: np.clip(a * x + b, 0, 1),
    "elu": lambda x, a, b: np.where(x < 0, a * np.expm1(np.minimum(x, 0)), x),
    "softsign": lambda x, a, b: x / (1 + np.abs(x)),
    "softplus": lambda x, a, b: np.logaddexp(0, x),
}


class _Recurrent(OpRun):
    """What the three have in common: directions, lengths, layouts, activations."""

    op_domain = ""
    gates = 1
    usual: tuple[str, ...] = ("Tanh",)
    """Its activations where the node names none."""

    def _run(
        self,
        x: Array,
        w: Array,
        r: Array,
        b: Array | None = None,
        lengths: Array | None = None,
        h: Array | None = None,
        c: Array | None = None,
        p: Array | None = None,
        activations: Sequence[str] | None = None,
        activation_alpha: Sequence[float] | None = None,
        activation_beta: Sequence[float] | None = None,
        clip: float | None = None,
        direction: str = "forward",
        hidden_size: int | None = None,
        layout: int = 0,
        **other: Any,
    ) -> tuple[Array, ...]:
        """Every direction by itself; the results side by side."""
        if layout:
            x, h, c = (
                x.swapaxes(0, 1),
                None if h is None else h.swapaxes(0, 1),
                None if c is None else c.swapaxes(0, 1),
            )
        steps, batch, hidden = x.shape[0], x.shape[1], r.shape[-1]
        each = len(self.usual)
        functions = _functions(
            activations or self.usual * len(w), activation_alpha, activation_beta
        )
        lengths = np.full(batch, steps) if lengths is None else lengths
        found = []
        for k in range(len(w)):
            state = (
                np.zeros((batch, hidden), x.dtype) if h is None else h[k],
                np.zeros((batch, hidden), x.dtype) if c is None else c[k],
            )
            bias = np.zeros((2, self.gates * hidden), x.dtype) if b is None else b[k].reshape(2, -1)
            cell = self._cell(
                w[k],
                r[k],
                bias,
                None if p is None else p[k],
                functions[k * each : (k + 1) * each],
                clip,
                other,
            )
            found.append(
                _unroll(x, lengths, state, cell, backwards=direction == "reverse" or k == 1)
            )
        y, last, cells = (
            np.stack([f[i] for f in found], axis=axis) for i, axis in ((0, 1), (1, 0), (2, 0))
        )
        if layout:
            y, last, cells = y.transpose(2, 0, 1, 3), last.swapaxes(0, 1), cells.swapaxes(0, 1)
        return (y, last, cells)[: max(1, len(self.onnx_node.output))]

    def _cell(
        self,
        w: Array,
        r: Array,
        b: Array,
        p: Array | None,
        f: Sequence[Any],
        clip: float | None,
        other: dict[str, Any],
    ) -> Any:
        raise NotImplementedError


class RNN(_Recurrent):
    """H = f(X W + H R + b)."""

    def _cell(
        self,
        w: Array,
        r: Array,
        b: Array,
        p: Array | None,
        f: Sequence[Any],
        clip: float | None,
        other: dict[str, Any],
    ) -> Any:
        """One gate."""

        def step(x: Array, h: Array, c: Array) -> tuple[Array, Array]:
            return f[0](_clipped(x @ w.T + h @ r.T + b.sum(0), clip)), c

        return step


class GRU(_Recurrent):
    """Gates in the order update, reset, hidden."""

    gates = 3
    usual = ("Sigmoid", "Tanh")

    def _cell(
        self,
        w: Array,
        r: Array,
        b: Array,
        p: Array | None,
        f: Sequence[Any],
        clip: float | None,
        other: dict[str, Any],
    ) -> Any:
        """The reset gate acts before the product, or after it (linear_before_reset)."""
        after = bool(other.get("linear_before_reset", 0))

        def step(x: Array, h: Array, c: Array) -> tuple[Array, Array]:
            n = h.shape[-1]
            xs, inner = x @ w.T + b[0], h @ r[: 2 * n].T + b[1, : 2 * n]
            z, gate = (
                f[0](_clipped(xs[:, :n] + inner[:, :n], clip)),
                f[0](_clipped(xs[:, n : 2 * n] + inner[:, n:], clip)),
            )
            product = (
                gate * (h @ r[2 * n :].T + b[1, 2 * n :])
                if after
                else (gate * h) @ r[2 * n :].T + b[1, 2 * n :]
            )
            return (1 - z) * f[1](_clipped(xs[:, 2 * n :] + product, clip)) + z * h, c

        return step


class LSTM(_Recurrent):
    """Gates in the order input, output, forget, cell."""

    gates = 4
    usual = ("Sigmoid", "Tanh", "Tanh")

    def _cell(
        self,
        w: Array,
        r: Array,
        b: Array,
        p: Array | None,
        f: Sequence[Any],
        clip: float | None,
        other: dict[str, Any],
    ) -> Any:
        """Peepholes look at the cell; with input_forget the two gates are one."""

        def step(x: Array, h: Array, c: Array) -> tuple[Array, Array]:
            n = h.shape[-1]
            gates = x @ w.T + h @ r.T + b.sum(0)
            i, o, g, new = (gates[:, k * n : (k + 1) * n] for k in range(4))
            peep = np.zeros((3, n), x.dtype) if p is None else p.reshape(3, n)
            i = f[0](_clipped(i + peep[0] * c, clip))
            g = 1 - i if other.get("input_forget", 0) else f[0](_clipped(g + peep[2] * c, clip))
            cell = g * c + i * f[1](_clipped(new, clip))
            return f[0](_clipped(o + peep[1] * cell, clip)) * f[2](cell), cell

        return step


def _clipped(x: Array, clip: float | None) -> Array:
    return x if not clip else np.clip(x, -clip, clip)


def _functions(
    names: Sequence[str], alphas: Sequence[float] | None, betas: Sequence[float] | None
) -> list[Callable[[Array], Array]]:
    """The activations with their parameters, which are given in order to those that take one."""
    left, right = iter(alphas or ()), iter(betas or ())
    found: list[Callable[[Array], Array]] = []
    for name in (n.lower() for n in names):
        a = next(left, _ALPHA[name]) if name in _ALPHA else 0.0
        b = next(right, _BETA[name]) if name in _BETA else 0.0
        found.append(lambda x, f=_FUNCTIONS[name], a=a, b=b: f(x, a, b))  # type: ignore[misc]
    return found


def _unroll(
    x: Array, lengths: Array, state: tuple[Array, Array], cell: Any, *, backwards: bool
) -> tuple[Array, Array, Array]:
    """All steps; a row whose length is over keeps its state and gives zeros, and backwards begins at its last step."""
    h, c = state
    y = np.zeros((x.shape[0], *h.shape), x.dtype)
    for t in reversed(range(x.shape[0])) if backwards else range(x.shape[0]):
        alive = (t < lengths)[:, None]
        new_h, new_c = cell(x[t], h, c)
        h, c = np.where(alive, new_h, h), np.where(alive, new_c, c)
        y[t] = np.where(alive, new_h, 0)
    return y.astype(x.dtype), h.astype(x.dtype), c.astype(x.dtype)
