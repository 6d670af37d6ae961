"""Say where an ONNX file goes wrong and why; write a repro, a mended file, an overlay for a viewer."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onnxproof import registry
from onnxproof.cli import _options as option
from onnxproof.cli import _parsing as parsing
from onnxproof.cli._deliver import Delivery, deliver, exit_code, write_files
from onnxproof.cli._dispatch import ERROR
from onnxproof.cli._progress import Report
from onnxproof.errors import OnnxproofError, UsageError
from onnxproof.results import Verdict
from onnxproof.system import writing
from onnxproof.system.text import lines, visible

if TYPE_CHECKING:
    from onnxproof.examination import Examination
    from onnxproof.results.proof import Proof


@option.folded
def command(
    running: option.Running,
    judging: option.Judging,
    where: Delivery,
    loading: option.SubjectOptions,
    subject: Annotated[
        str | None,
        typer.Argument(
            help="The reference, as `verify` takes it; or a stored proof.json, which is told and not run."
        ),
    ] = None,
    model: Annotated[str | None, typer.Argument(help="The ONNX file.")] = None,
    repro: Annotated[
        str | None,
        typer.Option(
            "--repro",
            metavar="DIR",
            help="Write the smallest sub-model that shows the fault, with a script and a bug report.",
        ),
    ] = None,
    fix: Annotated[
        bool,
        typer.Option(
            "--fix",
            help="Apply the proven cause's remedy, verify the result, and write it to -o if it is faithful or better.",
        ),
    ] = False,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FIXED.onnx",
            help="Where the mended file goes; never the file itself.",
        ),
    ] = None,
    overlay: Annotated[
        str | None,
        typer.Option(
            "--overlay",
            metavar="FILE",
            help="Write the nodes' noise ratios as Model Explorer's node data.",
        ),
    ] = None,
    cause: Annotated[
        str | None, typer.Option("--cause", metavar="CODE", help="Print the page of one cause.")
    ] = None,
    causes: Annotated[
        bool, typer.Option("--causes", help="List the causes that are tried.")
    ] = False,
    calibration: Annotated[
        str | None,
        typer.Option(
            "--calibration",
            metavar="PATH",
            help="What a quantized model was calibrated on, to say how it differs from the data.",
        ),
    ] = None,
    case: option.Only = None,
    dynamic: option.Dynamic = None,
) -> int:
    """Verify and explain; the exit code is that of `verify`, and 2 when something that was asked for could not be written."""
    if causes or cause is not None:
        sys.stdout.write(_page(cause) + "\n" if cause is not None else _list_of_causes())
        return 0
    if subject is not None and model is None and subject.endswith(".json"):
        return _stored(Path(subject), overlay, where, needs_models=bool(repro or fix))
    if subject is None or model is None:
        raise UsageError(
            "usage",
            "SUBJECT and MODEL are needed, or a stored proof",
            help="onnxproof explain model.py:build model.onnx, or onnxproof explain proof.json",
        )
    _check_output(fix, output, subject, model)
    if overlay is not None:
        writing.check(overlay, what="the overlay")
    wanted = _Wanted(overlay=overlay, repro=repro, mended=output if fix else None)
    extras = _Extras()
    shapes, arguments = parsing.dynamic_shapes(dynamic, sums=True), running.arguments()
    data = arguments.pop("data")
    keywords = {"policy": judging.policy(), "only": tuple(case or ()), **arguments}

    def run(report: Report | None) -> "Proof":
        from onnxproof import api
        from onnxproof.examination import examine
        from onnxproof.options import VerifyOptions

        options = VerifyOptions.of(keywords)
        loaded = api.load(loading.subject(subject), Path(model), dynamic_shapes=shapes, data=data)
        examined = examine(loaded, Path(model), options, report, calibration)
        wanted.write(examined, extras)
        return examined.proof

    code = deliver(run, where)
    stream = sys.stderr if where.to_stdout else sys.stdout
    stream.write("".join(f"{lines(words)}\n" for words in extras.said))
    sys.stderr.write("".join(f"{words}\n" for words in extras.failed))
    return ERROR if extras.failed else code


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """What is to be written beside the report."""

    overlay: str | None
    repro: str | None
    mended: str | None

    def write(self, examined: "Examination", extras: "_Extras") -> None:
        """Write each; where nothing was located there is nothing to write, unless a sound file can be made to run as integers."""
        proof, mended = examined.proof, self.mended
        if proof.location is not None:
            self._write_where(proof, extras)
        elif examined.regained is None and (self.overlay or self.repro or mended):
            why = "nothing was located"
            if proof.verdict is Verdict.FAITHFUL:
                why = "the file is faithful"
            extras.said.append(f"{why}: there is nothing to write")
            return
        if mended is not None:
            extras.do(lambda: _mend(examined, mended))

    def _write_where(self, proof: "Proof", extras: "_Extras") -> None:
        """What shows the place."""
        overlay, repro = self.overlay, self.repro
        if overlay is not None:
            extras.do(lambda: _overlay(proof, overlay))
        if repro is not None:
            extras.do(lambda: f"repro: {proof.write_repro(repro)}")


class _Extras:
    """What was written besides the report, and what could not be: said after the report, whose verdict it does not touch."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.failed: list[str] = []

    def do(self, work: Callable[[], str]) -> None:
        """Do one thing and keep its words."""
        try:
            self.said.append(work())
        except OnnxproofError as why:
            self.failed.append(why.render())


def _mend(examined: "Examination", output: str) -> str:
    """Write the mended file if it is worth it, and say in either case what came of it."""
    mended = examined.mend(output)
    removed = "".join(f"\n  removed {cause.code}: {cause.evidence}" for cause in mended.causes)
    if mended.options and mended.model is None:
        return f"fix: nothing is wrong with the file; open the session with disabled_optimizers={list(mended.options)}: tried, {mended.verdict.value}{removed}"
    if mended.model is None:
        return "fix: no proven cause has a remedy that a graph can carry; nothing was written"
    ratios = f"{_ratio(examined.proof)} before, {_ratio(mended.proof)} now"
    if mended.path is None:
        return f"fix: the remedy was tried and the file is still {mended.verdict.value} ({ratios}); nothing was written{removed}"
    word = f"better than before, but still {mended.verdict.value}"
    if mended.verdict is Verdict.FAITHFUL:
        word = "verified from scratch: faithful"
    return f"fix: {output} is {word} ({ratios}){removed}"


def _ratio(proof: "Proof") -> str:
    """How near the file is: decibels of a quantized one, else multiples of the noise."""
    level = proof.quality()
    if level is not None:
        from onnxproof.results.judging import level_words

        return level_words(level)
    worst = proof.worst
    return f"{worst.noise_ratio:,.1f} times the noise" if worst is not None else "nothing compared"


def _overlay(proof: "Proof", path: str) -> str:
    from onnxproof.report import overlay

    overlay.write(proof, path)
    return f"overlay: {path} (Model Explorer: upload it as custom node data)"


def _check_output(fix: bool, output: str | None, subject: str, model: str) -> None:
    if fix != (output is not None):
        raise UsageError(
            "usage",
            "`--fix` and `-o` go together",
            help="onnxproof explain SUBJECT MODEL --fix -o fixed.onnx",
        )
    if output is not None and any(
        Path(output).resolve() == Path(path).resolve() for path in (subject, model)
    ):
        raise UsageError(
            "would-overwrite",
            f"`{output}` is the file that is being explained, and it is never written over",
            help="give another name to -o",
        )
    if output is not None:
        writing.check(output, what="the mended file", regular=True)


def _stored(path: Path, overlay: str | None, where: Delivery, *, needs_models: bool) -> int:
    if needs_models:
        raise UsageError(
            "usage",
            "a stored proof holds no tensors: a repro or a fix needs the models",
            help="onnxproof explain SUBJECT MODEL --repro DIR",
        )
    from onnxproof.report import terminal
    from onnxproof.report.writers import json

    where.checked()
    proof = json.read(path)
    terminal.explain(proof, terminal.console(stderr=where.to_stdout))
    write_files(proof, where)
    if overlay is not None:
        sys.stdout.write(visible(_overlay(proof, overlay)) + "\n")
    return exit_code(proof)


def _list_of_causes() -> str:
    from onnxproof.diagnosis.causes import pages

    return "".join(f"{code:<18}{title}\n" for code, (title, _) in pages().items())


def _page(code: str) -> str:
    """The page of a cause; a code that another file's hypothesis gives is told there."""
    from onnxproof.diagnosis.causes import page_code, pages

    known = pages()
    home = page_code(code)
    if home in known:
        return known[home][1]
    import difflib

    for point in registry.points("onnxproof.causes"):
        if point.name == code:
            return (point.load().__doc__ or "").strip()
    near = difflib.get_close_matches(code, known, n=1)
    raise UsageError(
        "unknown-cause",
        f"there is no cause `{code}`",
        notes=[f"causes are {', '.join(known)}"],
        help=f"did you mean `{near[0]}`?" if near else "`onnxproof explain --causes` lists them",
    )
