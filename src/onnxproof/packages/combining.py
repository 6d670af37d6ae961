"""One proof of a whole folder, from the proofs of its files and from its rollouts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from onnxproof.options import VerifyOptions
from onnxproof.packages.package import Component, Package
from onnxproof.packages.rollouts import Rolled
from onnxproof.results import Cause, Finding, Gap, Location, Note, Part, Stage, Verdict, judging
from onnxproof.results.proof import Proof

BAD = (Verdict.DRIFT, Verdict.DIVERGED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvenComponent:
    """A file and what was proven of it alone."""

    component: Component
    proof: Proof
    judged: bool = True
    """False where it keeps its cache in a layout of its own."""

    @property
    def bad(self) -> bool:
        """Whether it differs from the part of the reference that it is meant to be."""
        return self.judged and self.proof.verdict in BAD

    def part(self) -> Part:
        """Its line in the proof of the whole."""
        return Part(
            file=self.component.file,
            role=self.component.role.value,
            verdict=self.proof.verdict,
            sentence=self.proof.sentence(),
            cases=len({gap.case for gap in self.proof.gaps}),
            judged=self.judged,
        )


def combine(
    package: Package,
    subject: str,
    origin: str,
    proven: Sequence[ProvenComponent],
    rolled: Sequence[Rolled],
    options: VerifyOptions,
    *,
    findings: Sequence[Finding] = (),
    tokenizer: str | None = None,
) -> Proof:
    """The worst of all decides; the first file that is wrong by itself is the guilty one, then the loop's, then `tokenizer`."""
    main = _main(proven)
    gaps = [gap for one in proven for gap in _gaps(one)]
    gaps += [one.gap for one in rolled if one.gap is not None]
    notes = [note for one in proven for note in _notes(one)]
    every_finding = (*findings, *_all_findings(proven, rolled))
    error = next((one.proof.error for one in proven if one.judged and one.proof.error), "")
    verdict = judging.judge(gaps, options.policy, notes=notes, findings=every_finding)
    whole = replace(
        main.proof,
        verdict=Verdict.ERROR if error else verdict,
        error=error,
        subject=subject,
        candidate=str(package.folder),
        gaps=tuple(gaps),
        notes=tuple(notes),
        findings=every_finding,
        location=_location(proven, rolled, tokenizer),
        causes=_causes(main),
        rollouts=tuple(one.rollout for one in rolled),
        budget_s=options.budget_s,
        chosen=options.only,
    )
    whole = _with_parts(whole, proven)
    return replace(whole, replay=_replay(whole, origin))


def _with_parts(whole: Proof, proven: Sequence[ProvenComponent]) -> Proof:
    """The proof with what each file was asked, under the file's name, and with what all of them took."""
    return replace(
        whole,
        parts=tuple(one.part() for one in proven),
        sizes={
            _case(one.component, case): sizes
            for one in proven
            for case, sizes in one.proof.sizes.items()
        },
        dropped=tuple(
            replace(dropped, case=_case(one.component, dropped.case))
            for one in proven
            for dropped in one.proof.dropped
        ),
        complete=all(one.proof.complete for one in proven),
        hashes={one.component.file: hash for one in proven for hash in _hash(one.proof)},
        seconds=_summed(proven, "seconds"),
        passes={name: int(count) for name, count in _summed(proven, "passes").items()},
    )


def _notes(one: ProvenComponent) -> list[Note]:
    return [replace(note, case=_case(one.component, note.case)) for note in one.proof.notes]


def _main(proven: Sequence[ProvenComponent]) -> ProvenComponent:
    """The file whose details the whole shows: the first that is wrong, or the last one."""
    return next((one for one in proven if one.bad), proven[-1])


def _gaps(one: ProvenComponent) -> list[Gap]:
    if not one.judged:
        return []
    part = one.component
    return [
        replace(gap, case=_case(part, gap.case), output=f"{part.title}: {gap.output}")
        for gap in one.proof.gaps
    ]


def _case(part: Component, case: str) -> str:
    return f"{part.title}/{case}"


def _all_findings(proven: Sequence[ProvenComponent], rolled: Sequence[Rolled]) -> list[Finding]:
    looped = bool(rolled) and all(one.rollout.first_bad_step is None for one in rolled)
    return [found for one in proven for found in _findings(one, looped)]


def _findings(one: ProvenComponent, looped: bool) -> list[Finding]:
    """What was found of one file. Too little of it alone takes nothing from the whole, where the whole loop was rolled out and is right."""
    if not one.judged:
        return []
    title = one.component.title
    findings = [replace(found, what=f"{title}: {found.what}") for found in one.proof.findings]
    if not looped:
        return findings
    return [_judged_by_loop(found) if found.voids else found for found in findings]


def _judged_by_loop(found: Finding) -> Finding:
    if found.code == judging.NOT_CONFIRMED:
        return found
    return replace(found, voids=False, what=f"{found.what}; it is judged by the loop alone")


def _causes(main: ProvenComponent) -> tuple[Cause, ...]:
    return main.proof.causes if main.bad else ()


def _location(
    proven: Sequence[ProvenComponent], rolled: Sequence[Rolled], tokenizer: str | None
) -> Location | None:
    for one in proven:
        if one.bad:
            known = one.proof.location or Location(stage=Stage.EXPORT)
            return replace(known, file=one.component.file)
    for wrong in rolled:
        if wrong.rollout.first_bad_step is None:
            continue
        evidence = (
            f"each file is right by itself; in the loop `{wrong.rollout.schedule}` call "
            f"{wrong.rollout.first_bad_step}, answered by {wrong.file}, is the first that is wrong"
        )
        return Location(stage=Stage.EXPORT, file=wrong.file, evidence=evidence)
    if tokenizer is None:
        return None
    return Location(
        stage=Stage.SIGNATURE,
        file=tokenizer,
        evidence="the files say what the model says; the ids that they are given differ",
    )


def _hash(proof: Proof) -> list[str]:
    return [proof.hashes["candidate"]] if "candidate" in proof.hashes else []


def _summed(proven: Sequence[ProvenComponent], name: str) -> dict[str, float]:
    total: dict[str, float] = {}
    for one in proven:
        for key, value in getattr(one.proof, name).items():
            total[key] = total.get(key, 0) + value
    return total


def _replay(proof: Proof, origin: str) -> str:
    worst = proof.worst
    if worst is None:
        return ""
    if not origin:
        return (
            f"onnxproof.verify(model, {proof.candidate!r}, "
            f"backends=({worst.backend!r},), seed={proof.seed}, only=({worst.case!r},))"
        )
    return (
        f"onnxproof verify {origin} {proof.candidate} "
        f"--case '{worst.case}' --backend {worst.backend} --seed {proof.seed}"
    )
