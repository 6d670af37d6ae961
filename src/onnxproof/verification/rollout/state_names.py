"""Which output is which input's next value, as far as names and shapes tell."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

_OUTPUT_WORDS = frozenset(
    [
        "present",
        "new",
        "next",
        "out",
        "output",
        "outputs",
        "updated",
        "update",
        "final",
        "after",
        "post",
        "nxt",
        "n",
    ]
)
"""Words of an output that say "this is the state from now on"."""
_INPUT_WORDS = frozenset(
    [
        "past",
        "old",
        "prev",
        "previous",
        "last",
        "in",
        "input",
        "inputs",
        "init",
        "initial",
        "before",
        "pre",
        "prior",
    ]
)
"""Words of an input that say "this is the state so far"."""
_STATE_WORDS = frozenset(
    [
        "past",
        "present",
        "cache",
        "state",
        "states",
        "h",
        "c",
        "hx",
        "cx",
        "hidden",
        "cell",
        "mem",
        "memory",
        "memories",
        "buffer",
        "conv",
        "ssm",
        "kv",
        "key",
        "keys",
        "value",
        "values",
        "k",
        "v",
    ]
)
"""Words that say that a tensor is kept from call to call."""
_KEPT_WORDS = frozenset(
    ["past", "cache", "state", "prev", "previous", "old", "in", "h", "c", "hx", "cx", "ssm", "mem"]
)
"""Words of an input that say by themselves that it is kept from call to call; `key`, `value` and `memory` also name plain inputs."""
_GROUP_WORDS = frozenset(["key", "values", "kv", "cache", "state", "states"])
"""Words that one side has and the other leaves out: `past_key_values.0.key` becomes `present.0.key`."""
_SHORT_FORMS = {"key": "k", "keys": "k", "value": "v", "values": "v", "hidden": "h", "cell": "c"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """An input or output of the reference, with the names that it and the file give it."""

    name: str
    aliases: tuple[str, ...]
    dtype: str
    shape: tuple[int, ...]


def words_of(name: str) -> list[str]:
    """The words of a name: `present.0.keyOut` is `present`, `0`, `key`, `out`.

    >>> words_of("past_k0")
    ['past', 'k', '0']
    """
    spaced = re.sub(r"([a-z])([A-Z])", r"\1 \2", name)
    return [word.lower() for word in re.findall(r"[A-Za-z]+|\d+", spaced)]


def is_kept(input: Tensor) -> bool:
    """Whether an input's own name says that it holds a state."""
    return any(_KEPT_WORDS & set(words_of(alias)) for alias in input.aliases)


def likeness(output: Tensor, input: Tensor) -> int:
    """How strongly the names say that the output is the input's next value; 0 where they do not."""
    scores = [_likeness(one, other) for one in output.aliases for other in input.aliases]
    return max(scores, default=0)


def _likeness(output: str, input: str) -> int:
    """Of two names.

    4. They are equal, and name a state.
    3. They are equal without the words for before and after, of which there is at least one.
    2. They are equal when the words for a group of tensors are left out, too.
    """
    before, after = words_of(input), words_of(output)
    says_state = bool(_STATE_WORDS & {*before, *after})
    if before == after:
        return 4 if says_state and not all(word.isdigit() for word in before) else 0
    stem_in = [word for word in before if word not in _INPUT_WORDS]
    stem_out = [word for word in after if word not in _OUTPUT_WORDS]
    if stem_in == before and stem_out == after:
        return 0
    return _likeness_of_stems(stem_in, stem_out, says_state=says_state)


def _likeness_of_stems(stem_in: list[str], stem_out: list[str], *, says_state: bool) -> int:
    """What is left of two names without the words for before and after."""
    if _short(stem_in) == _short(stem_out) and stem_in:
        return 3
    plain_in, plain_out = _without_groups(stem_in), _without_groups(stem_out)
    if plain_in == plain_out and (plain_in or says_state):
        return 2
    return 0


def _short(words: Sequence[str]) -> list[str]:
    return [_SHORT_FORMS.get(word, word) for word in words]


def _without_groups(words: Sequence[str]) -> list[str]:
    """The words without a leading name of a group, `key_values` and the like."""
    rest = list(words)
    while len(rest) > 1 and rest[0] in _GROUP_WORDS:
        rest.pop(0)
    if rest and rest[0] in _GROUP_WORDS and rest[0] not in ("key", "values"):
        rest.pop(0)
    return _short(rest)


def grown_axes(output: Tensor, input: Tensor) -> list[int] | None:
    """The axes in which the output is another size than the input; None where it can't be its next value."""
    if len(output.shape) != len(input.shape) or output.dtype != input.dtype:
        return None
    axes = [k for k, size in enumerate(input.shape) if output.shape[k] != size]
    if len(axes) > 1:
        return None
    return axes
