"""Which bits MatMulNBits runs on ONNX Runtime's CPU: `python -m bench.int4_bits` opens and runs one product of each width."""

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

_COLUMNS, _ROWS, _BLOCK = 128, 32, 32


def runs(bits: int, accuracy_level: int) -> str:
    """`runs`, or what the runtime says."""
    rng = np.random.default_rng(0)
    blocks = _COLUMNS // _BLOCK
    packed = rng.integers(0, 256, (_ROWS, blocks, _BLOCK * bits // 8), dtype=np.uint8)
    scales = rng.random((_ROWS, blocks)).astype(np.float32)
    node = helper.make_node(
        "MatMulNBits",
        ["a", "packed", "scales"],
        ["y"],
        domain="com.microsoft",
        K=_COLUMNS,
        N=_ROWS,
        bits=bits,
        block_size=_BLOCK,
        accuracy_level=accuracy_level,
    )
    graph = helper.make_graph(
        [node],
        "bits",
        [helper.make_tensor_value_info("a", TensorProto.FLOAT, ["m", _COLUMNS])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["m", _ROWS])],
        [numpy_helper.from_array(packed, "packed"), numpy_helper.from_array(scales, "scales")],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    onnxruntime.set_default_logger_severity(4)
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString())
        session.run(None, {"a": np.ones((2, _COLUMNS), np.float32)})
    except Exception as why:  # onnxruntime raises a dozen unrelated classes
        return str(why).splitlines()[0][:160]
    return "runs"


if __name__ == "__main__":
    for width in range(1, 9):
        print(width, *(f"level {level}: {runs(width, level)}" for level in (0, 4)), sep="  ")
