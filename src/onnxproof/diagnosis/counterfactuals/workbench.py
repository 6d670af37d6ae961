"""Where hypotheses are tried: the witness, the located nodes, and quick answers to "what if the graph said this instead?"."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import numpy_helper

from onnxproof.diagnosis.locate import Located, Scene
from onnxproof.errors import OnnxproofError
from onnxproof.numerics.relative_error import relative_error
from onnxproof.reference.subject import Subject
from onnxproof.results import Case, Finding, Fix, Location
from onnxproof.runtimes import ort, parse
from onnxproof.runtimes.session.execution import Candidate, Clock, feed
from onnxproof.system.deadline import Deadline

if TYPE_CHECKING:
    from onnxproof.diagnosis.counterfactuals.changed_reference import Variant
    from onnxproof.reference.traced_value import TracedValue

Array = np.ndarray[Any, Any]
_LARGEST = 1 << 31


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One hypothesis after it was tried."""

    proven: bool
    evidence: str
    after: float
    """The relative error that is left with the hypothesis granted."""
    before: float | None = None
    """The relative error without it, where that is not the workbench's own: of another runtime."""
    fix: Fix | None = None
    model: onnx.ModelProto | None = None
    """The mended graph, where the remedy is one."""
    options: tuple[str, ...] = ()
    """Optimizers to disable, where the remedy is that."""
    by_reference: bool = False
    """The module with the fault put into it gave the candidate's answers: proven, whether or not the remedy mends all."""
    code: str = ""
    """Another code than the file's name, where what was found belongs there."""


class Workbench:
    """One scene of a fault, with its location."""

    def __init__(
        self,
        scene: Scene,
        located: Located,
        *,
        bad_cases: Mapping[str, bool],
        sizes: Mapping[str, Mapping[str, int]],
        telling: Mapping[str, bool],
        subject: Subject | None = None,
        calibration: Any = None,
        export_float: Any = None,
        others: Sequence[Case] = (),
        findings: Sequence[Finding] = (),
        deadline: Deadline | None = None,
    ) -> None:
        self.scene, self.located = scene, located
        self.where: Location = located.location
        self.subject, self.calibration = subject, calibration
        self.export_float = export_float
        """What is proven, with the user's data, and the data that a quantized candidate was calibrated on, where it is known."""
        self.others = others
        """Further cases that differ: an accident of the witness does not hold on them."""
        self.findings = findings
        """What was found without comparing values: among it, where the runtimes ran."""
        self.bad_cases = bad_cases
        """Case name -> whether it was beyond noise (cases of odd domains left out)."""
        self.sizes = sizes
        """Case name -> the sizes of its dims."""
        self.telling = telling
        """Case name -> whether its values are ordinary, so that sizes alone explain a difference."""
        self.deadline = deadline or Deadline.never()
        """After this no further trial is made."""
        self.noise = scene.noise
        self.limit = max(20 * scene.noise, 2e-6)

    @property
    def late(self) -> bool:
        """True when the time for trials is over."""
        return self.deadline.passed

    @cached_property
    def model(self) -> onnx.ModelProto:
        """The candidate with its weights; refused beyond what a protobuf holds."""
        loaded = onnx.load(self.scene.path)
        if loaded.ByteSize() >= _LARGEST:
            raise ValueError("the model is too large to be edited in memory")
        return loaded

    @cached_property
    def before(self) -> float:
        """The relative error of the candidate as it is."""
        return self.scene.error(self.found)

    @cached_property
    def found(self) -> list[Array | None] | None:
        """The candidate's own answers on the witness."""
        return self.answers()

    @property
    def nodes(self) -> list[onnx.NodeProto]:
        """The named nodes, most guilty first."""
        by_name = {node.name or node.output[0]: node for node in self.model.graph.node}
        return [by_name[name] for name in self.where.nodes if name in by_name]

    @property
    def around(self) -> list[onnx.NodeProto]:
        """The first named nodes, and what feeds the guiltiest: a step that does nothing looks right and is not."""
        first = self.nodes[:3]
        feeding = [
            n
            for n in self.model.graph.node
            if first and set(n.output) & set(first[0].input) and n.op_type != "Constant"
        ]
        return [*first, *[n for n in feeding if n.output[0] not in {f.output[0] for f in first}]]

    def value(self, name: str) -> Array | None:
        """An inner value of the candidate on the witness, read without optimisation."""
        return self.values([name]).get(name)

    def values(self, names: list[str]) -> dict[str, Array]:
        """Inner values and inputs of the candidate on the witness; nothing where the runtime refuses to give them."""
        from onnxproof.runtimes.reference import add_outputs

        feeds = feed(self.scene.case.inputs, self.scene.signature)
        weights = {
            t.name: numpy_helper.to_array(t)
            for t in self.model.graph.initializer
            if t.name in names
        }
        inner = [name for name in names if name and name not in feeds and name not in weights]
        model = self.edited(lambda graph: None)
        add_outputs(model, inner)
        try:
            found = (
                []
                if not inner
                else ort.open(model.SerializeToString(), "disabled", outputs=inner).run(feeds)
            )
        except OnnxproofError:
            return {}
        return (
            {name: array for name, array in zip(inner, found, strict=True) if array is not None}
            | feeds
            | weights
        )

    def alone(self, node: onnx.NodeProto) -> float | None:
        """How far the runtime's output of one node is from the standard's for the same inputs, or None where it can't be told."""
        from onnxproof.runtimes import reference

        values = self.values([*node.input, *node.output])
        given = {name: values[name] for name in node.input if name in values}
        made = [name for name in node.output if name in values]
        if not made or len(given) != len([name for name in node.input if name]):
            return None
        ports = [
            onnx.helper.make_tensor_value_info(
                n, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape
            )
            for n, a in given.items()
        ]
        graph = onnx.helper.make_graph(
            [node],
            "alone",
            ports,
            [onnx.helper.make_empty_tensor_value_info(name) for name in made],
        )
        single = onnx.helper.make_model(
            graph, opset_imports=list(self.model.opset_import), ir_version=self.model.ir_version
        )
        try:
            right = reference.open(single.SerializeToString()).run(given)
        except OnnxproofError:
            return None
        return max(_apart(values[name], r) for name, r in zip(made, right, strict=True))

    def first_odd(self) -> tuple[onnx.NodeProto, float] | None:
        """The first node that makes NaN or infinity from finite values, and the largest of those; read without optimisation."""
        values = self.values([name for node in self.model.graph.node for name in node.output])
        for node in self.model.graph.node:
            made = [
                values[name]
                for name in node.output
                if name in values and values[name].dtype.kind == "f"
            ]
            read = [
                values[name].astype(np.float64)
                for name in node.input
                if name in values and values[name].dtype.kind in "fiu"
            ]
            if any(not np.isfinite(array).all() for array in made) and all(
                np.isfinite(array).all() for array in read
            ):
                return node, max(
                    (float(np.abs(array).max(initial=0)) for array in read), default=0.0
                )
        return None

    @property
    def guilty(self) -> onnx.NodeProto | None:
        """The first of them."""
        return next(iter(self.nodes), None)

    def counterpart(self, node: onnx.NodeProto) -> Any:
        """The module's own operation that the node should have been, where it is known."""
        return self.located.counterparts.get(node.name or node.output[0])

    def whatif(
        self,
        variants: "Callable[[TracedValue], Iterable[Variant]]",
        *,
        views: bool = False,
        cure: "Callable[[], Tried | str] | None" = None,
    ) -> Tried | str:
        """Put each variant of a suspected call into the module: proven is the one that then says what the candidate says.

        `cure` looks for a change of the file that mends it; alone it is a likeness, with the fault in the module it is the remedy.
        """
        from onnxproof.diagnosis.counterfactuals import changed_reference

        found = (
            changed_reference.search(self, variants, views=views)
            if self.located.module_session is not None
            else None
        )
        mended = (
            cure()
            if cure is not None
            else "no such change of the module gives what the candidate gives"
        )
        if found is None:
            return mended
        entry, variant, after = found
        said = f"the module with {changed_reference.told(entry)} {variant.what} gives what the candidate gives"
        if isinstance(mended, Tried):
            return replace(
                mended,
                proven=True,
                by_reference=True,
                evidence=f"{said}; {mended.evidence}",
                code=variant.code or mended.code,
            )
        return Tried(proven=True, by_reference=True, after=after, code=variant.code, evidence=said)

    def cured(self, after: float) -> bool:
        """True when the error is gone, not only smaller."""
        return after <= self.limit and after < self.before / 5

    def distance(
        self,
        model: onnx.ModelProto | None,
        *,
        inputs: Any = None,
        truth: Any = None,
        disabled: tuple[str, ...] = (),
    ) -> float:
        """The relative error of a graph (the candidate itself for None) against the truth of the witness."""
        outputs = self.answers(model, inputs=inputs, disabled=disabled) if not self.late else None
        return self.scene.error(outputs, truth)

    def answers(
        self,
        model: onnx.ModelProto | None = None,
        *,
        inputs: Any = None,
        disabled: tuple[str, ...] = (),
    ) -> list[Array | None] | None:
        """The outputs of a graph on the witness's (or other) inputs, or None where the runtime refuses."""
        source: Any = self.scene.path if model is None else model.SerializeToString()
        try:
            session = ort.open(
                source,
                parse(self.scene.backend)[1] if parse(self.scene.backend)[0] == "ort" else "",
                disabled_optimizers=disabled,
            )
            return Candidate(
                self.scene.backend, self.scene.path, self.scene.signature, Clock(), session=session
            ).run(self.scene.case.inputs if inputs is None else inputs)
        except OnnxproofError:
            return None

    def edited(self, change: Callable[[onnx.GraphProto], None]) -> onnx.ModelProto:
        """A copy of the candidate with one change."""
        copied = onnx.ModelProto()
        copied.CopyFrom(self.model)
        change(copied.graph)
        del copied.graph.value_info[:]
        return copied

    def with_node(
        self, node: onnx.NodeProto, change: Callable[[onnx.NodeProto], None]
    ) -> onnx.ModelProto:
        """A copy in which one node is changed."""
        place = [n.output[0] for n in self.model.graph.node].index(node.output[0])
        return self.edited(lambda graph: change(graph.node[place]))

    def constants(self, node: onnx.NodeProto) -> Iterator[tuple[int, str, Array]]:
        """The inputs of a node that are weights or constants: place, name, value."""
        weights = {t.name: t for t in self.model.graph.initializer}
        made = {n.output[0]: n for n in self.model.graph.node if n.op_type == "Constant"}
        for place, name in enumerate(node.input):
            if name in weights:
                yield place, name, numpy_helper.to_array(weights[name])
            elif (
                name in made
                and made[name].attribute
                and made[name].attribute[0].type == onnx.AttributeProto.TENSOR
            ):
                yield place, name, numpy_helper.to_array(made[name].attribute[0].t)

    def with_constant(self, node: onnx.NodeProto, place: int, value: Array) -> onnx.ModelProto:
        """A copy in which one node reads another constant; other readers keep the old one."""
        name = f"{node.output[0]}_mended_{place}"

        def change(graph: onnx.GraphProto) -> None:
            graph.initializer.append(numpy_helper.from_array(np.array(value), name))
            next(n for n in graph.node if n.output[0] == node.output[0]).input[place] = name

        return self.edited(change)


def _apart(a: Array, b: Array | None) -> float:
    """The relative distance; of integers whether they differ at all, since beyond 2**53 a float does not tell."""
    if b is not None and a.dtype.kind in "iub" and a.shape == b.shape:
        return float(not np.array_equal(a, b))
    return relative_error(b, a)


def attribute(node: onnx.NodeProto, name: str, default: Any = None) -> Any:
    """An attribute's value, or the default."""
    found = next((a for a in node.attribute if a.name == name), None)
    return default if found is None else onnx.helper.get_attribute_value(found)


def set_attribute(node: onnx.NodeProto, name: str, value: Any) -> None:
    """Set an attribute; None removes it."""
    for old in [a for a in node.attribute if a.name == name]:
        node.attribute.remove(old)
    if value is not None:
        node.attribute.append(onnx.helper.make_attribute(name, value))
