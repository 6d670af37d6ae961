"""Name the release that changed the answers of a model, and what changed in it."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onnxproof.cli import _options as option
from onnxproof.cli import _parsing as parsing
from onnxproof.errors import UsageError
from onnxproof.system.text import visible

if TYPE_CHECKING:
    from onnxproof.bisection.axes import Axis
    from onnxproof.reference.subject import Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class Searching:
    """Along what is searched."""

    versions: Annotated[
        str | None,
        typer.Option(
            "--versions",
            metavar="PACKAGE=LOW..HIGH",
            help="Releases of onnxruntime or torch: onnxruntime=1.20..1.31, or all by name: torch=2.9.0,2.10.0.",
        ),
    ] = None
    opsets: Annotated[
        str | None,
        typer.Option(
            "--opsets",
            metavar="LOW..HIGH",
            help="Opsets, such as 17..23: FILE is converted to each, or without FILE the SUBJECT is exported with each.",
        ),
    ] = None
    every: Annotated[
        bool,
        typer.Option("--every", help="Try each one, also between two that answer alike."),
    ] = False
    backend: Annotated[
        str,
        typer.Option(
            "--backend",
            "-b",
            metavar="NAME",
            help="The runtime; of releases of onnxruntime the level or provider, such as ort:basic.",
        ),
    ] = "ort"
    data: option.Data = None
    budget: Annotated[
        float,
        typer.Option(
            "--budget", metavar="SECONDS", help="For verifying each end, to find cases to ask."
        ),
    ] = 20.0
    seed: option.Seed = 0
    noise_limit: option.NoiseLimit = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Printing:
    """Where the result goes."""

    json: Annotated[
        str | None,
        typer.Option("--json", metavar="PATH", help="Write it as JSON; - is standard output."),
    ] = None
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No line for each trial.")] = False
    debug: option.Debug = False


@option.folded
def command(
    subject: Annotated[
        str,
        typer.Argument(help="The reference, as `verify` takes it; it may be the ONNX file itself."),
    ],
    searching: Searching,
    limits: option.Limits,
    loading: option.SubjectOptions,
    printing: Printing,
    model: Annotated[
        str | None,
        typer.Argument(help="The ONNX file; not needed where a file is made for each release."),
    ] = None,
) -> int:
    """Search between both ends; 0 when a change was found, 2 when both ends agree."""
    from onnxproof.api import load
    from onnxproof.bisection import words
    from onnxproof.bisection.bisect import Search
    from onnxproof.options import Policy, VerifyOptions
    from onnxproof.system import temporary, writing

    if printing.json is not None and printing.json != "-":
        writing.check(printing.json, what="the result")
    loaded = load(loading.subject(subject), Path(model or subject), data=searching.data)
    options = VerifyOptions(
        budget_s=parsing.positive_budget(searching.budget),
        seed=searching.seed,
        serving=limits.serving(),
        policy=parsing.policy(Policy(), noise_limit=searching.noise_limit),
        explain=False,
        loop=None,
    )
    with temporary.Folder() as folder:
        axis = _axis(searching, loaded, model, [subject, *_subject_words(loading)], folder)
        search = Search(
            subject=loaded,
            axis=axis,
            options=options,
            every=searching.every,
            tell=_tell_nothing if printing.quiet else _tell,
        )
        result = search.run()
    if printing.json != "-":
        sys.stdout.write("".join(f"{line}\n" for line in words.lines(result)))
    if printing.json is not None:
        _write(words.dumps(result), printing.json)
    return 0


def _axis(
    searching: Searching,
    subject: "Subject",
    model: str | None,
    typed: list[str],
    folder: Path,
) -> "Axis":
    from onnxproof.bisection import releases
    from onnxproof.bisection.axes import onnxruntime, opsets, torch

    if (searching.versions is None) == (searching.opsets is None):
        raise UsageError(
            "usage",
            "one of `--versions` and `--opsets` is needed",
            help="onnxproof bisect model.py:build model.onnx --versions onnxruntime=1.20..1.31",
        )
    if searching.opsets is not None:
        return opsets.Opsets(
            releases.parse_opsets(searching.opsets),
            subject,
            folder,
            file=None if model is None else Path(model),
            backend=searching.backend,
        )
    package, versions = releases.parse_versions(searching.versions or "")
    if package == "torch":
        _refuse_file(model, subject)
        points = releases.between(package, versions)
        return torch.Releases(points, typed, folder, searching.backend)
    if package != "onnxruntime":
        raise UsageError(
            "unknown-package",
            f"releases of `{package}` can't be tried",
            help="`--versions` takes onnxruntime and torch",
        )
    if model is None:
        raise UsageError(
            "usage", "FILE is needed", help="onnxproof bisect SUBJECT FILE --versions ..."
        )
    points = releases.between(package, versions)
    return onnxruntime.Releases(points, Path(model), searching.backend)


def _refuse_file(model: str | None, subject: "Subject") -> None:
    if model is not None or subject.onnx is not None:
        raise UsageError(
            "usage",
            "each torch exports a file of its own, so an ONNX file is not taken",
            help="onnxproof bisect model.py:build --versions torch=2.9..2.13",
        )


def _subject_words(loading: option.SubjectOptions) -> list[str]:
    """The options of the subject as they were typed, for a command line in another environment."""
    from dataclasses import fields
    from typing import get_type_hints

    hints = get_type_hints(option.SubjectOptions, include_extras=True)
    words: list[str] = []
    for field in fields(loading):
        value: Any = getattr(loading, field.name)
        declared = hints[field.name].__metadata__[0]
        name = next(iter(declared.param_decls or ()), declared.default)
        if value is True:
            words.append(name)
        elif isinstance(value, str):
            words += [name, value]
        for each in value if isinstance(value, list) else ():
            words += [name, each]
    return words


def _tell(words: str) -> None:
    sys.stderr.write(f"onnxproof: {visible(words)}\n")
    sys.stderr.flush()


def _tell_nothing(_: str) -> None:
    return None


def _write(text: str, path: str) -> None:
    from onnxproof.system.writing import write_text

    if path == "-":
        sys.stdout.write(text)
    else:
        write_text(text, path, what="the result")
