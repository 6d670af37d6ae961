"""Nodes silently ran elsewhere than on the provider that was asked for.

What it is: a session was opened for one execution provider, and some nodes, or all of them, run on another one. Either that
is what was refused, or it is what was accepted with `--allow-fallback` and its answers differ, where those of the CPU alone do not.

Why it happens: the provider lacks an operator, a type or an opset, its library could not be loaded, or the build of the
runtime does not have it. ONNX Runtime then logs a line and goes on; `get_providers()` tells what was registered, not what runs.

How to see it: the runtime's own record of where it placed each node (`onnxproof verify --backend ort:cuda`); the same file on
the CPU alone gives other answers.

How to fix it: mend the set-up of the provider, export so that it takes all nodes (another opset, no dynamic dims where it wants
fixed ones), or serve on the CPU alone. Verify on what will serve.

Example: a CUDA library of another version is found, and everything runs on the CPU, ten times slower, and without half precision.
"""

from collections.abc import Iterable, Iterator

from onnxproof.backends import ort, parse
from onnxproof.causes._workbench import Array, Tried, Workbench
from onnxproof.errors import OnnxproofError
from onnxproof.execute import Candidate, Clock
from onnxproof.locate._match import relative
from onnxproof.types import Cause, Finding

TITLE = "nodes silently ran elsewhere"
PRICE = 0
_CODE = "provider-fallback"


def test(bench: Workbench) -> Tried | str:
    """Ask the backend where its nodes run, then the CPU alone."""
    try:
        served = Candidate(bench.scene.backend, bench.scene.path, bench.scene.signature, Clock())
    except OnnxproofError:
        return "the backend can't be asked again"
    placed = [finding.what for finding in served.findings() if finding.code in (_CODE, "placement")]
    elsewhere = [finding.what for finding in served.findings() if finding.code == _CODE]
    if not placed:
        served.close()
        return "no other provider was asked for"
    name, option = parse(bench.scene.backend)
    alone = Candidate("ort", bench.scene.path, bench.scene.signature, Clock(), session=ort.open(bench.scene.path, ort.parse(option).level if name == "ort" else ""))
    before, after = _far(bench, served), _far(bench, alone)
    if after > bench.limit or not after < before / 5:
        return f"the CPU alone differs, too; {placed[0]}"
    said = f"the same file on the CPU alone is right, on `{bench.scene.backend}` it is not; {'; '.join(elsewhere or placed)}"
    return Tried(proven=True, before=before, after=after, evidence=said, by_reference=True, code=_CODE if elsewhere else "kernel")


def _far(bench: Workbench, candidate: Candidate) -> float:
    try:
        found: list[Array | None] = candidate.run(bench.scene.case.inputs)
    except OnnxproofError:
        return float("inf")
    finally:
        candidate.close()
    return max((relative(f, t) for f, t in zip(found, bench.scene.truth, strict=True)), default=0.0)


def refused(findings: Iterable[Finding]) -> Iterator[Cause]:
    """The cause where nothing was compared: a fallback that was not accepted decides the verdict, and the runtime's record of it is the proof."""
    for finding in findings:
        if finding.code == _CODE and finding.counts:
            yield Cause(code=_CODE, title=TITLE, proven=True, evidence=finding.what)


