"""The options of the command line that load a subject again, for the line that replays a case."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxproof.options import Input

if TYPE_CHECKING:
    from onnxproof.reference.subject import Subject


def options(subject: "Subject") -> str:
    """Every option that differs from its default, each after a blank."""
    words = ["--trust-remote-code"] if subject.trust_remote_code else []
    words += [_option("set", f"{key}={value}") for key, value in subject.arguments.items()]
    if subject.config is not None:
        words.append(_option("config", subject.config))
    if subject.weights is not None:
        words.append(_option("weights", subject.weights))
    for name, said in subject.inputs.items():
        words += _input_options(name, said)
    words += [_option("dim", f"{name}={sizes}") for name, sizes in subject.dims.items()]
    return "".join(f" {word}" for word in dict.fromkeys(words))


def _input_options(name: str, said: Input) -> list[str]:
    words = []
    if said.shape is not None:
        sizes = ",".join(map(str, said.shape))
        words.append(_option("input", f"{name}:{said.dtype or 'float32'}[{sizes}]"))
    if said.values:
        words.append(_option("values", f"{name}={_numbers(said.values)}"))
    if said.range is not None:
        low, high = ("" if end is None else str(end) for end in said.range)
        words.append(_option("range", f"{name}={low}..{high}"))
    if said.avoid:
        words.append(_option("avoid", f"{name}={_numbers(said.avoid)}"))
    if isinstance(said.samples, str | Path):
        words.append(_option("values-from", said.samples))
    return words


def _numbers(values: tuple[float, ...]) -> str:
    return ",".join(map(str, values))


def _option(name: str, value: Any) -> str:
    return f"--{name} {shlex.quote(str(value))}"
