"""Where hypotheses are tried: the witness, the located nodes, and quick answers to "what if the graph said this instead?"."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import numpy_helper

from onnxproof.diagnosis import limits
from onnxproof.diagnosis.locate import Located, Scene
from onnxproof.errors import OnnxproofError
from onnxproof.options import Policy
from onnxproof.reference.subject import Subject
from onnxproof.results import Case, Finding, Fix
from onnxproof.runtimes import ort, parse
from onnxproof.runtimes.session.execution import Candidate, Clock, feed
from onnxproof.system.deadline import Deadline

if TYPE_CHECKING:
    from onnxproof.diagnosis.counterfactuals.changed_reference import Variant
    from onnxproof.reference.traced_value import TracedValue

Array = np.ndarray[Any, Any]
_MOST_BYTES = 1 << 31
"""What a protobuf message holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One hypothesis after it was tried."""

    proven: bool
    evidence: str
    after: float | None = None
    """The relative error that is left with the hypothesis granted; None where no counterfactual measured one."""
    before: float | None = None
    """The relative error without it, where that is not the workbench's own: of another runtime."""
    fix: Fix | None = None
    model: onnx.ModelProto | None = None
    """The mended model, where the remedy is one."""
    options: tuple[str, ...] = ()
    """Optimizers to disable, where the remedy is that."""
    by_reference: bool = False
    """The module with the fault put into it gave the candidate's answers: proven, whether or not the remedy mends all."""
    code: str = ""
    """Another code than the file's name, where what was found belongs there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What the causes may use beside the evidence."""

    export_float: Callable[[Subject, Path], object] | None = None
    """Writes a module as a float ONNX file, for the study of a quantized one."""
    calibration: Any = None
    """The data that a quantized candidate was calibrated on, where it is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedCases:
    """What is known of all cases of the run."""

    beyond_noise: Mapping[str, bool] = field(default_factory=dict)
    """Case name -> whether it was beyond noise (cases of odd domains left out)."""
    sizes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Case name -> the sizes of its dims."""
    ordinary: Mapping[str, bool] = field(default_factory=dict)
    """Case name -> whether its values are ordinary, so that sizes alone explain a difference."""
    others: Sequence[Case] = ()
    """Further cases that differ: an accident of the witness does not hold on them."""


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
        self.noise = scene.noise
        self.limit = max(limits.FIXED_NOISE_RATIO * scene.noise, limits.FIXED_LEAST_ERROR)

    # ---- the candidate on the witness

    @property
    def late(self) -> bool:
        """True when the time for trials is over."""
        return self.deadline.passed

    @cached_property
    def model(self) -> onnx.ModelProto:
        """The candidate with its weights; refused beyond what a protobuf holds."""
        loaded = onnx.load(self.scene.path)
        if loaded.ByteSize() >= _MOST_BYTES:
            raise ValueError("the model is too large to be edited in memory")
        return loaded

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

    def values(self, names: list[str]) -> dict[str, Array]:
        """Runtime values and inputs of the candidate on the witness; nothing where the runtime refuses to give them."""
        feeds = feed(self.scene.case.inputs, self.scene.signature)
        weights = {
            tensor.name: numpy_helper.to_array(tensor)
            for tensor in self.model.graph.initializer
            if tensor.name in names
        }
        inner = [name for name in names if name and name not in feeds and name not in weights]
        try:
            return self._inner_values(inner, feeds) | feeds | weights
        except OnnxproofError:
            return {}

    def _inner_values(self, names: list[str], feeds: Mapping[str, Array]) -> dict[str, Array]:
        from onnxproof.runtimes.reference import add_outputs

        if not names:
            return {}
        model = self.copy_model()
        add_outputs(model, names)
        session = ort.open(model.SerializeToString(), "disabled", outputs=names)
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
                yield place, name, numpy_helper.to_array(weights[name])

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
        name = f"{node.output[0]}_mended_{place}"

        def change(graph: onnx.GraphProto) -> None:
            graph.initializer.append(numpy_helper.from_array(np.array(value), name))
            node_with_output(graph, node.output[0]).input[place] = name

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
        source: Any = scene.path
        if model is not None:
            source = model.SerializeToString()
        if inputs is None:
            inputs = scene.case.inputs
        try:
            session = ort.open(source, self.ort_option, disabled_optimizers=disabled)
            candidate = Candidate(
                scene.backend, scene.path, scene.signature, Clock(), session=session
            )
            return candidate.run(inputs)
        except OnnxproofError:
            return None

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
        """True when the error is gone, not only smaller."""
        return after <= self.limit and after < self.before / limits.FIXED_IMPROVEMENT

    def noise_ratio(self, error: float | None) -> float | None:
        """A measured error in multiples of the noise; None stays None."""
        if error is None:
            return None
        return error / self.noise

    def try_model(
        self, model: onnx.ModelProto, *, evidence: str, fix: str, code: str = ""
    ) -> Tried | None:
        """The proven hypothesis where the changed graph is right; None where it is not."""
        after = self.distance(model)
        if not self.cured(after):
            return None
        return Tried(
            proven=True,
            after=after,
            model=model,
            code=code,
            evidence=evidence,
            fix=Fix(kind="graph", what=fix),
        )

    def try_in_reference(
        self,
        variants: "Callable[[TracedValue], Iterable[Variant]]",
        *,
        views: bool = False,
        remedy: "Callable[[], Tried | str] | None" = None,
    ) -> Tried | str:
        """Put each variant of a suspected call into the module: proven is the one that then gives the candidate's outputs.

        `remedy` looks for a change of the file that mends it; alone it is a likeness, with the fault in the module it is the fix.
        """
        from onnxproof.diagnosis.counterfactuals import changed_reference

        match = changed_reference.search(self, variants, views=views)
        tried: Tried | str = "no such change of the module gives what the candidate gives"
        if remedy is not None:
            tried = remedy()
        if match is None:
            return tried
        call = changed_reference.describe_call(match.entry)
        evidence = f"the module with {call} {match.variant.what} gives what the candidate gives"
        if isinstance(tried, Tried):
            return replace(
                tried,
                proven=True,
                by_reference=True,
                after=match.after if tried.after is None else tried.after,
                evidence=f"{evidence}; {tried.evidence}",
                code=match.variant.code or tried.code,
            )
        return Tried(
            proven=True,
            by_reference=True,
            after=match.after,
            code=match.variant.code,
            evidence=evidence,
        )


def node_name(node: onnx.NodeProto) -> str:
    """A node's name, or that of its first output."""
    return node.name or node.output[0]


def node_with_output(graph: onnx.GraphProto, output: str) -> onnx.NodeProto:
    """The node whose first output has this name."""
    nodes: dict[str, onnx.NodeProto] = {node.output[0]: node for node in graph.node}
    return nodes[output]


def attribute_value(node: onnx.NodeProto, name: str, default: Any = None) -> Any:
    """An attribute's value, or the default."""
    for attribute in node.attribute:
        if attribute.name == name:
            return onnx.helper.get_attribute_value(attribute)
    return default


def set_attribute(node: onnx.NodeProto, name: str, value: Any) -> None:
    """Set an attribute; None removes it."""
    for old in [a for a in node.attribute if a.name == name]:
        node.attribute.remove(old)
    if value is not None:
        node.attribute.append(onnx.helper.make_attribute(name, value))


def _tensor_of(constant: onnx.NodeProto) -> onnx.TensorProto | None:
    """The tensor of a Constant node; None where it holds something else."""
    if not constant.attribute or constant.attribute[0].type != onnx.AttributeProto.TENSOR:
        return None
    tensor: onnx.TensorProto = constant.attribute[0].t
    return tensor
