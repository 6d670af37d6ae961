"""The cases that all points are asked, and whether two points answer alike.

Both ends are verified, and the most telling cases of either are the questions: where an end is wrong, one of its cases shows it. Two
answers are alike where they differ by no more than twice what a faithful answer may be off: each of the two may be off by that much.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from onnxproof.bisection.axes import Place
from onnxproof.bisection.result import Difference
from onnxproof.bundle.cases import StoredCase, StoredOutput
from onnxproof.bundle.read import open_bundle
from onnxproof.errors import (
    BackendError,
    BackendMissing,
    ModelError,
    OnnxproofError,
    Refused,
    UsageError,
)
from onnxproof.examination import verify_subject
from onnxproof.numerics.measure import GapLabel, measure
from onnxproof.options import Policy, VerifyOptions
from onnxproof.reference.subject import Subject
from onnxproof.results import Gap, NoiseKind, Signature, Verdict, judging
from onnxproof.results.proof import Proof
from onnxproof.runtimes import open_session
from onnxproof.runtimes.session.execution import Candidate, Clock
from onnxproof.system import temporary

Array = np.ndarray[Any, Any]
_TWICE = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A case with the reference's answers and their noise, and how the file that it came from names its ports."""

    stored: StoredCase
    signature: Signature
    usual_scale: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What one point answers: for each case the outputs, or why there are none."""

    by_case: Mapping[str, Sequence[Array | None] | str]
    refused: str = ""
    """Why the file can't even be opened there."""


def choose(subject: Subject, places: Sequence[Place], options: VerifyOptions) -> list[Question]:
    """The questions that either end makes worth asking; an end that refuses the file asks nothing."""
    questions: dict[str, Question] = {}
    refusals: list[OnnxproofError] = []
    for place in places:
        chosen = replace(options, backends=(place.backend,), explain=False)
        try:
            proof = verify_subject(subject, place.path, chosen, None)
            if proof.error:
                raise Refused("refused", proof.error.splitlines()[0])
            for question in _recorded(proof):
                questions.setdefault(question.stored.case.name, question)
        except BackendMissing:
            raise
        except (BackendError, ModelError, UsageError) as why:
            refusals.append(why)
    if not questions:
        if len(refusals) == len(places):
            raise refusals[0]
        raise UsageError(
            "nothing-to-ask",
            "no case could be kept to ask the releases with",
            help="`onnxproof verify` with the same words says why",
        )
    return list(questions.values())


def _recorded(proof: Proof) -> Iterator[Question]:
    """The cases of a bundle of this proof."""
    with temporary.Folder() as folder:
        path = proof.to_bundle(Path(folder) / "ends.proof")
        with open_bundle(path) as bundle:
            for stored in bundle.cases():
                yield Question(
                    stored=stored,
                    signature=bundle.manifest.signature,
                    usual_scale=bundle.manifest.usual_scale,
                )


def ask(place: Place, questions: Sequence[Question]) -> Answers:
    """All answers of one place; a file that can't be opened there is an answer, too."""
    try:
        session = open_session(place.backend, place.path)
    except BackendMissing:
        raise
    except OnnxproofError as why:
        if why.code == "no-environment":
            raise
        return Answers(by_case={}, refused=": ".join((why.what, *why.notes[:1])))
    try:
        by_case = {}
        for question in questions:
            signature = _renamed(question.signature, session.input_names, session.output_names)
            candidate = Candidate(place.backend, place.path, signature, Clock(), session=session)
            by_case[question.stored.case.name] = _answer(candidate, question)
    finally:
        session.close()
    return Answers(by_case=by_case)


def _answer(candidate: Candidate, question: Question) -> Sequence[Array | None] | str:
    inputs = question.stored.case.inputs
    try:
        return [np.array(value) for value in candidate.run(inputs) if value is not None]
    except BackendError as why:
        return why.what


def _renamed(
    signature: Signature, input_names: Sequence[str], output_names: Sequence[str]
) -> Signature:
    """The signature for a file that names its ports otherwise: by position, since the same module was exported."""
    inputs = [info for info in signature.inputs if info.onnx_name is not None]
    outputs = [info for info in signature.outputs if info.onnx_name is not None]
    known = {info.onnx_name for info in inputs} | {info.onnx_name for info in outputs}
    if known.issubset({*input_names, *output_names}):
        return signature
    if len(inputs) != len(input_names) or len(outputs) != len(output_names):
        return signature
    return replace(
        signature,
        inputs=tuple(
            replace(info, onnx_name=name) for info, name in zip(inputs, input_names, strict=True)
        ),
        outputs=tuple(
            replace(info, onnx_name=name) for info, name in zip(outputs, output_names, strict=True)
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """How the answers of two points are compared."""

    questions: Sequence[Question]
    policy: Policy
    quantized: bool = False

    def same(self, one: Answers, other: Answers) -> bool:
        """True when no case tells the two apart."""
        return not self.differences(one, other)

    def differences(self, one: Answers, other: Answers) -> list[Difference]:
        """Where the two differ, one for each case that does, the ordinary and largest ones first."""
        if one.refused or other.refused:
            return list(_opened_by_one(one, other))
        found = []
        for question in self.questions:
            name = question.stored.case.name
            difference = self.compare(question, one.by_case[name], other.by_case[name])
            if difference is not None:
                found.append(difference)
        return sorted(found, key=lambda each: (bool(each.domain), -each.noise_ratio))

    def compare(
        self,
        question: Question,
        one: Sequence[Array | None] | str,
        other: Sequence[Array | None] | str,
    ) -> Difference | None:
        """The output of one case that differs most; None where none does."""
        case = question.stored.case
        domain = case.domain.value if case.domain else ""
        if isinstance(one, str) or isinstance(other, str):
            if isinstance(one, str) and isinstance(other, str):
                return None
            words = one if isinstance(one, str) else other
            return _refusal(case.name, str(words), domain)
        gaps = self._gaps(question, one, other)
        beyond = [gap for gap in gaps if self._is_change(gap)]
        if not beyond:
            return None
        worst = max(beyond, key=_ratio)
        return Difference(
            case=case.name,
            output=worst.output,
            noise_ratio=_ratio(worst),
            max_abs=worst.max_abs,
            domain=domain,
            words=_words(worst),
        )

    def distance_from_truth(
        self, question: Question, answers: Sequence[Array | None] | str
    ) -> float | None:
        """In units of the noise, over all outputs; None for a refusal."""
        if isinstance(answers, str):
            return None
        references = [output.reference for output in question.stored.outputs]
        gaps = self._gaps(question, references, answers, by_truth=True)
        return max(map(_ratio, gaps), default=None)

    def _gaps(
        self,
        question: Question,
        one: Sequence[Array | None],
        other: Sequence[Array | None],
        *,
        by_truth: bool = False,
    ) -> list[Gap]:
        names = [output.name for output in question.signature.outputs]
        gaps = []
        for name, stored, first, second in zip(
            names, question.stored.outputs, one, other, strict=False
        ):
            if first is None:
                continue
            gaps.append(
                measure(
                    GapLabel(case=question.stored.case.name, output=name),
                    reference=first,
                    truth=stored.truth if by_truth else None,
                    candidate=second,
                    noise=_noise(stored),
                    floor_scale=question.usual_scale.get(name, 0.0),
                    atol=self.policy.atol,
                    rtol=self.policy.rtol,
                )
            )
        return gaps

    def _is_change(self, gap: Gap) -> bool:
        if self.quantized and gap.compared and not gap.lost and not gap.odd:
            return gap.sqnr_db is not None and gap.sqnr_db < self.policy.twin_db
        wide = replace(
            self.policy,
            noise_limit=_TWICE * self.policy.noise_limit,
            worst_limit=_TWICE * self.policy.worst_limit,
        )
        return judging.judge_gap(gap, wide) in (Verdict.DRIFT, Verdict.DIVERGED) or gap.odd > 0


def _noise(stored: StoredOutput) -> Any:
    """The louder of the two where a decision may flip; a kind where there is none, since the floor is a noise, too."""
    noise = stored.loud or stored.noise
    if noise.kind is NoiseKind.NONE:
        return replace(noise, kind=NoiseKind.PERTURBED)
    return noise


def _opened_by_one(one: Answers, other: Answers) -> Iterator[Difference]:
    if bool(one.refused) != bool(other.refused):
        yield _refusal("", one.refused or other.refused, "")


def _refusal(case: str, words: str, domain: str) -> Difference:
    return Difference(
        case=case, output="", noise_ratio=np.inf, max_abs=0.0, domain=domain, words=words
    )


def _ratio(gap: Gap) -> float:
    """The larger of the two ratios; what has none is beyond any number."""
    if gap.lost or gap.odd or not gap.compared:
        return float("inf")
    return max(gap.noise_ratio, gap.worst_ratio)


def _words(gap: Gap) -> str:
    if not gap.compared:
        return gap.detail
    if gap.lost or gap.odd:
        return f"{gap.lost + gap.odd} values are NaN or infinite in one of the two alone"
    return ""
