"""What the outputs of a sub-model should be, by the stage at which the model goes wrong."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from onnxproof.diagnosis.locate.scene import Located, Scene
from onnxproof.diagnosis.repro.submodel import InnerValues, SubModel, run
from onnxproof.inputs.space import as_dtype
from onnxproof.onnxmodel.graph import Graph
from onnxproof.results import Stage, Status
from onnxproof.runtimes import reference as standard
from onnxproof.runtimes.session.execution import feed

Array = np.ndarray[Any, Any]


class TrueValues:
    """The truth for the outputs of sub-models of one model."""

    def __init__(
        self,
        scene: Scene,
        located: Located,
        graph: Graph,
        values: InnerValues,
        *,
        refused: bool,
    ) -> None:
        self._scene = scene
        self._located = located
        self._graph = graph
        self._values = values
        self._refused = refused
        by_stage: dict[Stage, Callable[[SubModel], Mapping[str, Array]]] = {
            Stage.OPTIMIZER: self._without_optimisation,
            Stage.RUNTIME: self._by_standard,
            Stage.PRECISION: self._by_standard,
        }
        self.of = by_stage.get(located.location.stage, self._by_module)
        """The truth for the outputs of one sub-model, as far as it is known."""
        self._outputs: dict[str, tuple[Array, np.dtype[Any]]] = {}
        answers = zip(scene.signature.outputs, scene.truth, scene.dtypes, strict=True)
        for output, truth, dtype in answers:
            if output.onnx_name:
                self._outputs[output.onnx_name] = (truth, dtype)
        self._replacements: dict[str, Array] | None = None
        self._evaluator: Any = None

    def _without_optimisation(self, submodel: SubModel) -> Mapping[str, Array]:
        """What the same sub-model says when nothing is optimised."""
        return run(submodel, "disabled")[0]

    def _by_standard(self, submodel: SubModel) -> Mapping[str, Array]:
        """What the sub-model says by the standard, in float64, rounded to the value's own type."""
        session = standard.open(submodel.model.SerializeToString(), "float64")
        own = self._values.get(submodel.outputs)
        outputs = zip(session.output_names, session.run(submodel.inputs), strict=True)
        return {
            name: as_dtype(np.asarray(value), own[name].dtype)
            for name, value in outputs
            if value is not None and name in own
        }

    def _by_module(self, submodel: SubModel) -> Mapping[str, Array]:
        """What the module says.

        1. Where only the dtype is wrong: the file's own values in the module's dtype.
        2. For outputs of the model: the truth.
        3. For other values: those that follow in float64 from the module's value in place of the guilty node's.
        """
        own: dict[str, Array] = {}
        if not self._refused:
            own = self._values.get(submodel.outputs)
        if self._is_dtype_fault():  # step 1
            return {
                name: own[name].astype(self._outputs[name][1])
                for name in submodel.outputs
                if name in self._outputs
            }
        truths = {
            name: self._output_truth(name, own.get(name))
            for name in submodel.outputs
            if name in self._outputs
        }  # step 2
        inner = [name for name in submodel.outputs if name not in truths and name in own]
        if inner:
            for name, value in self._evaluate_fixed(inner).items():  # step 3
                truths[name] = as_dtype(_with_shape(value, own[name].shape), own[name].dtype)
        return truths

    def _is_dtype_fault(self) -> bool:
        """Whether the values are right, and only their dtype is wrong."""
        gap = self._scene.gap
        if gap is None or gap.status is not Status.DTYPE:
            return False
        return bool(self._located.location.suspects)

    def _output_truth(self, name: str, own: Array | None) -> Array:
        """The truth of an output of the model, rounded to the type in which the file gives it."""
        truth, dtype = self._outputs[name]
        if own is not None:
            dtype = own.dtype
        return as_dtype(truth, dtype)

    def _evaluate_fixed(self, names: Sequence[str]) -> dict[str, Array]:
        """True inner values: the module's own in place of the guilty nodes', and what follows from them."""
        if self._replacements is None:
            self._replacements = self._true_replacements()
        replacements = self._replacements
        if not replacements:
            return {}
        if self._evaluator is None:
            self._evaluator = standard.open(self._scene.path, "float64")
        kept: dict[str, Array] = {}

        def observer(node: onnx.NodeProto, results: Any) -> Any:
            values = list(results)
            for place, name in enumerate(node.output[: len(values)]):
                value = values[place]
                if name in replacements and np.size(value) == replacements[name].size:
                    values[place] = replacements[name].reshape(np.shape(value))
                if name in names and isinstance(values[place], np.ndarray | np.generic):
                    kept[name] = np.array(values[place])
            return tuple(values)

        self._evaluator.observe(observer)
        try:
            self._evaluator.run(feed(self._scene.case.inputs, self._scene.signature))
        finally:
            self._evaluator.observe(None)
        return kept

    def _true_replacements(self) -> dict[str, Array]:
        """For the guilty nodes the value that is wrong, and the module's own in its place."""
        suspects = self._located.location.suspects
        guilty = {s.node for place, s in enumerate(suspects) if place == 0 or s.why}
        replacements: dict[str, Array] = {}
        for place, node in enumerate(self._graph.nodes):
            name = self._graph.name(place)
            counterpart = self._located.counterparts.get(name)
            if counterpart is None or name not in guilty:
                continue
            true_value = self._located.fetch(counterpart.place)
            if true_value is not None:
                replacements.update(self._first_of_size(node, np.asarray(true_value)))
        return replacements

    def _first_of_size(self, node: onnx.NodeProto, true_value: Array) -> dict[str, Array]:
        """The first output of a node with as many elements as the true value has, and that value."""
        outputs = self._values.get([name for name in node.output if name])
        for name, value in outputs.items():
            if value.size == true_value.size:
                return {name: true_value}
        return {}


def _with_shape(value: Array, shape: tuple[int, ...]) -> Array:
    """The value in a shape, where it has as many elements."""
    if value.size != np.prod(shape, dtype=int):
        return value
    return value.reshape(shape)
