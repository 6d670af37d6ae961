"""One other tool's int8 model, in a process of its own: `python -m bench.quantize_others TOOL FLOAT.onnx CALIBRATION.npz OUT.onnx`."""

import sys


def _reader(path, name):
    import numpy as np
    from onnxruntime.quantization import CalibrationDataReader

    images = np.load(path)["x"]

    class Reader(CalibrationDataReader):
        def __init__(self):
            self._batches = iter([{name: images[k : k + 1]} for k in range(len(images))])

        def get_next(self):
            return next(self._batches, None)

    return Reader()


def ort_default(source, calibration, target):
    import onnx
    from onnxruntime.quantization import quantize_static

    quantize_static(source, target, _reader(calibration, onnx.load(source).graph.input[0].name))


def ort_u8s8(source, calibration, target):
    import onnx
    from onnxruntime.quantization import QuantType, quantize_static

    quantize_static(
        source,
        target,
        _reader(calibration, onnx.load(source).graph.input[0].name),
        per_channel=True,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
    )


def nncf(source, calibration, target):
    import nncf as tool
    import numpy as np
    import onnx

    model = onnx.load(source)
    name, images = model.graph.input[0].name, np.load(calibration)["x"]
    made = tool.quantize(
        model,
        tool.Dataset([{name: images[k : k + 1]} for k in range(len(images))]),
        subset_size=len(images),
    )
    onnx.save(made, target)


def aimet(source, calibration, target):
    import numpy as np
    import onnx
    from aimet_onnx.quantsim import QuantizationSimModel

    model = onnx.load(source)
    name, images = model.graph.input[0].name, np.load(calibration)["x"]
    simulated = QuantizationSimModel(
        model, param_type="int8", activation_type="int8", quant_scheme="min_max"
    )
    simulated.compute_encodings([{name: images[k : k + 1]} for k in range(len(images))])
    onnx.save(simulated.to_onnx_qdq(export_int32_bias=True, prequantize_constants=True), target)


def onnxsim(source, calibration, target):
    import numpy as np
    import onnx
    import onnxsim as tool

    model = onnx.load(source)
    name, images = model.graph.input[0].name, np.load(calibration)["x"]
    onnx.save(
        tool.quantize_static(
            model,
            method="auto",
            calibration_data=[{name: images[k : k + 1]} for k in range(len(images))],
        ),
        target,
    )


if __name__ == "__main__":
    {
        "ort default": ort_default,
        "ort u8s8 per channel": ort_u8s8,
        "nncf": nncf,
        "aimet": aimet,
        "onnxsim": onnxsim,
    }[sys.argv[1]](*sys.argv[2:5])
