"""Q/DQ pairs that no integer kernel consumes: read from ONNX Runtime's own optimised graph, not guessed from a list."""

from collections.abc import Iterator
from pathlib import Path

import onnx

from onnxproof.inspection.view import Check, Rating, View, list_names
from onnxproof.runtimes import ort
from onnxproof.system import temporary

_MAX_LEFT = 0.25
"""Share of the DequantizeLinear nodes that may be left: some feed the outputs. Not measured."""


def check(view: View) -> Iterator[Check]:
    """How many DequantizeLinear nodes are left after ONNX Runtime has optimised the graph."""
    before = [node for node in view.nodes if node.op_type == "DequantizeLinear"]
    if not before:
        yield Check(name="quantization", rating=Rating.GOOD, what="not quantized")
        return
    optimised = _optimise(view.file.path)
    if optimised is None:
        yield Check(
            name="quantization",
            rating=Rating.BAD,
            what=f"{len(before)} DequantizeLinear nodes, and ONNX Runtime can't open the file",
        )
        return
    consumers = _dequantized_consumers(optimised)
    what = f"{len(before)} DequantizeLinear nodes in the file, {len(consumers)} left once ONNX Runtime has fused what it can"
    if len(consumers) <= _MAX_LEFT * len(before):
        yield Check(name="quantization", rating=Rating.GOOD, what=what)
    else:
        kinds = sorted(set(consumers))
        yield Check(
            name="quantization",
            rating=Rating.ODD,
            what=f"{what}; they feed {list_names(kinds, 6)}",
            help="those run in float with a conversion on each side, slower than without quantization: leave them out, or quantize both their sides",
        )


def _optimise(path: Path) -> onnx.ModelProto | None:
    """The graph that ONNX Runtime would run; None if it can't open the file."""
    import onnxruntime

    with temporary.Folder() as folder:
        options = onnxruntime.SessionOptions()
        options.optimized_model_filepath = str(Path(folder) / "optimized.onnx")
        options.log_severity_level = 4
        try:
            ort.native(path, options)
        except Exception:  # the runtime raises several classes of its own
            return None
        return onnx.load(options.optimized_model_filepath, load_external_data=False)


def _dequantized_consumers(model: onnx.ModelProto) -> list[str]:
    """The operators that consume a dequantized value, one entry for each use; an output of the graph counts."""
    dequantized: set[str] = set()
    for node in model.graph.node:
        if node.op_type == "DequantizeLinear":
            dequantized.update(node.output)
    consumers = []
    for node in model.graph.node:
        consumers += [node.op_type for name in node.input if name in dequantized]
    outputs = ["the output" for port in model.graph.output if port.name in dequantized]
    return [*consumers, *outputs]
