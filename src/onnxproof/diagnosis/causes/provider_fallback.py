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

from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench
from onnxproof.errors import OnnxproofError
from onnxproof.results import Cause, Finding
from onnxproof.runtimes import ort, parse
from onnxproof.runtimes.session.execution import Candidate, Clock

TITLE = "nodes silently ran elsewhere"
PRICE = 0
_CODE = "provider-fallback"


def test(bench: Workbench) -> Tried | str:
    """Ask the CPU alone, where the backend told that its nodes run elsewhere, or on a provider."""
    backend = bench.scene.backend
    mine = [finding for finding in bench.findings if finding.what.startswith(f"{backend}: ")]
    elsewhere = [finding.what for finding in mine if finding.code == _CODE]
    placed = [finding.what for finding in mine if finding.code == "placement"]
    if not elsewhere and not placed:
        return "no other provider was asked for"
    before, after = _far(bench, backend), _far(bench, f"ort:{_level(backend)}")
    if after > bench.limit or not after < before / 5:
        return f"the CPU alone differs, too; {(elsewhere or placed)[0]}"
    return Tried(
        proven=True,
        before=before,
        after=after,
        by_reference=True,
        code=_CODE if elsewhere else "kernel",
        evidence=f"the same file on the CPU alone is right, on `{backend}` it is not; {'; '.join(elsewhere or placed)}",
    )


def _level(backend: str) -> str:
    name, option = parse(backend)
    return ort.parse(option).level if name == "ort" else "all"


def _far(bench: Workbench, backend: str) -> float:
    """How far a backend is from the truth."""
    try:
        candidate = Candidate(backend, bench.scene.path, bench.scene.signature, Clock())
        found = candidate.run(bench.scene.case.inputs)
        candidate.close()
    except OnnxproofError:
        return float("inf")
    return bench.scene.error(found)


def refused(findings: Iterable[Finding]) -> Iterator[Cause]:
    """The cause where nothing was compared: a fallback that was not accepted decides the verdict, and the runtime's record of it is the proof."""
    for finding in findings:
        if finding.code == _CODE and finding.counts:
            yield Cause(code=_CODE, title=TITLE, proven=True, evidence=finding.what)
