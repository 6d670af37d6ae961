"""The loop of a model: which outputs are its next inputs.

1. What the user says is taken.
2. Pairs by name: `present.0.key` and `past_key_values.0.key`, `h_out` and `h_in`, a cache that goes in and out.
3. Where only the inputs have names that tell (a tuple is returned), the outputs whose shapes and dtypes fit those, in order.
4. Where no name tells, all pairs that fit. The reference has to confirm these.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onnxproof.errors import InputError
from onnxproof.verification.rollout.state_names import Tensor, grown_axes, is_kept, likeness


@dataclass(frozen=True, slots=True, kw_only=True)
class StatePair:
    """An output that is an input of the next call, by the reference's names."""

    output: str
    input: str
    grows: int | None = None
    """The axis that grows with every call; None where the state keeps its size."""
    by: str = "name"
    """given, name, input (its name, and the shape of the output), or shape."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """All states of a model."""

    states: tuple[StatePair, ...]

    @property
    def inputs(self) -> frozenset[str]:
        """The names of the inputs that hold state."""
        return frozenset(pair.input for pair in self.states)

    @property
    def outputs(self) -> frozenset[str]:
        """The names of the outputs that hold state."""
        return frozenset(pair.output for pair in self.states)

    @property
    def is_guessed(self) -> bool:
        """True where shapes alone say that there is a loop."""
        return any(pair.by == "shape" for pair in self.states)

    @property
    def is_half_named(self) -> bool:
        """True where names say which inputs hold state, and shapes which outputs."""
        return any(pair.by == "input" for pair in self.states)


def find_loops(
    inputs: Sequence[Tensor], outputs: Sequence[Tensor], given: Mapping[str, str] | None = None
) -> list[Loop]:
    """The loops that may be meant, the likeliest first; each has an input to drive it and an output to read."""
    if given is not None:
        return [Loop(states=tuple(_given_pairs(inputs, outputs, given)))]
    named = Loop(states=tuple(_pairs_by_name(inputs, outputs)))
    if named.states:
        loops = [named]
    else:
        kept = [input for input in inputs if is_kept(input)]
        pairs = _pairs_by_shape([input for input in inputs if _may_be_guessed(input)], outputs)
        growing = [pair for pair in pairs if pair.grows is not None]
        loops = [
            Loop(states=tuple(_pairs_by_shape(kept, outputs, by="input"))),
            Loop(states=tuple(growing)),
            Loop(states=tuple(pairs)),
        ]
    loops = [loop for loop in loops if _drives_and_answers(loop, inputs, outputs)]
    return list(dict.fromkeys(loops))


def _drives_and_answers(loop: Loop, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> bool:
    driven, answered = len(loop.inputs) < len(inputs), len(loop.outputs) < len(outputs)
    return bool(loop.states) and driven and answered


def _given_pairs(
    inputs: Sequence[Tensor], outputs: Sequence[Tensor], given: Mapping[str, str]
) -> list[StatePair]:
    pairs = []
    for output_name, input_name in given.items():
        output = _named(output_name, outputs, "output")
        input = _named(input_name, inputs, "input")
        axes = grown_axes(output, input) or []
        grows = axes[0] if axes else None
        pairs.append(StatePair(output=output.name, input=input.name, grows=grows, by="given"))
    return pairs


def _named(name: str, tensors: Sequence[Tensor], kind: str) -> Tensor:
    for tensor in tensors:
        if name == tensor.name or name in tensor.aliases:
            return tensor
    known = dict.fromkeys(alias for tensor in tensors for alias in tensor.aliases)
    raise InputError(
        "loop-unknown",
        f"the loop names an {kind} `{name}` that there is not",
        notes=[f"there are {', '.join(f'`{alias}`' for alias in known)}"],
        help='pass output and input, such as `--loop present_k=past_k` or loop={"present_k": "past_k"}',
    )


def _pairs_by_name(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> list[StatePair]:
    """The pairs whose names fit best, each output and each input once."""
    scored = []
    for place, input in enumerate(inputs):
        for other, output in enumerate(outputs):
            axes = grown_axes(output, input)
            score = likeness(output, input)
            if axes is not None and score:
                scored.append((-score, place, other, axes))
    pairs: dict[int, tuple[int, list[int]]] = {}
    for _, place, other, axes in sorted(scored):
        if place not in pairs and other not in [taken for taken, _ in pairs.values()]:
            pairs[place] = (other, axes)
    return [
        StatePair(output=outputs[other].name, input=inputs[place].name, grows=_first(axes))
        for place, (other, axes) in sorted(pairs.items())
    ]


def _may_be_guessed(input: Tensor) -> bool:
    """Float tensors of two dims or more: others fit too much by chance."""
    return input.dtype.startswith("float") and len(input.shape) >= 2


def _pairs_by_shape(
    inputs: Sequence[Tensor], outputs: Sequence[Tensor], by: str = "shape"
) -> list[StatePair]:
    """Tensors that fit, from the last to the first: states come after what drives and what is read."""
    left = list(outputs)
    pairs: list[StatePair] = []
    for input in reversed(inputs):
        for output in reversed(left):
            axes = grown_axes(output, input)
            if axes is not None:
                grows = _first(axes)
                pairs.append(StatePair(output=output.name, input=input.name, grows=grows, by=by))
                left.remove(output)
                break
    return pairs[::-1]


def _first(axes: Sequence[int]) -> int | None:
    return axes[0] if axes else None
