"""One file for each check of an ONNX file: `check(view)` yields its results, each with a rating."""
