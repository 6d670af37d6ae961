"""Where hypotheses are tried: the witness, the located nodes, and quick answers to "what if the graph said this instead?"."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import numpy_helper

from onnxproof.diagnosis import limits
from onnxproof.diagnosis.counterfactuals import changeable
from onnxproof.diagnosis.counterfactuals.node_attributes import (
    attribute_value,
    node_name,
    node_with_output,
    set_attribute,
)
from onnxproof.diagnosis.counterfactuals.trial_sessions import TrialSessions
from onnxproof.diagnosis.counterfactuals.tried import ComparedCases, Means, Tried
from onnxproof.diagnosis.judge import Counterfactual, Judgement, Standing, judge
from onnxproof.diagnosis.locate import Located, Scene
from onnxproof.diagnosis.trial_cases import TrialCase, TrialCases
from onnxproof.errors import OnnxproofError
from onnxproof.onnxmodel import mapped_weights
from onnxproof.options import Policy
from onnxproof.reference.subject import Subject
from onnxproof.results import Finding, Fix
from onnxproof.runtimes import ort, parse
from onnxproof.runtimes.session.execution import Candidate, Clock, feed
from onnxproof.system.deadline import Deadline

if TYPE_CHECKING:
    from onnxproof.diagnosis.counterfactuals.changed_reference import Variant
    from onnxproof.reference.traced_value import TracedValue

__all__ = [
    "Array",
    "ComparedCases",
    "Means",
    "Tried",
    "Workbench",
    "attribute_value",
    "node_name",
    "node_with_output",
    "set_attribute",
]
Array = np.ndarray[Any, Any]


class Workbench:
    """One scene of a fault, with its location."""

    def __init__(
        self,
        scene: Scene,
        located: Located,
        *,
        cases: ComparedCases,
        policy: Policy,
        subject: Subject | None = None,
        means: Means | None = None,
        findings: Sequence[Finding] = (),
        deadline: Deadline | None = None,
    ) -> None:
        self.scene = scene
        self.located = located
        """Where the fault is, and what was learned on the way."""
        self.location = located.location
        self.cases = cases
        self.policy = policy
        self.subject = subject
        """What is proven, with the user's data."""
        self.means = means or Means()
        self.findings = findings
        """What was found without comparing values: among it, where the runtimes ran."""
        self.deadline = deadline or Deadline.never()
        """After this no further trial is made."""
        self.recorded_calls: dict[str, Any] = {}
        """Case name -> the calls of the module on it, once they were recorded."""
        self.noise = scene.noise
        self.limit = limits.answer_limit(scene.noise)

    # ---- the candidate on the witness

    @property
    def late(self) -> bool:
        """True when the time for trials is over."""
        return self.deadline.passed

    @cached_property
    def model(self) -> onnx.ModelProto:
        """The candidate, as `changeable.load` reads it."""
        return changeable.load(self.scene.path, quantized=self.scene.file.quantized)

    @cached_property
    def before(self) -> float:
        """The relative error of the candidate as it is."""
        return self.distance_between(self.candidate_outputs)

    @cached_property
    def candidate_outputs(self) -> list[Array | None] | None:
        """The candidate's own outputs on the witness."""
        return self.run()

    @property
    def nodes(self) -> list[onnx.NodeProto]:
        """The located nodes, the first suspect first."""
        by_name = {node_name(node): node for node in self.model.graph.node}
        return [by_name[name] for name in self.location.nodes if name in by_name]

    @property
    def suspect(self) -> onnx.NodeProto | None:
        """The first of them."""
        return next(iter(self.nodes), None)

    @property
    def nodes_and_producers(self) -> list[onnx.NodeProto]:
        """The first located nodes, and the producers of what the first reads: a step that does nothing looks right and is not."""
        first = self.nodes[: limits.SUSPECTS_EDITED]
        if not first:
            return []
        listed = {node.output[0] for node in first}
        read = set(first[0].input)
        producers = [
            node
            for node in self.model.graph.node
            if node.op_type != "Constant" and not read.isdisjoint(node.output)
        ]
        return [*first, *(node for node in producers if node.output[0] not in listed)]

    def counterpart(self, node: onnx.NodeProto) -> Any:
        """The traced value of the module that the node should have computed, where it is known."""
        return self.located.counterparts.get(node_name(node))

    def value(self, name: str) -> Array | None:
        """A runtime value of the candidate on the witness, read without optimisation."""
        return self.values([name]).get(name)

    def values(
        self, names: list[str], *, feeds: Mapping[str, Array] | None = None
    ) -> dict[str, Array]:
        """Runtime values and inputs of the candidate on the witness, or on what else it is fed; nothing where the runtime refuses to give them."""
        if feeds is None:
            feeds = feed(self.scene.case.inputs, self.scene.signature)
        weights = {
            tensor.name: mapped_weights.to_array(tensor)
            for tensor in self.model.graph.initializer
            if tensor.name in names
        }
        inner = [name for name in names if name and name not in feeds and name not in weights]
        try:
            return self._inner_values(inner, feeds) | dict(feeds) | weights
        except OnnxproofError:
            return {}

    def _inner_values(self, names: list[str], feeds: Mapping[str, Array]) -> dict[str, Array]:
        from onnxproof.runtimes.reference import add_outputs

        if not names:
            return {}
        model = self.copy_model()
        add_outputs(model, names)
        session = ort.open_model(model, "disabled", outputs=names)
        arrays = zip(names, session.run(feeds), strict=True)
        return {name: array for name, array in arrays if array is not None}

    def constants(self, node: onnx.NodeProto) -> Iterator[tuple[int, str, Array]]:
        """The inputs of a node that are weights or constants: place, name, value."""
        weights = {tensor.name: tensor for tensor in self.model.graph.initializer}
        for constant in self.model.graph.node:
            if constant.op_type == "Constant" and constant.output[0] not in weights:
                tensor = _tensor_of(constant)
                if tensor is not None:
                    weights[constant.output[0]] = tensor
        for place, name in enumerate(node.input):
            if name in weights:
                yield place, name, mapped_weights.to_array(weights[name])

    # ---- changed graphs

    def copy_model(self) -> onnx.ModelProto:
        """A copy of the candidate without its inferred shapes."""
        copied = onnx.ModelProto()
        copied.CopyFrom(self.model)
        del copied.graph.value_info[:]
        return copied

    def with_graph(self, change: Callable[[onnx.GraphProto], None]) -> onnx.ModelProto:
        """A copy of the candidate with one change."""
        copied = self.copy_model()
        change(copied.graph)
        return copied

    def with_node(
        self, node: onnx.NodeProto, change: Callable[[onnx.NodeProto], None]
    ) -> onnx.ModelProto:
        """A copy in which one node is changed."""
        return self.with_graph(lambda graph: change(node_with_output(graph, node.output[0])))

    def with_constant(self, node: onnx.NodeProto, place: int, value: Array) -> onnx.ModelProto:
        """A copy in which one node reads another constant; other readers keep the old one."""
        return self.with_constants(node, {place: value})

    def with_constants(self, node: onnx.NodeProto, values: Mapping[int, Array]) -> onnx.ModelProto:
        """The same with several of them, by the place of each."""

        def change(graph: onnx.GraphProto) -> None:
            changed = node_with_output(graph, node.output[0])
            for place, value in values.items():
                name = f"{node.output[0]}_mended_{place}"
                graph.initializer.append(numpy_helper.from_array(np.array(value), name))
                changed.input[place] = name

        return self.with_graph(change)

    # ---- measuring

    def run(
        self,
        model: onnx.ModelProto | None = None,
        *,
        inputs: Any = None,
        disabled: tuple[str, ...] = (),
    ) -> list[Array | None] | None:
        """The outputs of a graph (the candidate itself for None) on the witness's or other inputs; None where the runtime refuses."""
        scene = self.scene
        if inputs is None:
            inputs = scene.case.inputs
        try:
            session = self._sessions.get(model, disabled)
            candidate = Candidate(
                scene.backend, scene.path, scene.signature, Clock(), session=session
            )
            return candidate.run(inputs)
        except OnnxproofError:
            return None

    @cached_property
    def _sessions(self) -> TrialSessions:
        return TrialSessions(self.scene.path, self.ort_option)

    @property
    def ort_option(self) -> str:
        """The option of the backend that showed the fault, where it is ONNX Runtime."""
        name, option = parse(self.scene.backend)
        if name != "ort":
            return ""
        return option

    def distance(
        self,
        model: onnx.ModelProto | None,
        *,
        inputs: Any = None,
        truth: Any = None,
        disabled: tuple[str, ...] = (),
    ) -> float:
        """The relative error of a graph (the candidate itself for None) against the truth of the witness."""
        outputs = None
        if not self.late:
            outputs = self.run(model, inputs=inputs, disabled=disabled)
        return self.distance_between(outputs, truth)

    def distance_between(
        self, outputs: Sequence[Array | None] | None, expected: Sequence[Array] | None = None
    ) -> float:
        """How far outputs are from the truth of the witness, or from other expected ones; infinite where there are none."""
        return self.scene.error(outputs, expected)

    def truth_of(self, inputs: Mapping[str, Array]) -> list[Array]:
        """What the reference says in float64 to other inputs, or in its own precision where it has no truth."""
        reference = self.scene.reference
        return reference.truth(inputs) or reference.run(inputs)

    def cured(self, after: float) -> bool:
        """True when the error on the witness is gone, not only smaller."""
        return after <= self.limit and after < self.before / limits.FIXED_IMPROVEMENT

    def noise_ratio(self, error: float | None) -> float | None:
        """A measured error in multiples of the noise; None stays None."""
        if error is None:
            return None
        return error / self.noise

    # ---- judging

    @cached_property
    def witness(self) -> TrialCase:
        """The witness with both answers."""
        return TrialCase(scene=self.scene, outputs=self.candidate_outputs, before=self.before)

    @cached_property
    def trial_cases(self) -> TrialCases:
        """The other cases on which causes are judged."""
        return TrialCases(
            witness=self.scene,
            run=self._candidate_on,
            failing=self.cases.others,
            passing=self.cases.agreeing,
            space=self.cases.space,
            deadline=self.deadline,
        )

    def _candidate_on(self, inputs: Mapping[str, Array]) -> list[Array | None] | None:
        return self.run(inputs=inputs)

    def judge(self, counterfactual: Counterfactual) -> Judgement:
        """What the judge of causes says to a counterfactual."""
        if self.late:
            return Judgement(standing=Standing.REFUTED, before=self.before, after=float("inf"))
        return judge(counterfactual, self.witness, self.trial_cases)

    def try_counterfactual(
        self, counterfactual: Counterfactual, evidence: str, **about: Any
    ) -> Tried | None:
        """The hypothesis with what the judge says; None where it is refuted. `evidence` is a clause that ends before "on 5 of 5 failing cases"."""
        judgement = self.judge(counterfactual)
        if judgement.standing is Standing.REFUTED:
            return None
        return Tried(evidence=f"{evidence} {judgement}", judgement=judgement, **about)

    def mended_file(
        self, model: onnx.ModelProto | None = None, disabled: tuple[str, ...] = ()
    ) -> Counterfactual:
        """The candidate with another graph, or with some optimizers off: it should give the truth."""

        def error(case: TrialCase) -> float:
            return case.scene.error(self.run(model, inputs=case.inputs, disabled=disabled))

        return Counterfactual(error=error, in_reference=False)

    def changed_answers(
        self, answer: Callable[[Mapping[str, Array]], Sequence[Array] | None]
    ) -> Counterfactual:
        """The reference with the fault put into it: it should give the candidate's answers."""

        def error(case: TrialCase) -> float:
            answers = answer(case.inputs)
            if answers is None:
                return float("inf")
            return case.scene.error(case.outputs, answers)

        return Counterfactual(error=error, in_reference=True)

    def try_model(
        self, model: onnx.ModelProto, *, evidence: str, fix: str, code: str = "", node: str = ""
    ) -> Tried | None:
        """The hypothesis where the changed graph is right; None where it is not."""
        return self.try_counterfactual(
            self.mended_file(model),
            evidence,
            model=model,
            code=code,
            node=node,
            fix=Fix(kind="graph", what=fix),
        )

    def try_in_reference(
        self,
        variants: "Callable[[TracedValue], Iterable[Variant]]",
        *,
        views: bool = False,
        remedy: "Callable[[], Tried | str] | None" = None,
    ) -> Tried | str:
        """Put each variant of a suspected call into the module, and look for a change of the file that mends it: see `changed_reference`."""
        if self.located.module_session is None:
            return remedy() if remedy is not None else "the reference is no module of PyTorch"
        from onnxproof.diagnosis.counterfactuals import changed_reference

        return changed_reference.try_variants(self, variants, views=views, remedy=remedy)


def _tensor_of(constant: onnx.NodeProto) -> onnx.TensorProto | None:
    """The tensor of a Constant node; None where it holds something else."""
    if not constant.attribute or constant.attribute[0].type != onnx.AttributeProto.TENSOR:
        return None
    tensor: onnx.TensorProto = constant.attribute[0].t
    return tensor
