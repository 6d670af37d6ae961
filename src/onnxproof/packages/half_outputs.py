"""Outputs that a file in half precision gives in half: the next call and whoever chooses a token read them as numbers.

A single file whose output has another dtype is at best a DRIFT, since its user may not expect it. The files of a folder speak to each other and to a loader
that asks for their dtypes: where the whole loop is right, such an output is judged by its values, and a finding tells the dtype.
"""

from collections.abc import Sequence
from dataclasses import replace

from onnxproof.onnxmodel import onnx_file
from onnxproof.options import Policy
from onnxproof.packages.combining import ProvenComponent
from onnxproof.packages.rollouts import Rolled
from onnxproof.results import Finding, Gap, Status, judging


def judged_as_numbers(
    proven: Sequence[ProvenComponent], rolled: Sequence[Rolled], policy: Policy
) -> list[ProvenComponent]:
    """The files, with outputs in half precision judged by their values where every rollout is right."""
    if not rolled or any(one.rollout.first_bad_step is not None for one in rolled):
        return list(proven)
    return [_as_numbers(one, policy) for one in proven]


def _as_numbers(one: ProvenComponent, policy: Policy) -> ProvenComponent:
    file, proof = onnx_file.read(one.component.path), one.proof
    narrow = {port.name for port in file.outputs if port.dtype == file.half}
    told = {gap.output for gap in proof.gaps if _is_narrow(gap, narrow)}
    if not told or proof.error:
        return one
    gaps = tuple(_as_number(gap) if _is_narrow(gap, narrow) else gap for gap in proof.gaps)
    findings = (*proof.findings, _finding(sorted(told), str(file.half)))
    verdict = judging.judge(gaps, policy, notes=proof.notes, findings=findings)
    return replace(one, proof=replace(proof, gaps=gaps, findings=findings, verdict=verdict))


def _is_narrow(gap: Gap, narrow: set[str]) -> bool:
    return gap.status is Status.DTYPE and gap.output in narrow


def _as_number(gap: Gap) -> Gap:
    return replace(gap, status=Status.COMPARED, detail="")


def _finding(names: Sequence[str], half: str) -> Finding:
    shown = ", ".join(f"`{name}`" for name in names[:4])
    return Finding(
        code="half-outputs",
        what=f"{shown}{', ...' * (len(names) > 4)} are {half}, wider in the model; they are judged by their values",
        help="whoever reads them must take that dtype",
    )
