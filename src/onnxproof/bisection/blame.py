"""What changed between two releases of ONNX Runtime: an optimizer, or the kernel of a node.

1. The two are run at each level of optimisation. Where they differ without any, it is a kernel, or else an optimizer.
2. An optimizer is named by halving the list of those that are turned off: in the newer release, in the older one, or in both. Where it
   is at work in both releases, it is the kernel that it puts in that changed.
3. A kernel is named by the values inside: the node whose inputs agree and whose outputs do not. It is proven by running the newer
   release from the older one's value of that node on: then both answer alike.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import onnx

from onnxproof.bisection.axes import Place
from onnxproof.bisection.axes.onnxruntime import Releases
from onnxproof.bisection.questions import Answers, Comparison, Question, ask
from onnxproof.bisection.result import Blame, Part
from onnxproof.diagnosis.locate.optimizers import Unnamed, halve
from onnxproof.errors import OnnxproofError
from onnxproof.numerics.relative_error import relative_error
from onnxproof.onnxmodel import onnx_file
from onnxproof.runtimes import open_session
from onnxproof.runtimes.session import inner_values
from onnxproof.runtimes.session.execution import feed
from onnxproof.system import temporary

Array = np.ndarray[Any, Any]
LEVELS = ("disabled", "basic", "extended", "all")
_MOST_NODES = 8
"""Nodes whose value is put in the other release's place, the likeliest first. Not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspects:
    """Two neighbouring releases, and the case that tells them apart."""

    axis: Releases
    before: str
    after: str
    question: Question
    comparison: Comparison
    asked: dict[tuple[str, str], Answers] = field(default_factory=dict)

    def blame(self) -> Blame:
        """The part that changed, named where one could be named."""
        level = next((level for level in LEVELS if not self._agree(level, level)), "")
        if not level:
            return Blame(
                part=Part.UNKNOWN, evidence="the two agree at every level when they are asked again"
            )
        if self._refuses(level):
            return Blame(part=Part.REFUSAL, level=level, evidence=self._refuses(level))
        if level == LEVELS[0]:
            return self._blame_kernel()
        return self._blame_optimizer(level)

    # Step 1

    def _answers(self, release: str, option: str) -> Answers:
        key = release, option
        if key not in self.asked:
            self.asked[key] = ask(self.axis.at(release, option), [self.question])
        return self.asked[key]

    def _agree(self, before: str, after: str) -> bool:
        """Whether the older release with one option answers as the newer one with another."""
        return self.comparison.same(
            self._answers(self.before, before), self._answers(self.after, after)
        )

    def _refuses(self, level: str) -> str:
        """The words of the one that refuses, with its release; empty where both answer."""
        name = self.question.stored.case.name
        for release in (self.before, self.after):
            answers = self._answers(release, level)
            words = answers.refused or answers.by_case[name]
            if isinstance(words, str):
                return f"{release}: {words}"
        return ""

    # Step 2

    def _blame_optimizer(self, level: str) -> Blame:
        why = ""
        for where in ("after", "before", "both"):
            try:
                name = halve(partial(self._without, where=where), lambda: False)
            except Unnamed as reason:
                why = f"the two agree below the level `{level}`; {reason}"
                continue
            part = Part.OPTIMIZER
            if self._at_work(self.before, name) and self._at_work(self.after, name):
                part = Part.FUSED_KERNEL
            return Blame(
                part=part, name=name, level=level, proven=True, evidence=self._told(name, where)
            )
        return Blame(part=Part.OPTIMIZER, level=level, evidence=why)

    def _at_work(self, release: str, optimizer: str) -> bool:
        """Whether the optimizer changes a bit of this release's answer: then it matches the graph there."""
        case = self.question.stored.case.name
        options = ("all", f"without={optimizer}")
        one, other = (self._answers(release, option).by_case[case] for option in options)
        return any(
            first is not None and second is not None and first.tobytes() != second.tobytes()
            for first, second in zip(one, other, strict=True)
            if not isinstance(first, str) and not isinstance(second, str)
        )

    def _without(self, names: Sequence[str], where: str) -> bool:
        """Whether the two agree without these optimizers in one of them, or in both."""
        option = f"without={'+'.join(names)}"
        before = after = "all"
        if where in ("before", "both"):
            before = option
        if where in ("after", "both"):
            after = option
        return self._agree(before, after)

    def _told(self, name: str, where: str) -> str:
        if where == "after":
            return f"without {name}, {self.after} answers as {self.before} does"
        if where == "before":
            return f"without {name}, {self.before} answers as {self.after} does"
        return f"without {name} in both, the two agree"

    # Step 3

    def _blame_kernel(self) -> Blame:
        file = self.axis.file
        model = inner_values.infer_types(onnx.load(file, load_external_data=False))
        names = [name for node in model.graph.node for name in node.output if name]
        feeds = feed(self.question.stored.case.inputs, self.question.signature)
        old, new = (
            inner_values.values(self._place(release).backend, file, feeds, names)
            for release in (self.before, self.after)
        )
        suspects = _by_suspicion(model.graph, old, new)
        for node in suspects[:_MOST_NODES]:
            if self._agree_from(model, node, old, feeds):
                name = node.name or node.output[0]
                return Blame(
                    part=Part.KERNEL,
                    name=name,
                    op_type=node.op_type,
                    level=LEVELS[0],
                    proven=True,
                    evidence=f"with the value of `{name}` that {self.before} computes, {self.after} answers as {self.before} does",
                )
        return Blame(
            part=Part.KERNEL,
            level=LEVELS[0],
            evidence="the two differ without optimisation; no single node could be named",
        )

    def _place(self, release: str) -> Place:
        return self.axis.at(release, LEVELS[0])

    def _agree_from(
        self,
        model: onnx.ModelProto,
        node: onnx.NodeProto,
        old: Mapping[str, Array],
        feeds: Mapping[str, Array],
    ) -> bool:
        """Whether the newer release, given the older one's outputs of this node, answers as the older one does."""
        given = {name: old[name] for name in node.output if name in old}
        outputs = [value.name for value in model.graph.output]
        wanted = [name for name in outputs if name not in given]
        computed = dict(given)
        if wanted:
            part = inner_values.cut(model, wanted, list(given))
            try:
                computed |= self._run(part, wanted, {**feeds, **given})
            except OnnxproofError:
                return False
        ordered = [info.onnx_name or "" for info in self.question.signature.outputs]
        answers = [computed.get(name) for name in ordered]
        case = self.question.stored.case.name
        expected = self._answers(self.before, LEVELS[0]).by_case[case]
        return self.comparison.compare(self.question, expected, answers) is None

    def _run(
        self, model: onnx.ModelProto, outputs: Sequence[str], feeds: Mapping[str, Array]
    ) -> dict[str, Array]:
        with temporary.Folder() as folder:
            path = onnx_file.save_changed(model, self.axis.file, folder / "rest.onnx")
            session = open_session(self._place(self.after).backend, path)
            try:
                values = session.run({name: feeds[name] for name in session.input_names})
            finally:
                session.close()
        pairs = zip(outputs, values, strict=True)
        return {name: np.array(value) for name, value in pairs if value is not None}


def _by_suspicion(
    graph: onnx.GraphProto, old: Mapping[str, Array], new: Mapping[str, Array]
) -> list[onnx.NodeProto]:
    """Nodes whose outputs differ: those with equal inputs first, then by how much larger the error is behind the node than before it."""
    errors = {name: relative_error(new[name], old[name]) for name in old if name in new}
    ranked = []
    for node in graph.node:
        behind = max((errors.get(name, 0.0) for name in node.output), default=0.0)
        before = max((errors.get(name, 0.0) for name in node.input), default=0.0)
        if behind > before:
            ranked.append((before > 0, -(behind - before), node))
    ranked.sort(key=lambda entry: entry[:2])
    return [node for *_, node in ranked]
