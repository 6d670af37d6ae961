"""Q/DQ pairs that no kernel takes up: asked of ONNX Runtime's own optimizer, not guessed from a list."""

from collections.abc import Iterator
from pathlib import Path

import onnx

from onnxproof.inspection.view import Check, Rating, View, few
from onnxproof.runtimes import ort
from onnxproof.system import temporary

_MUCH = 0.25


def check(view: View) -> Iterator[Check]:
    """How many DequantizeLinear nodes are left after ONNX Runtime has optimised the graph."""
    before = [node for node in view.nodes if node.op_type == "DequantizeLinear"]
    if not before:
        yield Check(name="quantization", rating=Rating.GOOD, what="not quantized")
        return
    left = _left(view.file.path)
    if left is None:
        yield Check(
            name="quantization",
            rating=Rating.BAD,
            what=f"{len(before)} DequantizeLinear nodes, and ONNX Runtime can't open the file",
        )
        return
    feeding = _consumers(left)
    what = f"{len(before)} DequantizeLinear nodes in the file, {len(feeding)} left once ONNX Runtime has fused what it can"
    if len(feeding) <= _MUCH * len(before):
        yield Check(name="quantization", rating=Rating.GOOD, what=what)
    else:
        kinds = sorted(set(feeding))
        yield Check(
            name="quantization",
            rating=Rating.ODD,
            what=f"{what}; they feed {few(kinds, 6)}",
            help="those run in float with a conversion on each side, slower than without quantization: leave them out, or quantize both their sides",
        )


def _left(path: Path) -> onnx.ModelProto | None:
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


def _consumers(model: onnx.ModelProto) -> list[str]:
    made = {
        name
        for node in model.graph.node
        if node.op_type == "DequantizeLinear"
        for name in node.output
    }
    readers = [node.op_type for node in model.graph.node for name in node.input if name in made]
    ends = ["the output" for port in model.graph.output if port.name in made]
    return [*readers, *ends]
