"""Find the release that changed the answers.

1. Both ends are prepared, and verified for the cases that are asked (`questions`).
2. The list is searched for neighbours that answer otherwise (`search`).
3. Between the two of each change, the part that changed is looked for (`blame`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from onnxproof.bisection import questions as asking
from onnxproof.bisection.axes import Axis
from onnxproof.bisection.axes.onnxruntime import Releases
from onnxproof.bisection.blame import Suspects
from onnxproof.bisection.questions import Answers, Comparison, Question
from onnxproof.bisection.result import Bisection, Blame, Change, Part, Point, Standing
from onnxproof.bisection.search import Found, classes, find_changes
from onnxproof.errors import ExportError, UsageError
from onnxproof.onnxmodel import onnx_file
from onnxproof.options import VerifyOptions
from onnxproof.reference.subject import Subject
from onnxproof.runtimes import use_serving

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """One bisection: what is compared, along which axis."""

    subject: Subject
    axis: Axis
    options: VerifyOptions
    every: bool = False
    tell: Tell = lambda _: None
    asked: dict[str, Answers] = field(default_factory=dict)

    def run(self) -> Bisection:
        """Take the steps one by one."""
        with use_serving(self.options.serving):
            comparison = self._choose_questions()
            found = find_changes(
                self.axis.points,
                lambda point: self._ask(point, comparison.questions),
                comparison.same,
                every=self.every,
            )
            return self._result(found, comparison)

    def _choose_questions(self) -> Comparison:
        """Step 1; a case that one place answers differently twice tells nothing."""
        first, last = self.axis.points[0], self.axis.points[-1]
        self.tell(f"verifying {self.axis.name} {first} and {last} for cases to ask")
        places = []
        failures = []
        for point in (first, last):
            try:
                places.append(self.axis.prepare(point))
            except ExportError as why:
                failures.append(why)
        if not places:
            raise failures[0]
        chosen = asking.choose(self.subject, places, self.options)
        quantized = onnx_file.read(places[0].path).quantized
        comparison = Comparison(questions=chosen, policy=self.options.policy, quantized=quantized)
        return self._without_random_cases(comparison)

    def _without_random_cases(self, comparison: Comparison) -> Comparison:
        first, last = self.axis.points[0], self.axis.points[-1]
        point = first
        if self._ask(first, comparison.questions).refused:
            point = last
        once = self._ask(point, comparison.questions)
        if once.refused:
            return comparison
        again = asking.ask(self.axis.prepare(point), comparison.questions)
        random = {each.case for each in comparison.differences(once, again)}
        steady = [each for each in comparison.questions if each.stored.case.name not in random]
        if not steady:
            raise UsageError(
                "random-answers",
                f"{self.axis.name} {point} answers every case otherwise when it is asked again",
                help="a model that draws random numbers can't be bisected",
            )
        return replace(comparison, questions=steady)

    def _ask(self, point: str, questions: Sequence[Question]) -> Answers:
        """What the point answers; it is asked once."""
        if point not in self.asked:
            try:
                answers = asking.ask(self.axis.prepare(point), questions)
            except ExportError as why:
                answers = Answers(by_case={}, refused=why.what)
            self.asked[point] = answers
            self.tell(f"{self.axis.name} {point} {'refuses' if answers.refused else 'answered'}")
        return self.asked[point]

    def _result(self, found: Found[Answers], comparison: Comparison) -> Bisection:
        points = self.axis.points
        if not found.changes:
            raise self._ends_agree(comparison)
        tried = sorted(found.answers)
        numbers = classes([found.answers[place] for place in tried], comparison.same)
        return Bisection(
            subject=str(self.subject.source),
            file=self.axis.prepare(points[0]).path.name,
            axis=self.axis.name,
            available=tuple(points),
            points=tuple(
                Point(name=points[place], answers=number, refused=found.answers[place].refused)
                for place, number in zip(tried, numbers, strict=True)
            ),
            changes=tuple(
                self._change(low, high, found, comparison) for low, high in found.changes
            ),
        )

    def _change(self, low: int, high: int, found: Found[Answers], comparison: Comparison) -> Change:
        """Step 3."""
        before, after = self.axis.points[low], self.axis.points[high]
        self.tell(f"looking for what changed between {before} and {after}")
        old, new = found.answers[low], found.answers[high]
        differences = comparison.differences(old, new)
        worst = differences[0]
        question = next(
            (each for each in comparison.questions if each.stored.case.name == worst.case), None
        )
        standings: list[Standing] = []
        blame = Blame(part=Part.REFUSAL, evidence=worst.words)
        if question is not None:
            standings = [
                Standing(
                    point=point,
                    noise_ratio=comparison.distance_from_truth(
                        question, answers.by_case[worst.case]
                    ),
                )
                for point, answers in ((before, old), (after, new))
            ]
            blame = self._blame(before, after, question, comparison)
        return Change(
            before=before,
            after=after,
            difference=worst,
            cases=len(differences),
            asked=len(comparison.questions),
            standings=tuple(standings),
            blame=blame,
        )

    def _blame(self, before: str, after: str, question: Question, comparison: Comparison) -> Blame:
        if not isinstance(self.axis, Releases):
            return Blame(
                part=Part.FILE, evidence=f"the file of {before} and that of {after}, on one runtime"
            )
        return Suspects(
            axis=self.axis,
            before=before,
            after=after,
            question=question,
            comparison=replace(comparison, questions=[question]),
        ).blame()

    def _ends_agree(self, comparison: Comparison) -> UsageError:
        first, last = self.axis.points[0], self.axis.points[-1]
        advice = "`--every` tries each one between them; `--data` asks with inputs of your own"
        what = f"{self.axis.name} {first} and {last} answer alike in all {len(comparison.questions)} cases"
        if self.every:
            advice = "`--data` asks with inputs of your own"
            what = f"all {len(self.axis.points)} of {self.axis.name} from {first} to {last} answer alike in all {len(comparison.questions)} cases"
        return UsageError("ends-agree", what, help=advice)
