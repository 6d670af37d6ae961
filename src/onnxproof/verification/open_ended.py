"""A quantized graph whose 16-bit roundings round and do not clip: what the width alone costs, beside what its ranges cost.

Sixteen bits leave no reason to clip: a range four times too wide costs nothing that can be measured. So what is lost at their ends is a range that is too narrow.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from onnxproof.errors import OnnxproofError
from onnxproof.onnxmodel.onnx_file import OnnxFile, constants
from onnxproof.results import Signature
from onnxproof.runtimes import reference

Array = np.ndarray[Any, Any]
_LOWEST = {"uint16": 0, "int16": -32768}


class OpenEndedSession:
    """Opened at its first run, where the file has a rounding to 16 bits; given up after a failure."""

    def __init__(self, file: OnnxFile) -> None:
        self._file = file
        self._session: Any = None
        self._usable = bool(_roundings(file))

    def run(
        self, inputs: Mapping[str, Array], signature: Signature, limit_s: float
    ) -> list[Array | None] | None:
        """The outputs in the order of the signature; None where there is nothing to open, or the evaluator refuses."""
        if not self._usable:
            return None
        try:
            if self._session is None:
                model = _without_ends(self._file)
                self._session = reference.open(model.SerializeToString(), "float64")
                self._session.limit_s = limit_s
            outputs = self._session.run(inputs)
        except (OnnxproofError, ValueError):
            self._usable = False
            return None
        by_name = dict(zip(self._session.output_names, outputs, strict=True))
        return [by_name.get(output.onnx_name or "") for output in signature.outputs]


def _roundings(file: OnnxFile) -> dict[str, bool]:
    """Outputs of QuantizeLinear to 16 bits that only DequantizeLinear reads -> whether zero is its lowest level, and it a ReLU as well."""
    known = constants(file)
    readers: dict[str, set[str]] = defaultdict(set)
    for node in file.model.graph.node:
        for name in node.input:
            readers[name].add(node.op_type)
    roundings = {}
    for node in file.model.graph.node:
        if node.op_type != "QuantizeLinear" or len(node.input) < 3:
            continue
        scale, zero = known.get(node.input[1]), known.get(node.input[2])
        if scale is None or zero is None or scale.size > 1 or str(zero.dtype) not in _LOWEST:
            continue
        if readers[node.output[0]] == {"DequantizeLinear"}:
            lowest = _LOWEST[str(zero.dtype)]
            roundings[node.output[0]] = int(zero.reshape(-1)[0]) == lowest
    return roundings


def _without_ends(file: OnnxFile) -> onnx.ModelProto:
    """The graph with those pairs as Div, Round and Mul; the zero point falls out."""
    model = onnx.load(file.path)
    roundings = _roundings(file)
    nodes = []
    for node in model.graph.node:
        if node.op_type == "QuantizeLinear" and node.output[0] in roundings:
            nodes += _rounding(node, relu=roundings[node.output[0]])
        elif node.op_type == "DequantizeLinear" and node.input[0] in roundings:
            nodes.append(onnx.helper.make_node("Mul", node.input[:2], node.output))
        else:
            nodes.append(node)
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    del model.graph.value_info[:]
    return model


def _rounding(node: onnx.NodeProto, *, relu: bool) -> list[onnx.NodeProto]:
    """Steps of the scale, rounded to even."""
    output = node.output[0]
    steps, rounded = f"{output}_steps", f"{output}_rounded"
    made = [onnx.helper.make_node("Div", node.input[:2], [steps])]
    if not relu:
        return [*made, onnx.helper.make_node("Round", [steps], [output])]
    made.append(onnx.helper.make_node("Round", [steps], [rounded]))
    return [*made, onnx.helper.make_node("Relu", [rounded], [output])]
