"""One tool's 4-bit model, in a process of its own: `python bench/int4_others.py TOOL FLOAT.onnx CALIBRATION.npz OUT.onnx [OPTION]`.

Prints seconds and peak memory as JSON. The file that each gets has its Gemms written as MatMul and Add: ONNX Runtime's quantizers pass a Gemm over in silence.
"""

import json
import logging
import sys
import time


def _peak_mb():
    """Of this process alone: `ru_maxrss` would still know the parent that it was forked from."""
    from pathlib import Path

    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


def _ort(source, config=None, **options):
    import onnx
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    logging.disable(logging.CRITICAL)
    quantizer = MatMulNBitsQuantizer(onnx.load(source), algo_config=config, **options)
    quantizer.process()
    return quantizer.model.model


def default(source, calibration):
    """Blocks of 128 with zero points."""
    return _ort(source)


def default_tables(source, calibration):
    """The same with embeddings."""
    return _ort(source, op_types_to_quantize=("MatMul", "Gather"))


def hqq(source, calibration):
    """Its defaults."""
    from onnxruntime.quantization.matmul_nbits_quantizer import HQQWeightOnlyQuantConfig

    return _ort(source, HQQWeightOnlyQuantConfig())


def _texts(calibration):
    import numpy as np

    ids = np.load(calibration)["input_ids"]
    return [{"input_ids": ids[k : k + 16]} for k in range(0, len(ids), 16)]


def gptq(source, calibration):
    """The longest blocks that it does not fail with: an odd number of blocks in a row is one too many for it."""
    from onnxruntime.quantization import CalibrationDataReader
    from onnxruntime.quantization.matmul_nbits_quantizer import GPTQWeightOnlyQuantConfig

    class Reader(CalibrationDataReader):
        def __init__(self):
            self._batches = iter(_texts(calibration))

        def get_next(self):
            return next(self._batches, None)

    for block in (128, 64, 32, 16):
        config = GPTQWeightOnlyQuantConfig(calibration_data_reader=Reader(), block_size=block)
        try:
            return _ort(source, config, block_size=block)
        except ValueError as why:
            reason = why
    raise SystemExit(f"ERROR: fails with every block size: {reason}")


def _onnxsim(source, calibration, refine):
    """Its int4, blocks of 32, refined on the calibration texts; integers of 4 bits are standard from opset 21 on."""
    import onnx
    import onnxsim as tool

    model = onnx.version_converter.convert_version(onnx.load(source), 21)
    rounded = tool.quantize_weight_only_int4(model)
    apply = getattr(tool, f"apply_{refine}")
    return _without_unused(apply(model, rounded, calibration_data=_texts(calibration)))


def _without_unused(model):
    """Without the float weights that nothing reads any more: it leaves them in the file."""
    read = {name for node in model.graph.node for name in node.input}
    kept = [tensor for tensor in model.graph.initializer if tensor.name in read]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    return model


def onnxsim_gptq(source, calibration):
    """GPTQ."""
    return _onnxsim(source, calibration, "gptq")


def onnxsim_gptaq(source, calibration):
    """GPTQ against inputs that earlier layers have changed."""
    return _onnxsim(source, calibration, "gptaq")


def onnxsim_qronos(source, calibration):
    """Layers corrected in their order."""
    return _onnxsim(source, calibration, "qronos")


TOOLS = {
    "ort default": default,
    "ort default, tables too": default_tables,
    "ort hqq": hqq,
    "ort gptq": gptq,
    "onnxsim gptq": onnxsim_gptq,
    "onnxsim gptaq": onnxsim_gptaq,
    "onnxsim qronos": onnxsim_qronos,
}


def ours(source, calibration, target, budget):
    """By onnxproof within a budget such as `bits=4.5`."""
    import onnxproof

    name, _, number = budget.partition("=")
    onnxproof.quantize(
        source,
        target,
        scheme="w4",
        calibration=calibration,
        proof_s=5.0,
        budget=onnxproof.Budget(seconds=1, **{name: float(number)}),
    )


if __name__ == "__main__":
    tool, source, calibration, target = sys.argv[1:5]
    start, busy = time.perf_counter(), time.process_time()
    if tool == "onnxproof":
        ours(source, calibration, target, sys.argv[5])
    else:
        import onnx

        onnx.save(TOOLS[tool](source, calibration), target)
    spent = {
        "seconds": time.perf_counter() - start,
        "cpu": time.process_time() - busy,
        "mb": _peak_mb(),
    }
    print("\n" + json.dumps(spent))
