"""Prove a model on the runtimes of this machine by the cases of a bundle; PyTorch is not needed."""

from typing import TYPE_CHECKING, Annotated

import typer

from onnxproof.cli import _options as option
from onnxproof.cli import _serving_page as page
from onnxproof.cli._deliver import Delivery, deliver
from onnxproof.cli._progress import Report
from onnxproof.options import ReplayKeywords

if TYPE_CHECKING:
    from onnxproof.results.proof import Proof


@option.folded
def command(
    bundle: Annotated[str, typer.Argument(help="What `onnxproof bundle` wrote.")],
    limits: option.Limits,
    judging: option.Judging,
    lock: option.Lock,
    where: Delivery,
    serving_page: page.Page,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="PATH",
            help="The ONNX file. [default: the one in the bundle, or the one of its name beside it]",
        ),
    ] = None,
    backend: option.Backend = None,
    case: option.Only = None,
    allow_other_model: Annotated[
        bool,
        typer.Option(
            "--allow-other-model",
            help="Replay a file with another hash, too; the proof says so.",
        ),
    ] = False,
    verify: Annotated[
        str | None,
        typer.Option(
            "--verify", metavar="PUB.pem", help="Refuse a bundle that this public key did not sign."
        ),
    ] = None,
) -> int:
    """`onnxproof.replay` from the command line."""
    lock = lock.checked()
    serving = limits.serving()
    listening = serving_page.listening(backend)

    def run(report: Report | None) -> "Proof":
        from onnxproof.api import replay, serve_replay

        options = ReplayKeywords(
            model=model,
            policy=judging.policy,
            only=tuple(case or ()),
            serving=serving,
            allow_other_model=allow_other_model,
            verify=verify,
        )
        if listening is not None:
            show = page.announcer(listening)
            proof = serve_replay(bundle, listening, show, report, **options)
        else:
            options["backends"] = tuple(backend or ("ort",))
            proof = replay(bundle, progress=report, **options)
        return lock.apply(proof)

    return deliver(run, where)
