"""Export a PyTorch module to an ONNX file, then prove that the file says the same."""

from typing import TYPE_CHECKING, Annotated

import typer

from onnxproof.cli import _options as option
from onnxproof.cli._deliver import Delivery, deliver
from onnxproof.cli._progress import Report

if TYPE_CHECKING:
    from onnxproof.proof import Proof


@option.folded
def command(
    subject: Annotated[str, typer.Argument(help="What to export: file.py:factory, package.module:factory, .pt2, a Hugging Face folder.")],
    output: Annotated[str, typer.Option("--output", "-o", metavar="MODEL.onnx", help="Where the ONNX file goes.")],
    running: option.Running,
    judging: option.Judging,
    lock: option.Lock,
    where: Delivery,
    opset: Annotated[int | None, typer.Option("--opset", help="The opset of the file. [default: torch's own]")] = None,
    dynamic: option.Dynamic = None,
    no_explain: option.NoExplain = False,
) -> int:
    """`onnxproof.export` from the command line."""
    policy, arguments, lock, shapes = judging.policy(), running.arguments(), lock.checked(), option.dynamic_shapes(dynamic)

    def run(report: Report | None) -> "Proof":
        from onnxproof.exporter import export

        proof = export(subject, None, output, dynamic_shapes=shapes, opset=opset, policy=policy, explain=not no_explain, progress=report,
                       profile=option.profiled(lock, where.html), **arguments)
        return lock.apply(proof)

    return deliver(run, where)
