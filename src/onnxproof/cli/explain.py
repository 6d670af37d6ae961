"""Say where an ONNX file goes wrong and why; write a repro, a mended file, an overlay for a viewer."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onnxproof import registry
from onnxproof.cli import _options as option
from onnxproof.cli._deliver import Delivery, deliver, exit_code, write_files
from onnxproof.cli._dispatch import ERROR
from onnxproof.cli._progress import Report
from onnxproof.diagnosis.causes import page_code, pages
from onnxproof.errors import OnnxproofError, UsageError
from onnxproof.results import Verdict
from onnxproof.system import writing
from onnxproof.system.text import lines, visible

if TYPE_CHECKING:
    from onnxproof.results.proof import Proof
    from onnxproof.verification.run import Run


@option.folded
def command(
    running: option.Running,
    judging: option.Judging,
    where: Delivery,
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
    trust_remote_code: option.TrustRemoteCode = False,
) -> int:
    """Verify and explain; the exit code is that of `verify`, and 2 when something that was asked for could not be written."""
    if causes:
        sys.stdout.write("".join(f"{code:<18}{title}\n" for code, (title, _) in pages().items()))
        return 0
    if cause is not None:
        sys.stdout.write(_page(cause) + "\n")
        return 0
    if subject is not None and model is None and subject.endswith(".json"):
        if repro or fix:
            raise UsageError(
                "usage",
                "a stored proof holds no tensors: a repro or a fix needs the models",
                help="onnxproof explain SUBJECT MODEL --repro DIR",
            )
        return _stored(Path(subject), overlay, where)
    if subject is None or model is None:
        raise UsageError(
            "usage",
            "SUBJECT and MODEL are needed, or a stored proof",
            help="onnxproof explain model.py:build model.onnx, or onnxproof explain proof.json",
        )
    _check_output(fix, output, subject, model)
    if overlay is not None:
        writing.check(overlay, what="the overlay")
    policy, shapes, arguments = (
        judging.policy(),
        option.dynamic_shapes(dynamic),
        running.arguments(),
    )
    serving = arguments.pop("serving")
    extras = _Extras()

    def run(report: Report | None) -> "Proof":
        from onnxproof.runtimes import served

        with served(serving):
            return examine(report)

    def examine(report: Report | None) -> "Proof":
        source = option.reference(subject, trust_remote_code=trust_remote_code)
        proof, found = _examine(
            source,
            model,
            report,
            dynamic_shapes=shapes,
            calibration=calibration,
            policy=policy,
            only=tuple(case or ()),
            **arguments,
        )
        if proof.location is None and (repro or fix or overlay):
            why = (
                "the file is faithful"
                if proof.verdict is Verdict.FAITHFUL
                else "nothing was located"
            )
            extras.said.append(f"{why}: there is nothing to write")
            return proof
        if overlay is not None:
            extras.do(lambda: _overlay(proof, overlay))
        if repro is not None:
            extras.do(lambda: f"repro: {proof.write_repro(repro)}")
        if fix and output is not None:
            extras.do(lambda: _mend(proof, found, Path(output)))
        return proof

    code = deliver(run, where)
    (sys.stderr if where.to_stdout else sys.stdout).write(
        "".join(f"{lines(words)}\n" for words in extras.said)
    )
    sys.stderr.write("".join(f"{words}\n" for words in extras.failed))
    return ERROR if extras.failed else code


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


def _examine(
    subject: Any,
    model: str,
    report: Report | None,
    *,
    dynamic_shapes: Any,
    data: str | None,
    calibration: str | None,
    **options: Any,
) -> "tuple[Proof, Run]":
    """As `verify` does, keeping the run for whoever mends."""
    from onnxproof.reference import subject as subjects
    from onnxproof.verification.run import Run, _explained

    found = subjects.load(subject, None, dynamic_shapes=dynamic_shapes, data=data)
    run = Run(
        found,
        Path(model),
        options.pop("backends"),
        options.pop("policy"),
        progress=report,
        explained=True,
        **options,
    )
    run.calibration = calibration
    proof = run.prove()
    if calibration is not None and run.file.quantized:
        from onnxproof.quantization.calibration import data_trust

        proof = data_trust.doubted(
            proof, data_trust.weighed(data_trust.given(found, calibration), proof, found)
        )
    if proof.verdict in (Verdict.DRIFT, Verdict.DIVERGED) or run.noted is not None:
        proof = _explained(proof, run)
    return proof, run


def _mend(proof: "Proof", run: "Run", output: Path) -> str:
    """Write the mended file if it is worth it, and say in either case what came of it."""
    import onnx

    from onnxproof.diagnosis.remedy import mend

    done = mend(run, proof)
    found = "".join(f"\n  removed {cause.code}: {cause.evidence}" for cause in done.causes)
    if done.options and done.model is None:
        return f"fix: nothing is wrong with the file; open the session with disabled_optimizers={list(done.options)}: tried, {done.verdict.value}{found}"
    if done.model is None:
        return "fix: no proven cause has a remedy that a graph can carry; nothing was written"
    ratios = f"{_ratio(proof)} before, {_ratio(done.proof)} now"
    if done.verdict is not Verdict.FAITHFUL and not done.better:
        return f"fix: the remedy was tried and the file is still {done.verdict.value} ({ratios}); nothing was written{found}"
    with writing.replacing(output, what="the mended file") as draft:
        onnx.save(done.model, draft)
    word = (
        "verified from scratch: faithful"
        if done.verdict is Verdict.FAITHFUL
        else f"better than before, but still {done.verdict.value}"
    )
    return f"fix: {output} is {word} ({ratios}){found}"


def _ratio(proof: "Proof") -> str:
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


def _stored(path: Path, overlay: str | None, where: Delivery) -> int:
    from onnxproof.report import terminal
    from onnxproof.report.writers import json

    where.checked()
    proof = json.read(path)
    terminal.explain(proof, terminal.console(stderr=where.to_stdout))
    write_files(proof, where)
    if overlay is not None:
        sys.stdout.write(visible(_overlay(proof, overlay)) + "\n")
    return exit_code(proof)


def _page(code: str) -> str:
    """The page of a cause; a code that another file's hypothesis gives is told there."""
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
