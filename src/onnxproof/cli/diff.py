"""Prove that two files match, one of them ONNX; PyTorch is not needed."""

from typing import TYPE_CHECKING, Annotated

import typer

from onnxproof.cli import _options as option
from onnxproof.cli._deliver import Delivery, bundled, deliver
from onnxproof.cli._progress import Report

if TYPE_CHECKING:
    from onnxproof.results.proof import Proof


@option.folded
def command(
    first: Annotated[
        str,
        typer.Argument(
            help="The reference: an ONNX file, or OpenVINO's own (.xml) or TensorFlow Lite's."
        ),
    ],
    second: Annotated[
        str, typer.Argument(help="The file that should match it; one of the two is an ONNX file.")
    ],
    running: option.Running,
    judging: option.Judging,
    lock: option.Lock,
    where: Delivery,
    declared: option.InputOptions,
    case: option.Only = None,
    no_explain: option.NoExplain = False,
    bundle: option.Bundle = None,
) -> int:
    """`onnxproof.diff` from the command line."""
    policy = judging.policy()
    arguments = running.arguments()
    lock = lock.checked()

    def run(report: Report | None) -> "Proof":
        from onnxproof.api import diff

        proof = diff(
            declared.subject(first),
            second,
            policy=policy,
            explain=not no_explain,
            only=tuple(case or ()),
            progress=report,
            profile=option.needs_profile(lock, where.html),
            **arguments,
        )
        return bundled(lock.apply(proof), bundle)

    return deliver(run, where)
