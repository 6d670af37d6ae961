"""The file as the standard has it: all of it in float64, or some of its nodes in the place of a runtime's kernels."""

from collections.abc import Sequence

import onnx

from onnxproof.diagnosis.counterfactuals.workbench import Array, Workbench, node_with_output
from onnxproof.diagnosis.judge import Counterfactual
from onnxproof.diagnosis.trial_cases import TrialCase
from onnxproof.errors import OnnxproofError
from onnxproof.runtimes import ort, reference
from onnxproof.runtimes.session.execution import Candidate, Clock, feed


def in_float64(workbench: Workbench) -> Counterfactual:
    """The whole file evaluated by the standard in float64."""
    return _of_file(workbench, "float64")


def in_own_types(workbench: Workbench) -> Counterfactual:
    """The whole file evaluated by the standard in the types that it names: what is right then is no matter of precision."""
    return _of_file(workbench, "")


def _of_file(workbench: Workbench, option: str) -> Counterfactual:
    scene = workbench.scene
    backend = f"reference:{option}".removesuffix(":")

    def error(case: TrialCase) -> float | None:
        try:
            session = reference.open(scene.path, option)
            session.limit_s = max(1.0, workbench.deadline.left)
            candidate = Candidate(backend, scene.path, scene.signature, Clock(), session=session)
            return case.scene.error(candidate.run(case.inputs))
        except OnnxproofError:
            return None

    return Counterfactual(error=error, in_reference=False)


def of_nodes(workbench: Workbench, nodes: Sequence[onnx.NodeProto]) -> Counterfactual:
    """The file on its runtime, with what the standard makes of these nodes' inputs in the place of what the runtime makes of them."""

    def error(case: TrialCase) -> float | None:
        feeds = feed(case.inputs, workbench.scene.signature)
        try:
            values = standard_values(workbench, nodes, feeds)
            outputs = _run_with(workbench, nodes, feeds, values)
        except (OnnxproofError, ValueError, KeyError):
            return None
        return case.scene.error(outputs)

    return Counterfactual(error=error, in_reference=False)


def standard_values(
    workbench: Workbench, nodes: Sequence[onnx.NodeProto], feeds: dict[str, Array]
) -> dict[str, Array]:
    """What the standard computes for the nodes' outputs from the values that the runtime gives them."""
    names = list(dict.fromkeys(name for node in nodes for name in node.input if name))
    values = workbench.values(names, feeds=feeds)
    return standard_values_of(workbench, nodes, {name: values[name] for name in names})


def standard_values_of(
    workbench: Workbench, nodes: Sequence[onnx.NodeProto], inputs: dict[str, Array]
) -> dict[str, Array]:
    """What the standard computes for the nodes' outputs from these values."""
    outputs = [name for node in nodes for name in node.output if name]
    candidate = workbench.model
    graph = onnx.helper.make_graph(
        list(nodes),
        "nodes",
        [_port(name, array) for name, array in inputs.items()],
        [onnx.helper.make_empty_tensor_value_info(name) for name in outputs],
    )
    model = onnx.helper.make_model(
        graph, opset_imports=list(candidate.opset_import), ir_version=candidate.ir_version
    )
    computed = reference.open(model.SerializeToString()).run(inputs)
    pairs = zip(outputs, computed, strict=True)
    return {name: array for name, array in pairs if array is not None}


def _port(name: str, array: Array) -> onnx.ValueInfoProto:
    element = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    return onnx.helper.make_tensor_value_info(name, element, array.shape)


def _run_with(
    workbench: Workbench,
    nodes: Sequence[onnx.NodeProto],
    feeds: dict[str, Array],
    values: dict[str, Array],
) -> list[Array | None]:
    """The outputs of the file in which the nodes' outputs are given."""
    model = workbench.copy_model()
    for node in nodes:
        model.graph.node.remove(node_with_output(model.graph, node.output[0]))
    model.graph.input.extend(_port(name, array) for name, array in values.items())
    given = set(values)
    wanted = [output.name for output in model.graph.output]
    inner = [name for name in wanted if name not in given]
    kept = [output for output in model.graph.output if output.name in inner]
    del model.graph.output[:]
    model.graph.output.extend(kept)
    by_name: dict[str, Array | None] = dict(values)
    if inner:
        session = ort.open_model(model, workbench.ort_option)
        by_name |= dict(zip(session.output_names, session.run({**feeds, **values}), strict=True))
    return [by_name.get(output.onnx_name or "") for output in workbench.scene.signature.outputs]
