"""One file a check of an ONNX file: `check(view)` yields what it saw, each with a verdict."""
