"""The options that say what the reference is: how it is built, which weights it has, and what its inputs are."""

import ast
import re
from dataclasses import dataclass, replace
from typing import Annotated, Any

import typer

from onnxproof.cli import _parsing as parsing
from onnxproof.errors import UsageError
from onnxproof.options import Input

_INPUT = re.compile(r"(?P<name>[\w.]+):(?P<dtype>\w+)(?:\[(?P<shape>[\w,\s]*)\])?")

_OPEN_SIZE = 3
"""Of a dim that is declared by a name: rows enough that one odd one has neighbours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputOptions:
    """What the inputs are: also for a reference that is an ONNX file."""

    values: Annotated[
        list[str] | None,
        typer.Option(
            "--values",
            metavar="sr=8000,16000",
            help="All the values that an input may have; may be repeated.",
        ),
    ] = None
    value_range: Annotated[
        list[str] | None,
        typer.Option(
            "--range",
            metavar="x=0..1",
            help="The smallest and the largest value of an input; may be repeated.",
        ),
    ] = None
    avoid: Annotated[
        list[str] | None,
        typer.Option(
            "--avoid",
            metavar="ids=0,102",
            help="Values that an input never has, such as special tokens; may be repeated.",
        ),
    ] = None
    values_from: Annotated[
        str | None,
        typer.Option(
            "--values-from",
            metavar="FILE.npz",
            help="Draw the values of the inputs from these arrays, and stay within their range.",
        ),
    ] = None
    dim: Annotated[
        list[str] | None,
        typer.Option(
            "--dim",
            metavar="seq=1..512",
            help="Sizes of a named dim: 1..512, 8..512:8 in steps, 128,256, or total=past+seq; may be repeated.",
        ),
    ] = None

    def inputs(self) -> dict[str, Input]:
        """What was said of the values, by input."""
        said: dict[str, Input] = {}
        for name, numbers in _pairs("values", self.values, "sr=8000,16000"):
            _add(said, name, values=_numbers("values", numbers))
        for name, ends in _pairs("range", self.value_range, "x=0..1"):
            _add(said, name, range=_range(ends))
        for name, numbers in _pairs("avoid", self.avoid, "ids=0,102"):
            _add(said, name, avoid=_numbers("avoid", numbers))
        if self.values_from is not None:
            from pathlib import Path

            from onnxproof.numerics.array_files import read_arrays

            for name in read_arrays(Path(self.values_from)):
                _add(said, name, samples=self.values_from)
        return said

    def dims(self) -> dict[str, str]:
        """What was said of the sizes, by dim."""
        return parsing.dims(self.dim)

    def subject(self, words: str) -> Any:
        """The reference as the api takes it: its words, or a subject where more was said."""
        inputs, sizes = self.inputs(), self.dims()
        if not inputs and not sizes:
            return words
        from onnxproof.reference.subject import Subject

        return Subject(source=words, inputs=inputs, dims=sizes)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectOptions(InputOptions):
    """How the reference is built, beside what its inputs are."""

    weights: Annotated[
        str | None,
        typer.Option(
            "--weights",
            metavar="CKPT.pt",
            help="A checkpoint for the class or factory: .pt, .ckpt or .safetensors; CKPT.pt:ema names one dict of it.",
        ),
    ] = None
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="hidden=64",
            help="A keyword argument of the class or factory; may be repeated.",
        ),
    ] = None
    config: Annotated[
        str | None,
        typer.Option(
            "--config",
            metavar="FILE.yaml",
            help="Keyword arguments from YAML or JSON; FILE.yaml:model names a section.",
        ),
    ] = None
    declared: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="x:float32[2,3,224,224]",
            help="An input where there is no example: name, dtype and shape; may be repeated.",
        ),
    ] = None
    trust_remote_code: Annotated[
        bool,
        typer.Option(
            "--trust-remote-code",
            help="Run the code that a Hugging Face folder brings with it; refused otherwise.",
        ),
    ] = False

    def inputs(self) -> dict[str, Input]:
        """What was said of the inputs, in the order of `--input`."""
        said: dict[str, Input] = {}
        for words in self.declared or ():
            name, dtype, shape = _declared(words)
            _add(said, name, dtype=dtype, shape=shape)
        for name, rule in InputOptions.inputs(self).items():
            declared = said.get(name, Input())
            said[name] = replace(rule, dtype=declared.dtype, shape=declared.shape)
        return said

    def subject(self, words: str) -> Any:
        """The reference as the api takes it: its words, or a subject where more was said."""
        from onnxproof.reference.subject import Subject

        said = Subject(
            source=words,
            trust_remote_code=self.trust_remote_code,
            arguments=dict(_settings(self.settings)),
            config=self.config,
            weights=self.weights,
            inputs=self.inputs(),
            dims=self.dims(),
        )
        return words if said == Subject(source=words) else said


def _pairs(option: str, words: list[str] | None, example: str) -> list[tuple[str, str]]:
    pairs = []
    for word in words or ():
        name, equals, rest = word.partition("=")
        if not equals or not name.strip() or not rest.strip():
            raise UsageError(
                f"bad-{option}",
                f"`--{option} {word}` can't be understood",
                help=f"write the input and its values, such as `--{option} {example}`",
            )
        pairs.append((name.strip(), rest.strip()))
    return pairs


def _add(said: dict[str, Input], name: str, **what: Any) -> None:
    said[name] = replace(said.get(name, Input()), **what)


def _numbers(option: str, text: str) -> tuple[float, ...]:
    return tuple(_number(option, part.strip()) for part in text.split(",") if part.strip())


def _number(option: str, text: str) -> float:
    words = {"true": 1, "false": 0}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError as why:
        raise UsageError(
            f"bad-{option}", f"`{text}` of `--{option}` is no number", help="give numbers"
        ) from why


def _range(text: str) -> tuple[float | None, float | None]:
    low, dots, high = text.partition("..")
    if not dots:
        raise UsageError(
            "bad-range",
            f"`--range` can't be understood: `{text}`",
            help="write the smallest and the largest value, such as `--range x=0..1`",
        )
    ends = [_number("range", end.strip()) if end.strip() else None for end in (low, high)]
    return ends[0], ends[1]


def _declared(words: str) -> tuple[str, str, tuple[int, ...]]:
    """`x:float32[2,3]` as name, dtype and shape.

    >>> _declared("x:float32[n,3]"), _declared("sr:int64")
    (('x', 'float32', (3, 3)), ('sr', 'int64', ()))
    """
    match = _INPUT.fullmatch(words.strip())
    if match is None:
        raise UsageError(
            "bad-input",
            f"`--input {words}` can't be understood",
            help="write name:dtype[shape], such as `--input x:float32[2,3,224,224]`; a scalar is `--input sr:int64`",
        )
    sizes = [part.strip() for part in (match["shape"] or "").split(",") if part.strip()]
    return match["name"], match["dtype"], tuple(map(_size, sizes))


def _size(text: str) -> int:
    """A size; an open dim, which has a name, is a small one in the example."""
    return int(text) if text.isdigit() else _OPEN_SIZE


def _settings(words: list[str] | None) -> list[tuple[str, Any]]:
    return [(name, _value(text)) for name, text in _pairs("set", words, "hidden=64")]


def _value(text: str) -> Any:
    """A number, a truth value, nothing, a list or dict, or else the text itself.

    >>> [_value(word) for word in ("64", "1e-3", "true", "null", "[1, 2]", "relu")]
    [64, 0.001, True, None, [1, 2], 'relu']
    """
    plain = {"true": True, "false": False, "null": None, "none": None}
    if text.lower() in plain:
        return plain[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
