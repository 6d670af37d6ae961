"""An ONNX file: reading it, checking it, and its graph as producers and consumers of values."""
