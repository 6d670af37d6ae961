"""The standard's evaluator in float64: operators that onnx's own lacks, and those of ONNX Runtime's domain."""
