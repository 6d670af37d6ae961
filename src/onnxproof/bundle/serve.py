"""Replay a bundle in a visitor's browser: it runs the cases, and what it answers is measured and judged here.

1. Check the bundle, its model and that onnxruntime-web is there: all that can be refused is refused before anybody waits.
2. Serve the page under an address that nobody can guess, and wait for a visitor who starts it.
3. Every answer of the page is an answer of a session: `Replay` measures and judges it as any runtime's.
4. The page is told the verdict, and the server ends.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from onnxproof.bundle import signing
from onnxproof.bundle.browser_files import Files
from onnxproof.bundle.browser_server import PageServer, Start
from onnxproof.bundle.manifest import BundleError
from onnxproof.bundle.read import open_bundle
from onnxproof.bundle.replay import Replay, model_of
from onnxproof.errors import OnnxproofError
from onnxproof.onnxmodel import onnx_file
from onnxproof.options import Listening, ReplayOptions, Serving
from onnxproof.results import Finding
from onnxproof.results.proof import Proof
from onnxproof.runtimes import use_serving
from onnxproof.runtimes.javascript import node
from onnxproof.verification.progress import Report

PACKAGE = "onnxruntime-web"


def serve(
    path: Path,
    options: ReplayOptions,
    listening: Listening,
    announce: Callable[[str], None],
    progress: Report | None = None,
) -> Proof:
    """The proof of the model in the browser that opens the address, which `announce` gets.

    Raises:
        BundleError: `no-visitor` when nobody starts it in time, `page-gone` when the page stops answering.
    """
    package = node.require_package(PACKAGE, "ort-web")
    serving = options.serving or Serving()
    with open_bundle(path) as bundle, use_serving(options.serving):
        if options.verify is not None:
            signing.check(bundle, options.verify)
        with model_of(bundle, options.model) as model:
            replay = Replay(bundle, model, options, progress)
            files = Files(
                bundle=bundle,
                runtime=package / "dist",
                model=model,
                other=replay.other_model,
                external=tuple(onnx_file.external_names(model)),
                only=options.only,
                threads=serving.threads or 0,
            )
            with PageServer(files, listening.host, listening.port, serving) as server:
                announce(server.address)
                start = server.wait_for_start(listening.wait_s)
                return _judge(replay, server, start, node.version(PACKAGE))


def _judge(replay: Replay, server: PageServer, start: Start, version: str) -> Proof:
    """Steps 3 and 4."""
    started = time.monotonic()
    try:
        proof = replay.run(start.backends, server.open)
        proof = _with_page(proof, start, version)
        claim = server.wait_for_claim()
        if claim.verdict not in ("", proof.verdict.value):
            proof = replace(proof, findings=(*proof.findings, _disagreement(proof, claim.verdict)))
    except BundleError:  # the page is gone: there is nobody to tell
        raise
    except OnnxproofError as why:
        server.answer(error=why.what)
        raise
    seconds = time.monotonic() - started
    named = replace(
        proof, candidate=Path(proof.candidate).name
    )  # a visitor need not know our folders
    server.answer(verdict=proof.verdict.value, sentence=named.sentence(), seconds=seconds)
    return proof


def _with_page(proof: Proof, start: Start, version: str) -> Proof:
    """The proof with what the visitor's browser says of itself: that is the machine that was proven."""
    about = {f"browser {name}": value for name, value in start.about.items()}
    about["onnxruntime-web"] = version
    return replace(proof, environment={**proof.environment, **about})


def _disagreement(proof: Proof, claimed: str) -> Finding:
    return Finding(
        code="page-disagrees",
        what=f"the page judged {claimed}, and its answers, measured here, are {proof.verdict.value}",
        help="what was measured here counts",
    )
