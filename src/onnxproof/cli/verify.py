"""Prove that an ONNX file matches a PyTorch module."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onnxproof.cli import _options as option
from onnxproof.cli import _parsing as parsing
from onnxproof.cli._deliver import Delivery, bundled, deliver
from onnxproof.cli._progress import Report
from onnxproof.cli._tracking_options import Tracking
from onnxproof.errors import UsageError

if TYPE_CHECKING:
    from onnxproof.results.proof import Proof


@option.folded
def command(
    running: option.Running,
    judging: option.Judging,
    lock: option.Lock,
    where: Delivery,
    loading: option.SubjectOptions,
    tracking: Tracking,
    subject: Annotated[
        str | None,
        typer.Argument(
            help="The reference: package.module:Class, file.py:factory, .pt2, TorchScript, .onnx, a Hugging Face folder."
        ),
    ] = None,
    model: Annotated[str | None, typer.Argument(help="The ONNX file, or a folder of them.")] = None,
    case: option.Only = None,
    dynamic: option.Dynamic = None,
    stored: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="PROOF.json", help="Judge a stored proof again; nothing is run."
        ),
    ] = None,
    pipeline: option.Pipeline = None,
    target: option.Target = None,
    evaluate: Annotated[
        str | None,
        typer.Option(
            "--evaluate",
            metavar="EVAL.py:metric",
            help="A function of predict with one score a sample: a drop that the samples tell from chance fails.",
        ),
    ] = None,
    no_explain: option.NoExplain = False,
    bundle: option.Bundle = None,
) -> int:
    """`onnxproof.verify` from the command line, or a stored proof judged again."""
    lock = lock.checked()
    tracking.check()
    if stored is not None:
        _refuse_subject(subject)
        return tracking.log(
            lambda keep: deliver(
                lambda _: keep(lock.apply(_judge_again(Path(stored), judging))), where
            )
        )
    if subject is None or model is None:
        raise UsageError(
            "usage",
            "SUBJECT and MODEL are needed",
            help="onnxproof verify model.py:build model.onnx",
        )
    policy = judging.policy()
    shapes = parsing.dynamic_shapes(dynamic, sums=True)
    arguments = running.arguments()

    def run(report: Report | None) -> "Proof":
        from onnxproof.api import verify

        proof = verify(
            loading.subject(subject),
            model,
            dynamic_shapes=shapes,
            policy=policy,
            explain=not no_explain,
            only=tuple(case or ()),
            progress=report,
            profile=option.needs_profile(lock, where.html),
            pipeline=pipeline,
            target=target or "",
            evaluate=evaluate,
            **arguments,
        )
        return bundled(lock.apply(proof), bundle)

    return tracking.log(lambda keep: deliver(lambda report: keep(run(report)), where))


def _refuse_subject(subject: str | None) -> None:
    if subject is not None:
        raise UsageError(
            "usage",
            "`--from` judges a stored proof, so it takes no SUBJECT and no MODEL",
            help="onnxproof verify --from proof.json --strict",
        )


def _judge_again(path: Path, judging: option.Judging) -> "Proof":
    from onnxproof.report.writers import json

    proof = json.read(path)
    return proof.judged(judging.policy(proof.policy))
