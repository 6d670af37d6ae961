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

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import onnx

from onnxproof.diagnosis.counterfactuals.workbench import Array, Tried, Workbench
from onnxproof.diagnosis.judge import Counterfactual
from onnxproof.diagnosis.trial_cases import TrialCase
from onnxproof.errors import OnnxproofError
from onnxproof.results import Cause, Finding
from onnxproof.runtimes import ort, parse
from onnxproof.runtimes.session.execution import Candidate, Clock

TITLE = "nodes silently ran elsewhere"
PRICE = 0
CODES = ("provider-fallback", "kernel")
_CODE = "provider-fallback"


def test(workbench: Workbench) -> Tried | str:
    """Ask the CPU alone, where the backend reported that its nodes run elsewhere, or on a provider."""
    backend = workbench.scene.backend
    elsewhere = _reports(workbench, _CODE)
    placed = _reports(workbench, "placement")
    if not elsewhere and not placed:
        return "no other provider was asked for"
    cpu = f"ort:{_optimization_level(backend)}"
    on_backend = _OnBackend(
        workbench.scene,
        workbench.located,
        cases=workbench.cases,
        policy=workbench.policy,
        deadline=workbench.deadline,
    )
    tried = on_backend.try_counterfactual(
        Counterfactual(error=partial(_backend_error, workbench, cpu), in_reference=False),
        f"{'; '.join(elsewhere or placed)}; the same file on the CPU alone is right",
        before=on_backend.before,
        code=_CODE if elsewhere else "kernel",
    )
    return tried or f"the CPU alone differs, too; {(elsewhere or placed)[0]}"


class _OnBackend(Workbench):
    """A workbench whose candidate runs on the backend that showed the fault: on the CPU there may be none to explain."""

    def run(
        self,
        model: onnx.ModelProto | None = None,
        *,
        inputs: Any = None,
        disabled: tuple[str, ...] = (),
    ) -> list[Array | None] | None:
        """The outputs of the file as it is; a changed graph is not run there."""
        if model is not None or disabled:
            return super().run(model, inputs=inputs, disabled=disabled)
        if inputs is None:
            inputs = self.scene.case.inputs
        return _backend_outputs(self, self.scene.backend, inputs)


def _reports(workbench: Workbench, code: str) -> list[str]:
    """What was found under a code about the backend that showed the fault."""
    prefix = f"{workbench.scene.backend}: "
    return [
        finding.what
        for finding in workbench.findings
        if finding.code == code and finding.what.startswith(prefix)
    ]


def _optimization_level(backend: str) -> str:
    name, option = parse(backend)
    if name != "ort":
        return "all"
    return ort.parse(option).level


def _backend_error(workbench: Workbench, backend: str, case: TrialCase) -> float:
    """How far a backend is from the truth of a case."""
    return case.scene.error(_backend_outputs(workbench, backend, case.inputs))


def _backend_outputs(
    workbench: Workbench, backend: str, inputs: Mapping[str, Array]
) -> list[Array | None] | None:
    """What a backend answers; None where it refuses."""
    scene = workbench.scene
    try:
        candidate = Candidate(backend, scene.path, scene.signature, Clock())
        outputs = candidate.run(inputs)
        candidate.close()
    except OnnxproofError:
        return None
    return outputs


def refusal_causes(findings: Iterable[Finding]) -> Iterator[Cause]:
    """The cause where nothing was compared: a fallback that was not accepted decides the verdict, and the runtime's record of it is the proof."""
    for finding in findings:
        if finding.code == _CODE and finding.counts:
            yield Cause(code=_CODE, title=TITLE, proven=True, evidence=finding.what)
