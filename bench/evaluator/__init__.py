"""Operators of `com.microsoft` in our evaluator beside ONNX Runtime's kernels, over random configurations."""
